//! Archives in S3-compatible stores: the kind `s3://BUCKET/PREFIX`.
//!
//! - `address`: what a location says. `credentials`: keys, region and endpoint, from the
//!   environment and from profile files.
//! - `transport`: signs, sends, retries and classifies. **Every request passes it.** `bucket`: the
//!   requests, on keys below the prefix. `answers`: their XML.
//! - `keys`: the names of objects. `lease`: who may write. `marks`: what is to be deleted. `probe`:
//!   whether the store honours conditions.
//! - `objects`, `upload`, `archive`: containers as objects. `kind`: what the archive declares.
//! - `runtime`: the async runtime. Callers are threads that block; none of them runs on it.
//!
//! The store is not trusted: it may answer late, twice, shortened, or something else. What decides
//! over data is only what a conditional write proved; safety never depends on a clock. The layout
//! of the bucket and the reasons for its rules are in `docs/formats/s3.md`.

mod address;
mod answers;
mod archive;
mod bucket;
mod credentials;
mod keys;
mod kind;
mod lease;
mod marks;
mod objects;
mod probe;
mod profiles;
mod random;
mod runtime;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;
mod upload;

pub use kind::SPEC;
pub use transport::counters;
