//! Runs the conformance suite and pjdfstest on mounted tiers over ext4, XFS and Btrfs. Between the
//! operations, files are archived and released whenever possible.

use std::collections::{HashMap, hash_map};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use fslab_fuse::MountOptions;
use fslab_sys::make_file_system::Kind;
use fslab_tier::queue::Class;
use fslab_tier::{Archived, Tier, TierFs, own_request};
use fslab_vfs::{
    Attr, Entry, FileSystem, Handle, HostFs, HostOptions, Ino, Name, OpenMode, Opened, Request,
    Result, SetAttr,
};
use fslab_vfs_testing::conformance::{Allowed, run_all};
use fslab_vfs_testing::skip::skip;

use crate::support::{program, require_mounting, soon};
use crate::tier_here::opened;
use crate::tiering::Tiered;

/// Cases in which an offline file may differ from other files.
const ELSEWHERE: &[Allowed<'static>] = &[
    ("attributes/data_takes_space", "released data takes no space"),
    ("attributes/no_change_changes_nothing", "archiving changes this time too"),
    ("times/read_moves_no_change_times", "recalling changes the ctime"),
];

/// Cases of pjdfstest that fail on Btrfs itself.
const OF_BTRFS: &[&str] = &["rename::updates_link_parent"];

/// The moments at which files are archived and released.
#[derive(Clone, Copy, PartialEq)]
enum When {
    /// When the last use of a file ends, and before every second open.
    Used,
    /// Before a lookup or a similar request, once after each change of the file. The times that
    /// users see do not change.
    Looked,
}

/// A file system over a tier. It archives and releases files whenever possible, and recalls parts
/// of some files.
struct Restless {
    fs: TierFs,
    tier: Arc<Tier>,
    when: When,
    /// The number of open handles of each inode.
    handles: Mutex<HashMap<Ino, usize>>,
    closed: Condvar,
    turns: AtomicU64,
    released: AtomicU64,
}

/// How long a request waits for the kernel to report a close. The kernel reports it with a delay.
const PATIENCE: Duration = Duration::from_millis(5);

impl Restless {
    /// Archives and releases a file. Does nothing if the file is in use or is not a regular file.
    fn send_away(&self, ino: Ino) {
        let request = own_request();
        let Ok(Archived::Now { .. }) = self.tier.archive(ino, b"somewhere", &request) else {
            return;
        };
        let turn = self.turns.fetch_add(1, Ordering::SeqCst);
        let released = self.tier.release(ino, b"somewhere", turn % 2);
        if released.is_ok_and(|released| released.bytes > 0) {
            self.released.fetch_add(1, Ordering::SeqCst);
        }
        if turn.is_multiple_of(3) {
            let file = self.tier.enter(ino).file.clone();
            self.tier.recall(&file, turn % 4..turn % 4 + 1, &request, Class::Bulk).unwrap();
        }
    }

    fn before_a_look(&self, ino: Ino) {
        let is_open = |handles: &mut HashMap<Ino, usize>| handles.contains_key(&ino);
        drop(self.closed.wait_timeout_while(self.handles.lock().unwrap(), PATIENCE, is_open));
        if self.when == When::Looked {
            self.send_away(ino);
        }
    }

    fn closed(&self, ino: Ino) {
        if let hash_map::Entry::Occupied(mut handles) = self.handles.lock().unwrap().entry(ino) {
            *handles.get_mut() -= 1;
            if *handles.get() == 0 {
                handles.remove();
            }
        }
        self.closed.notify_all();
    }

    fn used(&self, ino: Ino, opened: Opened) -> Opened {
        *self.handles.lock().unwrap().entry(ino).or_default() += 1;
        opened
    }
}

impl FileSystem for Restless {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.fs)
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<Entry> {
        let found = self.fs.lookup(request, parent, name)?;
        self.before_a_look(found.attr.ino);
        let attr = self.fs.getattr(request, found.attr.ino, None)?;
        Ok(Entry { attr, ..found })
    }

    fn getattr(&self, request: &Request, ino: Ino, handle: Option<Handle>) -> Result<Attr> {
        if handle.is_none() {
            self.before_a_look(ino);
        }
        self.fs.getattr(request, ino, handle)
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let (entry, opened) = self.fs.create(request, parent, name, mode, flags)?;
        let opened = self.used(entry.attr.ino, opened);
        Ok((entry, opened))
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        let is_turn = self.turns.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        if self.when == When::Used && is_turn {
            self.send_away(ino);
        }
        Ok(self.used(ino, self.fs.open(request, ino, mode)?))
    }

    fn release(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        let closed = self.fs.release(request, ino, handle);
        if self.when == When::Used {
            self.send_away(ino);
        }
        self.closed(ino);
        closed
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let changed = self.fs.setattr(request, ino, handle, changes);
        if self.when == When::Used {
            self.send_away(ino);
        }
        changed
    }
}

