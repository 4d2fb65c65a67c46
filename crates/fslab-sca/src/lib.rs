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
//! - `log`: a stored file in memory, of four parts with private state: `chunk_map` tells which
//!   frames hold what, `journal` is the one writer of frames, `commits` knows what is durable, and
//!   `space` gives back the space of frames of no more use.
//! - What is done with them: `reader`, `writer`, `holes`, `settle`; `recovery` and `aside` after a
//!   crash; `commit` (the only one that syncs), `checkpoint`, `clean` and `pack` in steps.
//! - `reclaim`: the policy that says when space is given back.
//! - `ahead`: chunks decoded before they are asked for.
//! - `stored_file`: a file in use; `in_use`: all of them; `access`: how they are opened below.
//! - `reclaimer`: the thread that gives space back. `layer`: the file system.
//! - `dump`, `tools`: stored files taken apart, checked, read and packed while nothing is mounted;
//!   `convert`: whole trees encoded and decoded.

mod access;
mod ahead;
mod aside;
mod checkpoint;
mod chunk_map;
mod clean;
mod codec;
mod commit;
mod commits;
mod content;
mod context;
pub mod convert;
mod dump;
mod encoder;
mod error;
mod fetch;
mod format;
mod frame;
mod holes;
mod in_use;
mod index;
mod journal;
mod layer;
mod log;
mod lower;
mod mark;
mod options;
mod pack;
mod prepared;
mod ranges;
mod reader;
mod reclaim;
mod reclaimer;
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
pub use error::{Error, Result};
pub use pack::Packed;
pub use spec::{COPY, GZIP, LAYERS, LZ4, UUENCODE, ZSTD};
pub use tools::{Figures, Finding, PackedFile, Salvaged, Tool, pack};
