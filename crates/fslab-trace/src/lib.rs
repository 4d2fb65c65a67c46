//! Recorded operations of a file system: the trace format, its writer, its reader, and the replayer
//! that repeats the operations.
//!
//! A trace is a directory of Parquet files, so that any tool can read it; `docs/formats/trace.md`
//! describes them. [`Recorder`] collects records from the threads that serve requests and writes
//! them in its own thread. [`Reader`] reads them, and [`Replayer`] repeats them on any
//! [`fslab_vfs::FileSystem`].
//!
//! This is the only crate that knows the format. It depends on no layer and no mount, and clocks
//! are parameters.
//!
//! ```
//! use fslab_trace::{Record, Replayer, Settings};
//! use fslab_vfs::MemFs;
//!
//! let target = MemFs::default();
//! let mut fill = |_record: &Record, bytes: &mut [u8]| bytes.fill(0);
//! let settings = Settings { owner: None, fill: &mut fill };
//! let replayed = Replayer::new(&target, settings).finish();
//! assert_eq!(replayed.diverged, 0);
//! ```

mod anonymise;
mod dataset;
mod dump;
mod error;
mod escape;
mod format;
mod inventory;
mod noise;
mod paths;
mod reader;
mod record;
mod recorder;
mod replay;
mod segment;
mod writer;

pub use anonymise::{Anonymiser, KNOWN_EXTENSIONS};
pub use dataset::{DATASET_SCHEMA, write_dataset};
pub use dump::Line;
pub use error::{Error, Result};
pub use format::{COLUMNS, Column, DataMode, Kind, Metadata, Shown, VERSION};
pub use inventory::Inventory;
pub use noise::noise;
pub use paths::Paths;
pub use reader::{Reader, SegmentInfo};
pub use record::{Record, flag as record_flag};
pub use recorder::{Recorder, RecorderOptions, RecorderState, WhenFull};
pub use replay::{Divergence, Replayed, Replayer, Settings};
pub use segment::ROWS_MAX;
pub use writer::TraceWriter;
