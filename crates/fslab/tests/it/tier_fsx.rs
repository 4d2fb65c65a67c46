//! Runs fsx on a mounted tier. Between and during the operations of fsx, its file is archived,
//! released and recalled.
//!
//! `FSLAB_TIER_FSX` sets the number of operations over each of ext4, XFS and Btrfs. `FSLAB_SEED`
//! sets the seed.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use fslab_fuse::MountOptions;
use fslab_sys::make_file_system::Kind;
use fslab_tier::command::{Command as Asked, Event, execute};
use fslab_tier::{Tier, TierFs, own_request};
use fslab_vfs::{
    Entry, FallocateMode, FileSystem, Handle, Ino, Name, OpenMode, Opened, Request, Result,
};
use fslab_vfs_testing::environment::{number, seed};
use fslab_vfs_testing::skip::skip;

use crate::support::{program, require_mounting, soon};
use crate::tier_here::opened;
use crate::tiering::Tiered;

/// Default number of operations. They take a few seconds.
const OPERATIONS: u64 = 1500;

/// Default number of operations on file systems that punch holes and map files more slowly.
const OPERATIONS_ELSEWHERE: u64 = 500;

/// fsx 0.3.2 never unmaps a mapping that it reads. A mapped file is in use and is never released,
/// so fsx may map the file only for writing.
const CONFIGURATION: &str = "\
flen = 4194304

[opsize]
min = 1
max = 200000

[weights]
close_open = 3.0
mapread = 0.0
truncate = 1.0
fsync = 0.2
fdatasync = 0.2
punch_hole = 1.0
posix_fallocate = 1.0
copy_file_range = 1.0
";

const MIB: u64 = 1 << 20;
const NAME: &str = "file";

#[test]
fn fsx_passes_while_its_file_is_released_and_recalled_over_ext4() {
    require_mounting!();
    exercise(Kind::Ext4, number("FSLAB_TIER_FSX").unwrap_or(OPERATIONS));
}

#[test]
fn fsx_passes_while_its_file_is_released_and_recalled_over_xfs_and_btrfs() {
    require_mounting!();
    let operations = number("FSLAB_TIER_FSX").unwrap_or(OPERATIONS_ELSEWHERE);
    exercise(Kind::Xfs, operations);
    exercise(Kind::Btrfs, operations);
}

fn exercise(kind: Kind, operations: u64) {
    let Some(fsx) = program("fsx") else {
        skip("fsx on a tier", "fsx is not installed; `cargo xtask setup` installs it");
        return;
    };
    let (tiered, seed) = (Tiered::over(Some(kind)), seed());
    let (tier, meddler, turns) = meddled_with(&tiered, seed);
    let session = fslab_fuse::mount(meddler.clone(), &tiered.path(""), &MountOptions::default());
    let session = session.unwrap();
    let configuration = tiered.beside("fsx.toml");
    fs::write(&configuration, CONFIGURATION).unwrap();
    let mut command = Command::new(fsx);
    command.arg("-f").arg(&configuration).args(["-N", &operations.to_string()]);
    command.args(["-S", &(seed % (1 << 31)).to_string(), "-P"]).arg(tiered.beside(""));
    let (output, moved) = std::thread::scope(|scope| {
        let mover = scope.spawn(|| move_when_told(&tier, seed, turns));
        let output = command.arg(tiered.path(NAME)).env("RUST_BACKTRACE", "0").output();
        meddler.end_turns();
        (output, mover.join().unwrap())
    });
    soon("the mount is not in use", || session.unmounter().unmount_if_unused().unwrap());
    session.wait().unwrap();
    let output = output.unwrap();
    let (said, erred) = (last_lines(&output.stdout), last_lines(&output.stderr));
    let counts: Vec<_> = tier.counts().iter().map(|(name, _, value)| (*name, *value)).collect();
    assert!(output.status.success(), "{kind:?}, seed {seed}:\n{said}\n{erred}\n{counts:?}");
    let meddled = meddler.told();
    eprintln!("{kind:?}: {operations} operations; between them {meddled}; during them {moved}");
    let released = meddler.released.load(Ordering::SeqCst);
    let recalled = counts.iter().find(|(name, _)| *name == "tier_recalled_bytes").unwrap().1;
    assert!(
        released > 0 && recalled > 0,
        "nothing was released, or nothing was recalled: {counts:?}"
    );
}

fn last_lines(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// Returns the engine of a tier, a file system that also archives and recalls the file, and a
/// receiver. At each message from the receiver, another thread should archive or recall the file
/// too.
fn meddled_with(tiered: &Tiered, seed: u64) -> (Arc<Tier>, Arc<Meddler>, Receiver<()>) {
    let tier = opened(tiered);
    let (sender, turns) = sync_channel(1);
    let meddler = Meddler {
        fs: TierFs::new(Arc::clone(&tier)),
        tier: Arc::clone(&tier),
        draws: Draws(AtomicU64::new(seed)),
        handles: Mutex::new(0),
        closed: Condvar::new(),
        turns: Mutex::new(Some(sender)),
        released: AtomicU64::new(0),
        refused: AtomicU64::new(0),
    };
    (tier, Arc::new(meddler), turns)
}

/// Pseudo-random numbers from a seed, for any thread.
struct Draws(AtomicU64);

impl Draws {
    fn below(&self, bound: u64) -> u64 {
        let step = |state: u64| {
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
        };
        let before =
            self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |state| Some(step(state)));
        (before.unwrap_or(0) >> 33) % bound
    }
}

