//! Samples. Each is one line of JSON, which is appended as soon as the sample is measured. They are
//! the primary data of a comparison.
//!
//! The first line is the provenance. A file truncated by an interruption is valid, and all its
//! complete lines are used. Files of one campaign can be joined by concatenation, or by passing all
//! of them to a reader.

mod format;
mod reader;
mod writer;

pub use format::*;
pub use reader::{has_samples, is_ended, read, read_all, read_prefix, sessions};
pub use writer::Writer;