/// Runs `work` in a mounted tier whose files are archived and released at the same time.
fn in_a_restless_tier(kind: Kind, when: When, work: impl FnOnce(&Tiered)) {
    require_mounting!();
    let tiered = Tiered::over(Some(kind));
    let tier = opened(&tiered);
    let restless = Arc::new(Restless {
        fs: TierFs::new(Arc::clone(&tier)),
        tier,
        when,
        handles: Mutex::default(),
        closed: Condvar::new(),
        turns: AtomicU64::new(0),
        released: AtomicU64::new(0),
    });
    // The kernel caches nothing, so that every request reaches the daemon.
    let (entry_timeout, attr_timeout) = (Duration::ZERO, Duration::ZERO);
    let options = MountOptions {
        set_id: true,
        devices: true,
        entry_timeout,
        attr_timeout,
        ..MountOptions::default()
    };
    let session = fslab_fuse::mount(restless.clone(), &tiered.path(""), &options).unwrap();
    work(&tiered);
    soon("the mount is not in use", || session.unmounter().unmount_if_unused().unwrap());
    session.wait().unwrap();
    let released = restless.released.load(Ordering::SeqCst);
    eprintln!("{kind:?}: {released} releases");
    assert!(released > 0, "nothing was released");
}

fn conforms(tiered: &Tiered) {
    let make = || {
        Box::new(HostFs::open(&tiered.path(""), &HostOptions::default()).unwrap())
            as Box<dyn FileSystem>
    };
    let report = run_all(&make, ELSEWHERE);
    eprintln!("{report}");
    assert!(report.is_success());
}

#[test]
fn tier_conforms_during_constant_releases_over_ext4() {
    in_a_restless_tier(Kind::Ext4, When::Used, conforms);
}

#[test]
fn tier_conforms_during_constant_releases_over_xfs() {
    in_a_restless_tier(Kind::Xfs, When::Used, conforms);
}

#[test]
fn tier_conforms_during_constant_releases_over_btrfs() {
    in_a_restless_tier(Kind::Btrfs, When::Used, conforms);
}

const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
rename_ctime = {}

[settings]
naptime = 0.01
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// Only failed cases are checked. The test that runs pjdfstest on all kinds of mounts checks the
/// skipped cases.
fn pjdfstest_passes(tiered: &Tiered, known: &[&str]) {
    let Some(pjdfstest) = program("pjdfstest") else {
        skip("pjdfstest on a tier", "it is not installed; `cargo xtask setup` installs it");
        return;
    };
    let configuration = tiered.beside("pjdfstest.toml");
    fs::write(&configuration, CONFIGURATION).unwrap();
    let mut command = Command::new(pjdfstest);
    command.arg("-c").arg(configuration).arg("-p").arg(tiered.path(""));
    let output = command.env("RUST_BACKTRACE", "0").output().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    let failed = report.lines().filter(|line| line.trim_end().ends_with(" FAILED"));
    let failed: Vec<_> =
        failed.filter(|line| !known.iter().any(|known| line.starts_with(known))).collect();
    assert!(failed.is_empty(), "{report}");
    let passed = report.lines().filter(|line| line.trim_end().ends_with(" ok")).count();
    assert!(passed > 300, "{passed} passed:\n{report}");
    eprintln!("pjdfstest: {passed} passed");
}

#[test]
fn tier_passes_pjdfstest_during_constant_releases_over_ext4() {
    in_a_restless_tier(Kind::Ext4, When::Looked, |tiered| pjdfstest_passes(tiered, &[]));
}

#[test]
fn tier_passes_pjdfstest_during_constant_releases_over_xfs() {
    in_a_restless_tier(Kind::Xfs, When::Looked, |tiered| pjdfstest_passes(tiered, &[]));
}

#[test]
fn tier_passes_pjdfstest_during_constant_releases_over_btrfs() {
    in_a_restless_tier(Kind::Btrfs, When::Looked, |tiered| pjdfstest_passes(tiered, OF_BTRFS));
}
