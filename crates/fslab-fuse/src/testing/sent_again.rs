//! Tests that a request takes effect exactly once if its daemon is killed before it replies, and
//! the next daemon serves the resent request. The result is compared with that of a daemon that is
//! not killed.
//!
//! The daemon is killed at each stage of each request. Each of these errors, put into the code on
//! purpose, made a test fail: a record that is completed after the reply was sent; a record that is
//! never completed; a request that is simply repeated; an append whose start is not recorded.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use fslab_vfs::{
    Capacity, Errno, FileSystem, Ino, MemFs, Name, OpenMode, Request, WriteOptions, XattrMode,
};
use zerocopy::{FromBytes, IntoBytes};

use super::subject::{ScriptedChannel, all_granted, populate};
use crate::decode::Incoming;
use crate::job::Route;
use crate::kept::{DaemonEnd, Kept, KeptState, Record, SENT_AGAIN, Stage};
use crate::options::MountOptions;
use crate::protocol::opcode::Opcode;
use crate::protocol::reply::OpenOut;
use crate::protocol::request::{
    CreateIn, InHeader, LinkIn, MkdirIn, MknodIn, OpenIn, Rename2In, RenameIn, SetxattrIn, WriteIn,
};
use crate::reply_buffer::ReplyBuffer;
use crate::server::Server;
use crate::transport::Transport;

/// The file `a`, and the bytes appended to it.
const FILE: u64 = 2;
const APPENDED: &[u8] = b"appended";

/// One daemon over a memory file system.
struct Daemon {
    server: Arc<Server>,
    script: Arc<ScriptedChannel>,
    transport: Arc<dyn Transport>,
    /// Number of open files and directories taken over from an earlier daemon.
    open_before: usize,
}

impl Daemon {
    fn new(memory: &Arc<MemFs>, state: &Arc<KeptState>, is_first: bool) -> Self {
        let options = MountOptions { keep: true, ..MountOptions::default() };
        let script = Arc::new(ScriptedChannel::default());
        let transport: Arc<dyn Transport> = Arc::<ScriptedChannel>::clone(&script);
        let request = Request::default();
        let mut open_before = 0;
        let kept = match is_first {
            true => Kept::new(Arc::clone(state)),
            false => {
                let reopen = |open: &crate::kept::Open| match open.flags {
                    Some(flags) => {
                        let mode = OpenMode::from_bits_retain(flags);
                        Ok(memory.open(&request, open.ino, mode)?.handle)
                    }
                    None => memory.opendir(&request, open.ino),
                };
                let (kept, found) = Kept::taken_over(Arc::clone(state), reopen);
                open_before = found.open.len();
                kept
            }
        };
        let file_system: Arc<dyn FileSystem> = Arc::<MemFs>::clone(memory);
        let granted = all_granted(&options);
        let connection = Arc::clone(&transport);
        let server = Server::new(file_system, options, granted, connection, None, Some(kept));
        Self { server: Arc::new(server), script, transport, open_before }
    }

    /// Answers a request as on a mount.
    fn answer(&self, request: &[u8]) -> Result<usize, Errno> {
        let incoming = Incoming::parse(request).unwrap();
        self.server.serve_alone(&self.transport, incoming, &mut ReplyBuffer::default());
        *self.script.replies.lock().last().unwrap()
    }

    /// Performs a request up to a stage, and then drops the daemon as if it were killed.
    fn die_over(self, request: &[u8], stage: Cut) {
        let incoming = Incoming::parse(request).unwrap();
        let opcode = Opcode::from_number(incoming.header.opcode).unwrap();
        let kept = self.server.kept.as_ref().unwrap();
        if stage == Cut::BeforeTheRecord {
            return;
        }
        let Some(record) = kept.begin(opcode, incoming.header.unique) else { return };
        if stage != Cut::Begun {
            self.perform(incoming, &record, stage == Cut::Completed);
        }
    }

