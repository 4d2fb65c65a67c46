//! Data sets: directories of Parquet files with a manifest. fslab writes snapshots, workloads,
//! traces, samples and exports of tiers as data sets, and SQL engines read them without fslab.
//!
//! `docs/formats/dataset.md` describes the format. The [`Manifest`] lists the files of a data set.
//! `fslab sql` passes a [`Query`] to the program `fslab-sql`, which contains the SQL engine.
//!
//! ```
//! let error = fslab_dataset::Manifest::read("/no/such/directory".as_ref()).unwrap_err();
//! assert!(error.to_string().contains("/no/such/directory"));
//! ```

mod buffer;
mod error;
mod format;
mod limits;
mod manifest;
mod names;
mod query;
mod reader;
mod sizes;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod writer;

pub use error::{Error, Result};
pub use format::{
    Cell, Column, Encoding, Field, Kind, Partition, Schema, facts_of, part_in_order, part_of,
};
pub use manifest::{KINDS, MANIFEST_FILE, Manifest, PARTS_MAX, Part, VERSION};
pub use names::readable;
pub use query::{Output, Query, Table};
pub use reader::{Group, PartReader};
pub use sizes::{check_sizes, read_footer};
pub use writer::Writer;
