//! Test doubles that produce the possible states after a crash: [`CrashFs`] for code that works on
//! files, and [`CrashDevice`] for code that works on blocks.
//!
//! A double works normally and records every change and every sync. Its log then gives the possible
//! states after a power cut at every point. Each state contains everything synced. It also contains
//! all, none, a prefix, or a seeded random subset of the other effects ([`Plan`]). A test can open
//! and examine each state.
//!
//! # What a file system may keep
//!
//! A call is split into *effects* that survive independently:
//!
//! | effect | made by |
//! |---|---|
//! | one sector of 512 bytes, as the page cache held it then | writes, copies, zeroed edges |
//! | size | writes that extend, truncation, allocation |
//! | whole blocks of 4096 bytes emptied | punching, zeroing |
//! | owner and permissions together; one xattr; a time | setattr; setxattr, removexattr; changes |
//! | names: one added or removed, one moved, or two exchanged | create, link, unlink, rename |
//!
//! So data tears at 512 bytes, and data, size, xattrs and names survive independently. The
//! following bounds limit this; they hold on all common file systems:
//!
//! 1. *A sector is not torn.* It has the bytes that the page cache had at one moment. So if its
//!    later contents survive, earlier writes to it survive too.
//! 2. *Shapes are in order.* Changes of one file's size and emptied blocks survive as a prefix: if
//!    one of them survives, so do all earlier ones.
//! 3. *Freed space shows no data.* A sector that was written after a truncation or a punch of its
//!    range survives only with that change.
//! 4. *Attributes are in order.* Changes of one file's owner, permissions, xattrs and times survive
//!    as a prefix. A truncation to zero survives only with the attribute changes before it. Both
//!    change the inode in one journal (ext4, XFS, F2FS) or one tree (Btrfs).
//! 5. *Related names are in order.* A change of a name or of an inode's links survives only with
//!    the previous change of the same name or inode. A rename is atomic.
//! 6. *An extended file has no foreign bytes*: parts that no sector filled are zeros.
//!
//! `fsync` of a file makes its data, size, attributes and xattrs durable, and `fdatasync` its data
//! and size. `fsync` of a directory makes its names durable, and `syncfs` everything. A write to a
//! file opened with O_DSYNC includes an `fdatasync`, and one with O_SYNC an `fsync`. `fsync` of a
//! *file* does not make its *name* durable.
//!
//! These are the rules of [`Order::Independent`]. It allows more states than any one file system.
//! So code that survives all of these states also survives crashes of ext4, XFS and Btrfs. (Btrfs
//! needs this freedom: its fsync makes a single file durable before older changes of other files.)
//!
//! [`Order::Journal`] adds the guarantees of ext4 with `data=ordered`:
//!
//! - Names, attributes, xattrs, truncations and emptied blocks survive as one prefix over all files
//!   (one journal).
//! - A write that extends a file changes its size. The new size survives only with that write's
//!   sectors (ordered data) and with everything before it in the journal. It may become durable
//!   after later journal entries (delayed allocation).
//! - `fsync` of a file commits the journal, including names, up to the file's last entry.
//!
//! ext4 differs from this double. In ext4, a data sector in newly allocated space survives only
//! with the transaction that allocated the space. ext4 may also punch very large ranges in several
//! transactions, and may lose access and modification times.
//!
//! Set-id bits that a write clears implicitly are not recorded. A state has the last explicitly set
//! permissions that survived. [`CrashFs::following_times`] records modification times, which
//! survive like attributes, so new bytes may have an old time. All other times are the time at
//! which the state was made.
//!
//! # What a device may keep
//!
//! A device keeps everything written before a completed flush. It keeps an arbitrary subset of the
//! sectors (512 bytes or more) written or discarded after that. Changes between two flushes are not
//! ordered. A sector is not torn.

mod dependencies;
mod device;
mod effect;
pub mod failing;
pub mod history;
mod image;
mod log;
pub mod overtaking;
mod record;
mod survivors;

pub use device::{CrashDevice, DeviceLog, DeviceState};
pub use effect::Order;
pub use log::{Log, State};
pub use record::CrashFs;
pub use survivors::{Plan, Survivors};
