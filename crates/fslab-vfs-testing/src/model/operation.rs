//! The operations of a random sequence.
//!
//! Files, directories and handles are chosen by a number, modulo the length of the list at the time
//! of the operation. So a shortened sequence is still valid.

use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::sample::select;

use fslab_vfs::{FallocateMode, OpenMode, RenameMode, XattrMode};

/// The number of an element in a list whose length is known only when the operation runs.
pub type Choice = u8;

/// A name and its directory.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The directory.
    pub directory: Choice,
    /// The name.
    pub name: &'static str,
}

/// A range of a file's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: usize,
}

/// The caller that creates something, and its umask.
#[derive(Clone, Copy, Debug)]
pub struct Creator {
    /// User id; 0 has all rights.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Mode bits to remove.
    pub umask: u32,
}

/// An operation on a file system.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are the operations' arguments")]
pub enum Operation {
    Lookup(Place),
    Forget { node: Choice },
    Create { place: Place, mode: u32, flags: OpenMode },
    Tmpfile { directory: Choice, flags: OpenMode },
    Mknod { place: Place, mode: u32, creator: Creator },
    Mkdir { place: Place, mode: u32, creator: Creator },
    Symlink { place: Place, target: &'static str },
    Unlink(Place),
    Rmdir(Place),
    Rename { from: Place, to: Place, mode: RenameMode },
    Link { node: Choice, place: Place },
    Open { file: Choice, flags: OpenMode },
    Close { handle: Choice },
    Read { handle: Choice, span: Span },
    Write { handle: Choice, span: Span, fill: u8, kill_set_id: bool },
    Truncate { file: Choice, size: u64, kill_set_id: bool },
    TruncateOpen { handle: Choice, size: u64 },
    Fallocate { handle: Choice, span: Span, mode: FallocateMode },
    Copy { source: Choice, target: Choice, span: Span, target_offset: u64 },
    Sync { handle: Choice },
    Chmod { node: Choice, mode: u32 },
    Chown { node: Choice, uid: Option<u32>, gid: Option<u32> },
    SetTimes { node: Choice, seconds: i64, nanoseconds: u32 },
    Stat { node: Choice },
    StatOpen { handle: Choice },
    Readlink { node: Choice },
    List { directory: Choice, room: usize },
    SetXattr { node: Choice, name: &'static str, value: Vec<u8>, mode: XattrMode },
    GetXattr { node: Choice, name: &'static str },
    ListXattr { node: Choice },
    RemoveXattr { node: Choice, name: &'static str },
}

const NAMES: &[&str] = &["a", "b", "c", "d"];
const TARGETS: &[&str] = &["a", "../b", "/nowhere"];
const FILE_MODES: &[u32] = &[0o644, 0o600, 0o777, 0o4755, 0o2755, 0o2640];
const NODE_MODES: &[u32] = &[0o100_644, 0o100_666, 0o102_775, 0o010_600, 0o140_755];
const DIRECTORY_MODES: &[u32] = &[0o755, 0o777, 0o700, 0o1777];
const MODES: &[u32] = &[0o000, 0o644, 0o755, 0o2777, 0o4755, 0o6755, 0o2745, 0o7777];
const EDGES: &[u64] = &[0, 1, 511, 4095, 4096, 4097, 8192, 16_384, 65_535, 65_536];

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn choice() -> impl Strategy<Value = Choice> + Clone {
    0..=u8::MAX
}

fn place() -> impl Strategy<Value = Place> + Clone {
    (choice(), select(NAMES)).prop_map(|(directory, name)| Place { directory, name })
}

fn offset() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![select(EDGES), 0..40_000_u64]
}

fn span() -> impl Strategy<Value = Span> + Clone {
    let length = prop_oneof![Just(0), 1..10_usize, 1..9000_usize, Just(4096)];
    (offset(), length).prop_map(|(offset, length)| Span { offset, length })
}

fn creator() -> impl Strategy<Value = Creator> + Clone {
    let who = select(vec![(0, 0), (0, 0), (1000, 1000), (1000, 77)]);
    (who, select(vec![0o022, 0, 0o077])).prop_map(|((uid, gid), umask)| Creator { uid, gid, umask })
}

fn open_flags() -> impl Strategy<Value = OpenMode> + Clone {
    select(vec![
        OpenMode::empty(),
        OpenMode::WRITE_ONLY,
        OpenMode::READ_WRITE,
        OpenMode::READ_WRITE,
        OpenMode::READ_WRITE | OpenMode::APPEND,
        OpenMode::READ_WRITE | OpenMode::TRUNCATE,
        OpenMode::WRITE_ONLY | OpenMode::APPEND,
    ])
}

/// Generates any operation.
pub(super) fn any() -> impl Strategy<Value = Operation> + Clone {
    prop_oneof![
        6 => naming(),
        3 => creating(),
        8 => data(),
        4 => attributes(),
        3 => xattrs(),
    ]
}

fn naming() -> impl Strategy<Value = Operation> + Clone {
    let rename_modes = select(vec![
        RenameMode::empty(),
        RenameMode::empty(),
        RenameMode::NO_REPLACE,
        RenameMode::EXCHANGE,
    ]);
    prop_oneof![
        2 => place().prop_map(Operation::Lookup),
        1 => choice().prop_map(|node| Operation::Forget { node }),
        2 => place().prop_map(Operation::Unlink),
        1 => place().prop_map(Operation::Rmdir),
        4 => (place(), place(), rename_modes)
            .prop_map(|(from, to, mode)| Operation::Rename { from, to, mode }),
        2 => (choice(), place()).prop_map(|(node, place)| Operation::Link { node, place }),
        2 => (choice(), 1..6_usize)
            .prop_map(|(directory, room)| Operation::List { directory, room }),
    ]
}

fn creating() -> impl Strategy<Value = Operation> + Clone {
    let create_flags =
        select(vec![OpenMode::empty(), OpenMode::EXCLUSIVE, OpenMode::APPEND, OpenMode::TRUNCATE]);
    prop_oneof![
        4 => (place(), select(FILE_MODES), create_flags)
            .prop_map(|(place, mode, flags)| Operation::Create { place, mode, flags }),
        1 => (choice(), select(vec![OpenMode::empty(), OpenMode::EXCLUSIVE]))
            .prop_map(|(directory, flags)| Operation::Tmpfile { directory, flags }),
        1 => (place(), select(NODE_MODES), creator())
            .prop_map(|(place, mode, creator)| Operation::Mknod { place, mode, creator }),
        3 => (place(), select(DIRECTORY_MODES), creator())
            .prop_map(|(place, mode, creator)| Operation::Mkdir { place, mode, creator }),
        1 => (place(), select(TARGETS))
            .prop_map(|(place, target)| Operation::Symlink { place, target }),
    ]
}

fn data() -> impl Strategy<Value = Operation> + Clone {
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    let zero = FallocateMode::ZERO_RANGE;
    let modes = vec![
        FallocateMode::empty(),
        FallocateMode::KEEP_SIZE,
        punch,
        punch,
        punch,
        zero,
        zero | FallocateMode::KEEP_SIZE,
    ];
    prop_oneof![
        3 => (choice(), open_flags()).prop_map(|(file, flags)| Operation::Open { file, flags }),
        1 => choice().prop_map(|handle| Operation::Close { handle }),
        4 => (choice(), span()).prop_map(|(handle, span)| Operation::Read { handle, span }),
        8 => (choice(), span(), 1..=255_u8, prop_oneof![3 => Just(false), 1 => Just(true)])
            .prop_map(|(handle, span, fill, kill_set_id)| {
                Operation::Write { handle, span, fill, kill_set_id }
            }),
        3 => (choice(), offset(), prop_oneof![Just(false), Just(true)])
            .prop_map(|(file, size, kill_set_id)| Operation::Truncate { file, size, kill_set_id }),
        2 => (choice(), offset())
            .prop_map(|(handle, size)| Operation::TruncateOpen { handle, size }),
        3 => (choice(), span(), select(modes))
            .prop_map(|(handle, span, mode)| Operation::Fallocate { handle, span, mode }),
        3 => (choice(), choice(), span(), offset()).prop_map(
            |(source, target, span, target_offset)| {
                Operation::Copy { source, target, span, target_offset }
            }
        ),
        1 => choice().prop_map(|handle| Operation::Sync { handle }),
        1 => choice().prop_map(|handle| Operation::StatOpen { handle }),
    ]
}

fn attributes() -> impl Strategy<Value = Operation> + Clone {
    let id = || select(vec![None, Some(0), Some(77), Some(1000)]);
    prop_oneof![
        3 => (choice(), select(MODES)).prop_map(|(node, mode)| Operation::Chmod { node, mode }),
        2 => (choice(), id(), id())
            .prop_map(|(node, uid, gid)| Operation::Chown { node, uid, gid }),
        1 => (choice(), -1000..4_000_000_000_i64, 0..1_000_000_000_u32).prop_map(
            |(node, seconds, nanoseconds)| Operation::SetTimes { node, seconds, nanoseconds }
        ),
        2 => choice().prop_map(|node| Operation::Stat { node }),
        1 => choice().prop_map(|node| Operation::Readlink { node }),
    ]
}

fn xattrs() -> impl Strategy<Value = Operation> + Clone {
    let name = || select(vec!["user.a", "user.a", "user.b", "trusted.a", ACCESS, DEFAULT]);
    let plain_name = select(vec!["user.a", "user.a", "user.b", "trusted.a"]);
    let value = select(vec![b"".to_vec(), b"1".to_vec(), b"a longer value".to_vec()]);
    let mode =
        select(vec![XattrMode::empty(), XattrMode::empty(), XattrMode::CREATE, XattrMode::REPLACE]);
    let plain = (choice(), plain_name, value, mode)
        .prop_map(|(node, name, value, mode)| Operation::SetXattr { node, name, value, mode });
    let list = (choice(), select(vec![ACCESS, DEFAULT]), select(acls())).prop_map(
        |(node, name, value)| Operation::SetXattr { node, name, value, mode: XattrMode::empty() },
    );
    prop_oneof![
        4 => plain,
        2 => list,
        2 => (choice(), name()).prop_map(|(node, name)| Operation::GetXattr { node, name }),
        1 => choice().prop_map(|node| Operation::ListXattr { node }),
        2 => (choice(), name()).prop_map(|(node, name)| Operation::RemoveXattr { node, name }),
    ]
}

/// ACLs in the kernel's format: one with a named user, one without, and an invalid one (a named
/// user without the required mask).
fn acls() -> Vec<Vec<u8>> {
    const NO_ID: u32 = u32::MAX;
    let lists: [&[(u16, u16, u32)]; 3] = [
        &[(1, 7, NO_ID), (2, 6, 1000), (4, 5, NO_ID), (16, 3, NO_ID), (32, 4, NO_ID)],
        &[(1, 6, NO_ID), (4, 6, NO_ID), (32, 0, NO_ID)],
        &[(1, 7, NO_ID), (2, 6, 1000), (4, 5, NO_ID), (32, 4, NO_ID)],
    ];
    lists.iter().map(|entries| acl_bytes(entries)).collect()
}

fn acl_bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}
