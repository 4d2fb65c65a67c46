//! Ageing: brings a file system into the state that years of use would leave, and measures the
//! effect.
//!
//! ```text
//! snapshots --diff--> changes --derive--> workload <--generate-- profile
//!                                            |
//!                  simulate (allocation only) or replay (any FileSystem)
//!                                            |
//!                                     layout --> score
//! ```
//!
//! A workload is one file ([`workload`]), regardless of its source. The same workload can age a
//! simulation or a mounted file system. This crate reads neither a clock nor a source of
//! randomness, because times and seeds are parameters. It prints nothing, and it does not depend on
//! layers or FUSE.
//!
//! Start with these types: [`workload::Operation`], [`simulate::Simulator`], [`score::Score`].
//!
//! ```
//! let profile = fslab_age::profile::find("smith97")?;
//! assert_eq!(profile.name, "smith97");
//! # Ok::<(), fslab_age::Error>(())
//! ```

pub mod derive;
pub mod diff;
mod error;
pub mod image;
pub mod in_process;
pub mod profile;
pub mod replay;
pub mod score;
pub mod simulate;
pub mod snapshot;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod verify;
mod walk;
pub mod workload;

pub use error::{Error, Result};
pub use profile::DAY_NS;
