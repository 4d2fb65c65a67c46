//! Doubles that can show what a crash may leave: [`CrashFs`] below anything that works on files,
//! and [`CrashDevice`] below anything that works on blocks.
//!
//! A double works as usual and records every change and every sync. Afterwards its log gives the
//! states after a power cut at every point: what was synced is there, and of the rest all,
//! nothing, each prefix, or seeded subsets ([`Plan`]). Each state can be opened and looked at.
//!
//! # What a file system may keep
//!
//! A call is taken apart into *effects* that survive each for itself:
//!
//! | effect | of |
//! |---|---|
//! | one sector of 512 bytes, as the page cache held it then | writes, copies, zeroed edges |
//! | size | writes that extend, truncation, allocation |
//! | whole blocks of 4096 bytes emptied | punching, zeroing |
//! | owner and permissions together; one xattr; a time | setattr; setxattr, removexattr; changes |
//! | names: one bound, or one moved or two exchanged at once | create, link, unlink, rename |
//!
//! So data tears at 512 bytes, and data, size, xattrs and names survive independently, but for
//! these bounds, which hold on every file system that is used with success:
//!
//! 1. *A sector is not torn*, and holds what the page cache held at one moment: who sees its later
//!    contents sees earlier writes to it too.
//! 2. *Shapes are in order.* Changes of one file's size and emptied blocks survive as a prefix.
//! 3. *No data in freed space.* A sector written where a truncation or punch had emptied the file
//!    survives only if that did.
//! 4. *Attributes are in order*: changes of one file's owner, permissions, xattrs and times survive
//!    as a prefix, and a truncation to zero survives only with those before it: both are changes of
//!    the inode in one journal (ext4, xfs, f2fs) or one tree (btrfs).
//! 5. *Names are in order* as far as they touch: what binds a name, or names an inode, survives
//!    only if what bound or named it before did. A rename is whole or not at all.
//! 6. *An extended file has no foreign bytes*: what the size covers and no sector filled is zeros.
//!
//! `fsync` of a file makes its data, size, attributes and xattrs durable, `fdatasync` its data and
//! size, `fsync` of a directory its names, `syncfs` everything; a write through O_DSYNC or O_SYNC
//! is followed by the first or second. `fsync` of a *file* does not make its *name* durable.
//!
//! [`Order::Independent`] is that. It allows more than any one file system does, so that who
//! survives it survives ext4, xfs and btrfs, whose fsync commits single files out of order.
//!
//! [`Order::Journal`] adds what ext4 with `data=ordered` promises: names, attributes, xattrs,
//! truncations and emptied blocks survive as one prefix over all files (one journal); a size that
//! a write extended survives only with everything the journal held before it and with that
//! write's sectors (ordered data), but may come later than the journal's next entries (delayed
//! allocation); and `fsync` of a file commits the journal, names included, up to the file's last
//! entry. What ext4 may *not* do although this double does: keep a data sector in newly allocated
//! space without the allocation's transaction. What it may do and this double does *not*: punch
//! very large ranges in several transactions; lose attributes of access and modification time.
//!
//! Set-id bits that a write clears by itself are not followed: a state has the permissions that
//! were last set and survived. Times of modification are, where [`CrashFs::following_times`] asks
//! for it: they survive as attributes do, so that new bytes may be found with an old time. Other
//! times are those at which a state is made.
//!
//! # What a device may keep
//!
//! Everything written before a flush that returned, and of later writes and discards any sectors
//! (of 512 bytes or more), in any order between two flushes; a sector is not torn.

mod dependencies;
mod device;
mod effect;
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
