//! Archives in S3-compatible stores: the kind `s3://BUCKET/PREFIX`.
//!
//! - `address`: parses locations. `credentials`: keys, region and endpoint, from the environment
//!   and from profile files.
//! - `transport`: signs requests, sends and retries them, and classifies the answers. **Every
//!   request passes through it.** `bucket`: the requests, for keys under the prefix. `answers`:
//!   their XML.
//! - `keys`: the names of objects. `lease`: the right to write. `marks`: objects to be deleted.
//!   `probe`: whether the store honours conditions. `checksums`: whether it verifies checksums.
//!   `retention`: deleted objects that the store retains.
//! - `objects`, `upload`, `archive`: containers as objects. `kind`: the archive kind.
//! - `runtime`: the async runtime. Callers are blocking threads that never run on it.
//!
//! The store is not trusted: it may answer late, twice, incompletely or wrongly. Conditional writes
//! alone decide which writer may change data; safety never depends on a clock. The layout of the
//! bucket and the reasons for its rules are in `docs/formats/s3.md`.

mod address;
mod answers;
mod archive;
mod bucket;
mod checksums;
mod credentials;
mod keys;
mod kind;
mod lease;
mod marks;
mod objects;
mod probe;
mod profiles;
mod random;
mod restore_options;
mod retention;
mod runtime;
mod staging;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;
mod upload;

pub use kind::SPEC;