    /// Performs a request unless its record forbids it, and completes the record if wanted.
    fn perform(&self, incoming: Incoming<'_>, record: &Record<'_>, completes: bool) {
        // If the request was already performed, its recorded reply is used; if it is given up, it
        // is refused. In neither case is it performed again.
        if !matches!(record.stage, Stage::New | Stage::Begun(_)) {
            return;
        }
        let opcode = Opcode::from_number(incoming.header.opcode).unwrap();
        let mut output = ReplyBuffer::default();
        let route = Route { later: None, record: Some(record), deferral: None };
        let done = self.server.respond(opcode, incoming, Default::default(), route, &mut output);
        if completes {
            let done = done.map(|_| output.payload()).map_err(|error| error.errno());
            record.complete(done);
        }
    }

    /// Performs a request that was resent. Returns how far earlier daemons had come with it, and
    /// whether it is idempotent.
    fn progress(&self, request: &[u8]) -> (&'static str, bool) {
        let incoming = Incoming::parse(request).unwrap();
        let header = incoming.header;
        let opcode = Opcode::from_number(header.opcode).unwrap();
        let record = self.server.kept.as_ref().unwrap().begin(opcode, header.unique).unwrap();
        self.perform(incoming, &record, true);
        (record.progress(), record.is_idempotent(opcode))
    }
}

/// The point at which a daemon is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    BeforeTheRecord,
    Begun,
    Done,
    Completed,
}

const CUTS: [Cut; 4] = [Cut::BeforeTheRecord, Cut::Begun, Cut::Done, Cut::Completed];

/// Makes a request about an inode.
fn request(opcode: Opcode, node: u64, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let header = InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        opcode: opcode as u32,
        unique: 100,
        nodeid: node,
        uid: 0,
        gid: 0,
        pid: 0,
        total_extlen: 0,
        padding: 0,
    };
    [header.as_bytes(), &body].concat()
}

/// Returns a request as the kernel would resend it.
fn again(request: &[u8]) -> Vec<u8> {
    let (mut header, body) = InHeader::read_from_prefix(request).unwrap();
    header.unique |= SENT_AGAIN;
    [header.as_bytes(), body].concat()
}

fn rename2(flags: u32, names: &[u8]) -> Vec<u8> {
    let rename = Rename2In { newdir: 1, flags, padding: 0 };
    request(Opcode::Rename2, 1, &[rename.as_bytes(), names])
}

fn create(flags: OpenMode, name: &[u8]) -> Vec<u8> {
    let create = CreateIn { flags: flags.bits(), mode: 0o100_640, umask: 0, open_flags: 0 };
    request(Opcode::Create, 1, &[create.as_bytes(), name])
}

fn write(fh: u64, flags: i32) -> Vec<u8> {
    let write = WriteIn {
        fh,
        offset: 5010,
        size: APPENDED.len() as u32,
        write_flags: 0,
        lock_owner: 0,
        flags: flags.cast_unsigned(),
        padding: 0,
    };
    request(Opcode::Write, FILE, &[write.as_bytes(), APPENDED])
}

