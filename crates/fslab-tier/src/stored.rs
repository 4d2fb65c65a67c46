//! The records that tiering stores: in xattrs on files, and in the objects of archives.
//!
//! `format`: the records, byte for byte. `residency`: the xattr with the location of a file's
//! bytes. `compact`: a short form of this xattr, for released files. `marks`: the names of xattrs,
//! and which xattrs are trusted. `attributes`: owner, times, xattrs and other attributes of an
//! archived file. `docs/formats/tier.md` describes all records, and the order in which they are
//! written.

pub mod attributes;
pub mod bytes;
pub mod compact;
pub(crate) mod format;
pub mod marks;
pub mod residency;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use attributes::{Attributes, TreeEntry};
pub use compact::{CompactResidency, StoredResidency};
pub use format::BLOCK_BYTES;
pub use marks::{Marks, Opening, WriterMark};
pub use residency::{Location, Residency, TreeMark, Version};
