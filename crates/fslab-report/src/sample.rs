//! Samples: one JSON line each, appended as soon as they are measured; the truth of a comparison.
//!
//! The first line is the provenance. A file cut short by an interruption is valid: every whole
//! line counts. Files of one campaign can be joined by appending one to the other, or by giving
//! them all to whoever reads them.

mod format;
mod reader;
mod writer;

pub use format::*;
pub use reader::{is_ended, read, read_all, read_prefix, sessions};
pub use writer::Writer;
