//! Tests for any file system that implements the trait.
//!
//! - [`conformance`]: named cases, each for one guarantee of the trait.
//! - [`id_map`]: mounts that show owners other than the stored ones.
//! - [`model`]: random operations, compared with [`fslab_vfs::MemFs`].
//! - [`crash`]: test doubles that produce the possible states after a crash.
//! - [`environment`]: seeds and amounts of random tests, from environment variables.
//! - [`flag`]: a flag that makes the threads of a test end, even after a panic.
//! - [`mutants`]: file systems with a planted bug, to test the tests.
//! - [`scratch`]: folders for the files of tests.
//! - [`skip`]: reports of tests that can't run on this machine.
//! - [`unused`]: waiting until no process has a file open for writing.
//! - [`uring_switch`]: the machine's permission to mount over io_uring.
//!
//! The subject is the file system under test. The caller passes a function that makes it, so that
//! cases and random runs share no state. The subject must allow root every request, and no other
//! process may change its root directory. The subject may be a mounted file system, accessed
//! through a leaf over its mount point. It then does not use the times of the requests. So the
//! tests compare times only with each other, never with the time of a request.
//!
//! Start with these types: [`client::Client`], [`crash::CrashFs`], [`crash::CrashDevice`].
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
pub mod uring_switch;
