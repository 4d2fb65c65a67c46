//! The boundary to the kernel: serves a `FileSystem` through FUSE.
//!
//! - [`mount`] attaches a connection to a place (`connect`), agrees with the kernel on features
//!   (`negotiate`) and starts to serve (`server`).
//! - A request's way: `transport` reads it, `decode` parses it, `operations` calls the trait and
//!   fills a `reply_buffer`, `transport` replies. `thread_pool` decides which thread reads next,
//!   `busy_poll` how long that thread polls before it blocks. With `transport=uring`, `uring` takes
//!   requests and replies instead. `workers` knows what each thread serves.
//! - `notifications` invalidates what the kernel caches; `passthrough` keeps the files that the
//!   kernel reads and writes without asking.
//!
//! What the kernel and the privileges granted is in [`Granted`]; whatever was asked and not
//! granted is said, never silently replaced. This crate knows no layer and no leaf.
//!
//! The types to know first: [`MountOptions`], [`Session`], [`Granted`].
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
pub use kept::KeptState;
pub use negotiate::Granted;
pub use options::{MountOptions, TransportChoice};
pub use session::{Breaker, Session, mount, mount_kept, take_over};
pub use unmount::Unmounter;
