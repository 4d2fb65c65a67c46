//! The boundary to the kernel: serves a `FileSystem` through FUSE.
//!
//! Behind [`mount`] is the fuser crate, which is named nowhere outside this crate. What the kernel
//! and the privileges granted is in [`Granted`]; whatever was asked and not granted is said, never
//! silently replaced.
//!
//! This crate knows no layer and no leaf.

mod adapter;
mod backing;
mod convert;
mod error;
mod guard;
mod negotiate;
mod notices;
mod options;
mod read_ahead;
mod session;

pub use error::{Error, Result};
pub use negotiate::Granted;
pub use options::MountOptions;
pub use session::{Session, Unmounter, mount};