/// All non-idempotent requests, successful and failing. `fh` is the handle of the file, open for
/// writing.
fn requests(fh: u64) -> Vec<Vec<u8>> {
    let mkdir = MkdirIn { mode: 0o755, umask: 0 };
    let mknod = MknodIn { mode: 0o100_600, rdev: 0, umask: 0, padding: 0 };
    let link = LinkIn { oldnodeid: FILE };
    let to_root = RenameIn { newdir: 1 };
    let xattr =
        SetxattrIn { size: 1, flags: XattrMode::CREATE.bits(), setxattr_flags: 0, padding: 0 };
    let open = OpenIn { flags: 2, open_flags: 0 };
    let append = rustix::fs::OFlags::APPEND.bits().cast_signed();
    vec![
        request(Opcode::Mkdir, 1, &[mkdir.as_bytes(), b"n\0"]),
        request(Opcode::Mkdir, 1, &[mkdir.as_bytes(), b"a\0"]),
        request(Opcode::Mknod, 1, &[mknod.as_bytes(), b"n\0"]),
        request(Opcode::Symlink, 1, &[b"n\0target\0"]),
        request(Opcode::Symlink, 1, &[b"d\0target\0"]),
        request(Opcode::Link, 1, &[link.as_bytes(), b"n\0"]),
        request(Opcode::Link, 1, &[link.as_bytes(), b"l\0"]),
        create(OpenMode::READ_WRITE | OpenMode::EXCLUSIVE, b"n\0"),
        create(OpenMode::READ_WRITE, b"n\0"),
        create(OpenMode::READ_WRITE | OpenMode::EXCLUSIVE, b"a\0"),
        request(Opcode::Unlink, 1, &[b"a\0"]),
        request(Opcode::Unlink, 1, &[b"d\0"]),
        request(Opcode::Rmdir, 1, &[b"d\0"]),
        request(Opcode::Rmdir, 1, &[b"a\0"]),
        request(Opcode::Rename, 1, &[to_root.as_bytes(), b"a\0b\0"]),
        request(Opcode::Rename, 1, &[to_root.as_bytes(), b"a\0l\0"]),
        request(Opcode::Rename, 1, &[to_root.as_bytes(), b"d\0a\0"]),
        rename2(1, b"a\0b\0"),
        rename2(1, b"a\0l\0"),
        rename2(2, b"a\0l\0"),
        rename2(2, b"a\0d\0"),
        rename2(2, b"a\0b\0"),
        write(fh, append),
        write(fh, 0),
        request(Opcode::Setxattr, FILE, &[xattr.as_bytes(), b"user.new\0v"]),
        request(Opcode::Setxattr, FILE, &[xattr.as_bytes(), b"user.there\0v"]),
        request(Opcode::Removexattr, FILE, &[b"user.there\0"]),
        request(Opcode::Open, FILE, &[open.as_bytes()]),
        request(Opcode::Opendir, 1, &[open.as_bytes()]),
    ]
}

/// A memory file system with a directory, a link, and a file `a` that begins with the bytes that
/// are appended later.
fn memory() -> Arc<MemFs> {
    let memory = Arc::new(MemFs::new(Capacity { bytes: 4 << 20, inodes: 32 }));
    populate(&memory);
    let request = Request::default();
    let opened = memory.open(&request, Ino(FILE), OpenMode::WRITE_ONLY).unwrap();
    let options = WriteOptions::default();
    memory.write(&request, Ino(FILE), opened.handle, 0, APPENDED, options).unwrap();
    memory.release(&request, Ino(FILE), opened.handle).unwrap();
    let name = OsStr::new("user.there");
    memory.setxattr(&request, Ino(FILE), name, b"value", XattrMode::empty()).unwrap();
    memory
}

/// The names in the root, each with its inode's attributes, bytes and extended attributes.
fn contents(memory: &MemFs) -> BTreeMap<OsString, String> {
    let request = Request::default();
    let handle = memory.opendir(&request, Ino::ROOT).unwrap();
    let mut names = Vec::new();
    let mut take = |entry: fslab_vfs::DirectoryEntry<'_>| {
        names.push(entry.name.to_owned());
        true
    };
    memory.readdir(&request, Ino::ROOT, handle, 0, &mut take).unwrap();
    let of_name = |name: OsString| {
        let attr = memory.lookup(&request, Ino::ROOT, Name::new(&name).ok()?).unwrap().attr;
        let mut bytes = vec![0; attr.size as usize];
        if let Ok(opened) = memory.open(&request, attr.ino, OpenMode::empty()) {
            memory.read(&request, attr.ino, opened.handle, 0, &mut bytes).unwrap();
        }
        let xattrs = memory.listxattr(&request, attr.ino).unwrap();
        let (kind, permissions, links) = (attr.kind, attr.permissions, attr.links);
        let pieces: Vec<_> = bytes.split(|byte| *byte == 0).filter(|p| !p.is_empty()).collect();
        let size = attr.size;
        Some((name, format!("{kind:?} {permissions:?} {links} {size} {pieces:?} {xattrs:?}")))
    };
    names.into_iter().filter_map(of_name).collect()
}

