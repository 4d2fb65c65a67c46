//! The boundary to the kernel: serves a `FileSystem` through FUSE.
//!
//! - [`mount`] attaches a connection to a place (`connect`), agrees with the kernel on features
//!   (`negotiate`) and starts to serve (`server`).
//! - A request's way: `channel` reads it, `incoming` takes it apart, `operations` calls the trait
//!   and fills `output`, `channel` answers. `crew` decides which thread reads next,
//!   and `patience` how long it stays awake for that.
//! - `notices` tells the kernel what changed behind its back; `backing` keeps the files that it
//!   reads and writes without asking.
//!
//! What the kernel and the privileges granted is in [`Granted`]; whatever was asked and not
//! granted is said, never silently replaced. This crate knows no layer and no leaf.

mod anchor;
mod answer;
mod backing;
mod channel;
mod connect;
mod convert;
mod crew;
mod error;
mod extension;
mod failed_writes;
mod features;
mod incoming;
mod interrupts;
mod monitor;
mod negotiate;
mod notices;
mod operations;
mod options;
mod output;
mod patience;
mod protocol;
mod read_ahead;
mod reader;
mod request_timeout;
mod server;
mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use error::{Error, Result};
pub use features::{FEATURES, Feature};
pub use negotiate::Granted;
pub use options::MountOptions;
pub use session::{Breaker, Session, Unmounter, mount};
