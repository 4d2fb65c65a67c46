//! What tiering stores: the residency of a file in an xattr on it, and objects in archives.
//!
//! `format`: records, byte for byte. `residency`: the xattr, `marks`: its name and who is
//! believed. `attributes`: what is kept of a file beside its bytes. `writer`, `reader` and `dump`:
//! objects. `bundle`: several in one container.
//! `docs/formats/tier.md` describes all of it, and the order in which things are written.

pub mod attributes;
pub mod bundle;
pub mod bytes;
pub mod dump;
pub(crate) mod format;
pub mod marks;
pub mod reader;
pub mod residency;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod writer;

pub use attributes::{Attributes, TreeEntry};
pub use format::BLOCK_BYTES;
pub use marks::{Marks, Opening, TreeMark, WriterMark};
pub use residency::{Location, Residency, Version};
