//! Ageing: making a file system look as years of use would leave it, and measuring what that did.
//!
//! ```text
//! snapshots --diff--> changes --derive--> workload <--generate-- profile
//!                                            |
//!                  simulate (placements alone) or replay (any FileSystem)
//!                                            |
//!                                     layout --> score
//! ```
//!
//! A workload is one file ([`workload`]) whatever it came from, and what ages a simulation ages a
//! real mount. Nothing here reads a clock or a source of randomness: both are parameters; nothing
//! prints. No layer and no FUSE is known here.
//!
//! The types to know first: [`workload::Operation`], [`simulate::Simulator`], [`score::Score`].
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