/// A memory file system, the state of a kept mount, its first daemon, and the handle of the open
/// file.
fn first() -> (Arc<MemFs>, Arc<KeptState>, Daemon, u64) {
    let (memory, state) = (memory(), Arc::new(KeptState::new(0).unwrap()));
    let daemon = Daemon::new(&memory, &state, true);
    // The file is open write-only, as by a logger, so the appended bytes can't be read through this
    // handle.
    let open = OpenIn { flags: 1, open_flags: 0 };
    let mut request = request(Opcode::Open, FILE, &[open.as_bytes()]);
    // Use a number that differs from the number of the tested requests.
    request[8..16].copy_from_slice(&7_u64.to_ne_bytes());
    daemon.answer(&request).unwrap();
    let fh = OpenOut::read_from_bytes(&daemon.script.payload.lock()).unwrap().fh;
    (memory, state, daemon, fh)
}

/// The result of a request served by a single daemon.
fn alone(number: usize) -> (Result<usize, Errno>, BTreeMap<OsString, String>) {
    let (memory, _, daemon, fh) = first();
    let answer = daemon.answer(&requests(fh)[number]);
    (answer, contents(&memory))
}

#[test]
fn request_cut_short_at_any_point_takes_effect_once() {
    for number in 0..requests(0).len() {
        let expected = alone(number);
        for cut in CUTS {
            let (memory, state, daemon, fh) = first();
            let request = &requests(fh)[number];
            daemon.die_over(request, cut);
            let next = Daemon::new(&memory, &state, false);
            let answer = next.answer(&again(request));
            let what = format!("request {number}, cut {cut:?}");
            assert_eq!((answer, contents(&memory)), expected, "{what}");
        }
    }
}

#[test]
fn request_that_crashes_two_daemons_takes_effect_at_most_once() {
    let before = contents(&memory());
    for number in 0..requests(0).len() {
        let (lived, after) = alone(number);
        for (cut, second) in CUTS.into_iter().flat_map(|cut| CUTS.map(|second| (cut, second))) {
            let (memory, state, daemon, fh) = first();
            let request = &requests(fh)[number];
            state.note_end(DaemonEnd::Crashed);
            daemon.die_over(request, cut);
            Daemon::new(&memory, &state, false).die_over(&again(request), second);
            let last = Daemon::new(&memory, &state, false);
            let answer = last.answer(&again(request));
            let (what, found) = (format!("{number}: {cut:?}, {second:?}"), contents(&memory));
            let is_known = cut == Cut::Completed || second == Cut::Completed;
            // A daemon that dies before it begins the request is not counted.
            let is_new = cut == Cut::BeforeTheRecord || second == Cut::BeforeTheRecord;
            if is_known || is_new {
                assert_eq!((answer, &found), (lived, &after), "{what}");
            } else {
                assert_eq!(answer, Err(Errno::IO), "{what}");
                assert!(found == before || found == after, "{what}: {found:?}");
            }
        }
    }
}

/// Upgrades are not counted, and three kills are too few to give up the request.
#[test]
fn request_in_flight_during_upgrades_or_three_kills_takes_effect_once() {
    for number in 0..requests(0).len() {
        let cuts = CUTS.into_iter().flat_map(|cut| CUTS.map(|second| (cut, second)));
        for ((cut, second), end) in
            cuts.flat_map(|cuts| [DaemonEnd::Replaced, DaemonEnd::Killed].map(|end| (cuts, end)))
        {
            let (memory, state, daemon, fh) = first();
            let request = &requests(fh)[number];
            daemon.die_over(request, cut);
            state.note_end(end);
            for _ in 0..2 {
                Daemon::new(&memory, &state, false).die_over(&again(request), second);
            }
            let answer = Daemon::new(&memory, &state, false).answer(&again(request));
            let what = format!("request {number}, {cut:?}, {second:?}, {end:?}");
            assert_eq!((answer, contents(&memory)), alone(number), "{what}");
        }
    }
}