/// A file system over a tier. At each open, and before some operations on the open file, it also
/// archives, releases or recalls the file of fsx.
struct Meddler {
    fs: TierFs,
    tier: Arc<Tier>,
    draws: Draws,
    /// Number of open handles. fsx has its file open only once at a time, but the kernel reports
    /// closes with a delay.
    handles: Mutex<usize>,
    closed: Condvar,
    /// Signals another thread that it should archive, release or recall the file during an
    /// operation.
    turns: Mutex<Option<SyncSender<()>>>,
    released: AtomicU64,
    refused: AtomicU64,
}

/// Time limit for the kernel to report a close, which it does some time after close(2) has
/// returned.
const PATIENCE: Duration = Duration::from_secs(10);

impl Meddler {
    fn wait_until_closed(&self) {
        let handles = self.handles.lock().unwrap();
        let is_open = |handles: &mut usize| *handles > 0;
        let waited = self.closed.wait_timeout_while(handles, PATIENCE, is_open).unwrap();
        assert!(!waited.1.timed_out(), "fsx opens its file twice");
    }

    fn give_turn(&self) {
        if self.draws.below(8) == 0
            && let Some(turns) = &*self.turns.lock().unwrap()
        {
            // If the previous turn is still running, this turn is skipped.
            turns.try_send(()).ok();
        }
    }

    fn end_turns(&self) {
        *self.turns.lock().unwrap() = None;
    }

    fn told(&self) -> String {
        let value = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        format!("{} releases done and {} refused", value(&self.released), value(&self.refused))
    }

    /// At random, archives the file, releases it, or recalls a part of it.
    fn meddle(&self, ino: Ino) {
        let draw = self.draws.below(8);
        if draw < 6 {
            // It is correct that this fails while another program is about to write.
            self.tier.archive(ino, NAME.as_bytes(), &own_request()).ok();
        }
        if draw < 5 {
            let kept = self.draws.below(3);
            match self.tier.release(ino, NAME.as_bytes(), kept) {
                Ok(released) => {
                    self.released.fetch_add((released.bytes > 0).into(), Ordering::SeqCst)
                }
                Err(_) => self.refused.fetch_add(1, Ordering::SeqCst),
            };
        }
        if draw % 2 == 1 {
            self.recall_some(ino);
        }
    }

    fn recall_some(&self, ino: Ino) {
        let (first, count) = (self.draws.below(4), self.draws.below(2) + 1);
        let file = self.tier.enter(ino).file.clone();
        let class = fslab_tier::queue::Class::Bulk;
        self.tier.recall(&file, first..first + count, &own_request(), class).unwrap();
    }

    fn before_operation(&self, ino: Ino) {
        self.give_turn();
        if self.draws.below(16) == 0 {
            self.recall_some(ino);
        }
    }
}

impl FileSystem for Meddler {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.fs)
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        *self.handles.lock().unwrap() += 1;
        self.fs.create(request, parent, name, mode, flags)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        self.wait_until_closed();
        self.meddle(ino);
        self.give_turn();
        *self.handles.lock().unwrap() += 1;
        self.fs.open(request, ino, mode)
    }

    fn release(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        let closed = self.fs.release(request, ino, handle);
        *self.handles.lock().unwrap() -= 1;
        self.closed.notify_all();
        closed
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        self.before_operation(ino);
        self.fs.read(request, ino, handle, offset, buffer)
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        self.before_operation(ino);
        self.fs.fallocate(request, ino, handle, offset, length, mode)
    }
}

/// At each turn, archives, releases or recalls the file by a user command. Returns a summary.
fn move_when_told(tier: &Arc<Tier>, seed: u64, turns: Receiver<()>) -> String {
    let draws = Draws(AtomicU64::new(!seed));
    let (mut done, mut refused) = (0_u64, 0_u64);
    for () in turns {
        let paths = vec![NAME.as_bytes().to_vec()];
        let asked = match draws.below(4) {
            0 => Asked::Archive { paths, rate: 0, bundled: None },
            1 => Asked::Release { paths, keep_bytes: 0 },
            2 => Asked::Recall { paths, range: Some((draws.below(4) * MIB, MIB)), rate: 0 },
            _ => Asked::Recall { paths, range: None, rate: 0 },
        };
        let mut tell = |event| {
            match event {
                Event::Done { .. } => done += 1,
                Event::Problem { .. } => refused += 1,
                _ => {}
            }
            true
        };
        execute(tier, &asked, &own_request(), &mut tell).unwrap();
    }
    format!("{done} moves done and {refused} refused")
}
