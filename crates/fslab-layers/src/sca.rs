//! SCA layers: size-changing algorithms (compression, text encoding) between a mount and the
//! directory below it.
//!
//! Each logical file is one *stored file* of the same name below. It consists of *frames*: one for
//! each *chunk* of the logical file, and some for what happened to it (a new size, a hole) and for
//! the index. Frames are only ever added behind all others. `docs/formats/sca.md` describes the
//! format and the argument why a crash at any moment loses nothing that was promised.
//!
//! From the bottom to the top:
//!
//! - `format`: records, byte for byte. `codec`: encodings and containers, one file each.
//! - `frame`, `roots`, `index`, `mark`: frames, the head, the tree of pages, the xattrs.
//! - `log`: a stored file in memory; `reader`, `writer`, `holes`, `checkpoint`, `space`, `clean`,
//!   `pack`, `settle`, `aside` and `recovery` are what can be done with it. `commit` makes it
//!   durable, and is the only one that syncs it.
//! - `ahead`: chunks decoded before they are asked for.
//! - `stored_file`: a file in use; `in_use`: all of them; `access`: how they are opened below.
//! - `packer`: packing when nothing else is to be done. `layer`: the file system.
//! - `dump`, `tools`: stored files taken apart, checked, read and packed while nothing is mounted;
//!   `convert`: whole trees encoded and decoded.

mod access;
mod ahead;
mod aside;
mod checkpoint;
mod clean;
mod codec;
mod commit;
mod context;
pub mod convert;
mod dump;
mod encoder;
mod format;
mod frame;
mod holes;
mod in_use;
mod index;
mod layer;
mod log;
mod lower;
mod mark;
mod options;
mod pack;
mod packer;
mod prepared;
mod ranges;
mod reader;
mod recovery;
mod roots;
mod settle;
mod space;
mod spec;
mod stored_file;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tools;
mod turns;
mod writer;

pub use codec::{Body, CODECS, CodecError, CodecSpec, Container, Levels};
pub use pack::Packed;
pub use spec::{COPY, GZIP, LZ4, UUENCODE, ZSTD};
pub use tools::{Figures, Finding, PackedFile, Salvaged, Tool, pack};