#[test]
fn reply_is_recorded_before_it_is_sent() {
    for number in 0..requests(0).len() {
        let (_memory, state, daemon, fh) = first();
        *daemon.script.witnessed.lock() = Some(state);
        let answer = daemon.answer(&requests(fh)[number]);
        assert_eq!(answer, alone(number).0);
        assert_eq!(*daemon.script.written_down.lock(), [true], "request {number}");
    }
}

/// The log distinguishes requests whose effect the next daemon found from those that it performed
/// for the first time.
#[test]
fn progress_of_earlier_daemons_is_known_exactly() {
    for number in 0..requests(0).len() {
        let (succeeds, is_changed) = {
            let (memory, _, daemon, fh) = first();
            let (before, answer) = (contents(&memory), daemon.answer(&requests(fh)[number]));
            (answer.is_ok(), contents(&memory) != before)
        };
        for cut in CUTS {
            let (memory, state, daemon, fh) = first();
            let request = &requests(fh)[number];
            daemon.die_over(request, cut);
            let next = Daemon::new(&memory, &state, false);
            let (progress, is_idempotent) = next.progress(&again(request));
            let expected = match cut {
                // The time is recorded before a request is performed, and it is missing.
                Cut::BeforeTheRecord | Cut::Begun => "not begun",
                Cut::Done if is_changed && !is_idempotent => "performed",
                Cut::Done => "begun",
                Cut::Completed if succeeds => "reply recorded",
                Cut::Completed => "error recorded",
            };
            assert_eq!(progress, expected, "request {number}, cut {cut:?}");
            let is_plain_write = request == &write(fh, 0);
            let opens = [Opcode::Open, Opcode::Opendir].map(|opcode| opcode as u32);
            let is_open = opens.contains(&Incoming::parse(request).unwrap().header.opcode);
            assert_eq!(is_idempotent, is_plain_write || is_open, "request {number}, cut {cut:?}");
        }
    }
}

/// The daemon dies when a part of the append is written.
#[test]
fn resent_append_writes_only_the_missing_rest() {
    let (memory, state, daemon, fh) = first();
    let append = write(fh, rustix::fs::OFlags::APPEND.bits().cast_signed());
    let kept = daemon.server.kept.as_ref().unwrap();
    let record = kept.begin(Opcode::Write, 100).unwrap();
    let incoming = Incoming::parse(&append[..append.len()]).unwrap();
    let mut output = ReplyBuffer::default();
    let route = Route { later: None, record: Some(&record), deferral: None };
    daemon.server.respond(Opcode::Write, incoming, Default::default(), route, &mut output).unwrap();
    let size = 5010 + APPENDED.len() as u64;
    let request = Request::default();
    let shorter = fslab_vfs::SetAttr { size: Some(size - 3), ..Default::default() };
    memory.setattr(&request, Ino(FILE), None, &shorter).unwrap();
    let next = Daemon::new(&memory, &state, false);
    assert_eq!(next.answer(&again(&append)), Ok(8));
    assert_eq!(memory.getattr(&request, Ino(FILE), None).unwrap().size, size);
}

#[test]
fn only_files_of_answered_opens_are_open_in_the_next_daemon() {
    let (memory, state, daemon, fh) = first();
    let open = OpenIn { flags: 0, open_flags: 0 };
    daemon.die_over(&request(Opcode::Open, FILE, &[open.as_bytes()]), Cut::Done);
    let next = Daemon::new(&memory, &state, false);
    let handles = &next.server.kept.as_ref().unwrap().handles;
    assert!(handles.contains(fh) && next.open_before == 1);
    // A handle number with the same row but another tag is unknown.
    assert!(!handles.contains(fh ^ 1 << 40));
}
