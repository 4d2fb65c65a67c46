//! The interface to the kernel: serves a `FileSystem` through FUSE.
//!
//! - [`mount`] attaches a connection to a mount point (`connect`), negotiates features with the
//!   kernel (`negotiate`) and starts serving (`server`).
//! - The path of a request: `transport` reads it, `decode` parses it, `operations` calls the trait
//!   and fills a `reply_buffer`, and `transport` sends the reply. `thread_pool` decides which
//!   thread reads next, and `busy_poll` how long this thread polls before it blocks. With
//!   `transport=uring`, `uring` receives requests and sends replies instead. `workers` tracks which
//!   request each thread serves.
//! - `deferred` keeps requests that wait without a thread.
//! - `notifications` invalidates the kernel's caches; `passthrough` manages the files that the
//!   kernel reads and writes without a request.
//!
//! [`Granted`] contains the limits and features that the kernel and the daemon's privileges allow.
//! If a requested feature was not granted, this is reported; the feature is never silently
//! replaced. This crate depends on no layer and no leaf.
//!
//! Start with these types: [`MountOptions`], [`Session`], [`Granted`].
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use fslab_fuse::{MountOptions, mount};
//! use fslab_vfs::MemFs;
//!
//! let session = mount(Arc::new(MemFs::default()), "/mnt".as_ref(), &MountOptions::default())?;
//! session.wait()?; // until it is unmounted
//! # Ok::<(), fslab_fuse::Error>(())
//! ```

mod backing_id_pin;
mod busy_poll;
mod connect;
mod convert;
mod decode;
mod deferred;
mod error;
mod extension;
mod failed_writes;
mod features;
mod idle_unmount;
mod interrupts;
mod job;
mod kept;
mod monitor;
mod negotiate;
mod notifications;
mod operations;
mod options;
mod passthrough;
mod protocol;
mod read_ahead;
mod reply;
mod reply_buffer;
mod request_timeout;
mod server;
mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod thread_pool;
mod transport;
mod unmount;
mod uring;
mod workers;

pub use error::{Error, Result};
pub use features::{FEATURES, Feature};
pub use kept::{DaemonEnd, KeptState};
pub use negotiate::Granted;
pub use options::{MountOptions, TransportChoice};
pub use session::{Breaker, Session, mount, mount_kept, take_over};
pub use unmount::Unmounter;
