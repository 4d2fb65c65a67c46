//! SCA layers: size-changing algorithms (compression, text encoding) between a mount and its lower
//! directory.
//!
//! Each logical file is stored as one *stored file* of the same name in the lower directory. A
//! stored file consists of *frames*: one for each *chunk* of the logical file, and others that
//! record size changes, holes and the index. Every change of the file appends frames. Packing
//! writes frames into *gaps*. Neither of them overwrites a live frame. `docs/formats/sca.md`
//! describes the format and explains why a crash at any moment loses no durable data.
//!
//! The modules, from the bottom to the top:
//!
//! - `format`: the on-disk records, byte for byte. `codec`: encodings and containers, one file
//!   each.
//! - `frame`: frames. `superblock`: the head with its two slots. `index`: the tree of index pages.
//!   `size_xattr`: the xattrs of stored files and of the tree.
//! - `log`: a stored file in memory. Its four parts have private state. `chunk_map` maps chunks to
//!   frames, `journal` writes frames, `commit_state` records which writes are durable, and
//!   `dead_frames` frees the space of unreferenced frames. `gap` makes gaps, and `leading_gaps`
//!   finds, empties and shortens the gaps at the beginning of a file.
//! - Operations on a stored file: `reader`, `writer`, `punch_hole`, `close`; `recovery` and
//!   `quarantine` after a crash; `checkpoint`; `commit` (which syncs), `garbage_collection` and
//!   `pack`, which release the file's lock between their steps.
//! - `reclaim_policy` decides when space is freed; `next_checks` stores the file lengths at which
//!   the policy is next applied; `reclaimer` is the thread that frees the space.
//! - `slices` visits all chunks of a file while others use it; `failed_searches` records damaged
//!   files that can't be rebuilt.
//! - `staging` lets other threads encode appended chunks after the write has returned.
//! - `pre_encode` encodes chunks before the file's lock is taken; `read_ahead` decodes chunks
//!   before they are read.
//! - `stored_file`: an open file; `open_files`: all open files; `opening`: opens lower files.
//! - `layer`: the file system.
//! - `dump`, `tools`: dump, check, read and pack stored files while nothing is mounted; `convert`:
//!   encode and decode whole trees.
//!
//! Start with these types: [`CodecSpec`], [`Tool`] (a stored file while nothing is mounted), and
//! [`LAYERS`], the layers for a stack.
//!
//! ```
//! use std::sync::Arc;
//!
//! use fslab_layers::LayerChoice;
//! use fslab_vfs::{Ino, MemFs};
//! use fslab_vfs_testing::client::Client;
//!
//! let below = Arc::new(MemFs::default());
//! let fs = LayerChoice::parse("zstd:level=3", fslab_sca::LAYERS)?.build(below)?;
//! let client = Client::new(&*fs);
//! let file = client.file(Ino::ROOT, "text", &[b'a'; 100_000])?;
//! assert_eq!(client.contents(file)?.len(), 100_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod checkpoint;
mod chunk_map;
mod close;
mod codec;
mod commit;
mod commit_state;
mod content;
mod context;
pub mod convert;
mod dead_frames;
mod decoded_cache;
mod dump;
mod encoder;
mod error;
mod failed_searches;
mod format;
mod frame;
mod frame_reader;
mod gap;
mod garbage_collection;
mod index;
mod journal;
mod layer;
mod leading_gaps;
mod log;
mod lower;
mod next_checks;
mod open_files;
mod opening;
mod options;
mod pack;
mod pre_encode;
mod punch_hole;
mod quarantine;
mod ranges;
mod read_ahead;
mod reader;
mod reclaim_policy;
mod reclaimer;
mod recovery;
mod size_xattr;
mod slices;
mod spec;
mod staged_memory;
mod staging;
mod staging_area;
mod stored_file;
mod superblock;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod ticket;
mod tools;
mod workers;
mod writer;

pub use codec::{Body, CODECS, CodecError, CodecSpec, Container, Levels};
pub use error::{Error, Result};
pub use pack::Packed;
pub use spec::{COPY, GZIP, LAYERS, LZ4, UUENCODE, ZSTD};
pub use tools::{Depth, Figures, Finding, PackedFile, Salvaged, Tool, pack};
