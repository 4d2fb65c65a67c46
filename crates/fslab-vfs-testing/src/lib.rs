//! Tests that any file system can be put through.
//!
//! - [`conformance`]: named cases, each about one promise of the trait.
//! - [`id_map`]: mounts of which users see other owners than are stored.
//! - [`model`]: random operations, compared with [`fslab_vfs::MemFs`].
//! - [`crash`]: doubles that show what a crash may leave.
//! - [`environment`]: seeds, and how much is tried.
//! - [`flag`]: what ends the threads of a test, however it ends.
//! - [`mutants`]: file systems with a planted bug, to test the tests.
//! - [`scratch`]: where tests put their files.
//! - [`unused`]: waiting until nobody holds a file.
//!
//! Subjects are given by a function that makes one: cases and random runs do not share state.
//! What these tests need of a subject: requests by root are allowed everything, and the root
//! directory holds nothing else that changes meanwhile. They may run on a mounted file system
//! behind a leaf over its mount point, so that they compare times with each other and never with
//! the time of a request.
//!
//! The types to know first: [`client::Client`], [`crash::CrashFs`], [`crash::CrashDevice`].
//!
//! ```
//! use fslab_vfs::{Ino, MemFs};
//! use fslab_vfs_testing::client::Client;
//!
//! let fs = MemFs::default();
//! let client = Client::new(&fs);
//! let file = client.file(Ino::ROOT, "name", b"data")?;
//! assert_eq!(client.contents(file)?, b"data");
//! # Ok::<(), fslab_vfs::Error>(())
//! ```

pub mod client;
pub mod conformance;
pub mod crash;
pub mod environment;
pub mod flag;
pub mod id_map;
pub mod model;
pub mod mutants;
pub mod scratch;
pub mod skip;
pub mod unused;
