//! Tests on a lower file system on which one call that changes something fails, or that call and
//! all later ones.
//!
//! After the failure, all acknowledged data exists. Each byte that a failed call would have changed
//! has its old or its new value. The tests check this in the same mount, after the next mount, and
//! after one more write.

use std::sync::Arc;

use fslab_vfs::{Errno, FallocateMode, FileSystem, Ino, MemFs, OpenMode};
use fslab_vfs_testing::client::{Client, File};
use fslab_vfs_testing::crash::failing::{self, Allowed, Fails, Failure, Then};
use fslab_vfs_testing::crash::overtaking::with_bug;

use super::below::{CODECS, random, text};

/// An operation of the script.
enum Step {
    Write(u64, Vec<u8>),
    Truncate(u64),
    Zero(u64, u64),
    Sync,
    /// Closes the file and opens it again.
    Reopen,
}

/// Writes whole and partial chunks, appends in small pieces, shortens, extends, punches, empties
/// and rewrites the file, with syncs and closes in between.
fn script() -> Vec<Step> {
    let mut steps = vec![
        Step::Write(0, text(10_000)),
        Step::Sync,
        Step::Write(3000, random(1, 5000)),
        Step::Reopen,
        Step::Truncate(7000),
        Step::Zero(1000, 4500),
        Step::Truncate(20_000),
        Step::Write(16_384, random(2, 4096)),
        Step::Sync,
        Step::Reopen,
        Step::Truncate(0),
        Step::Write(0, text(6000)),
    ];
    steps.extend((0..8).map(|number| Step::Write(6000 + number * 50, random(number, 50))));
    steps.extend([Step::Sync, Step::Reopen]);
    steps.extend((0..6).map(|number| Step::Write(0, random(10 + number, 8192))));
    steps.extend([Step::Sync, Step::Write(100, text(10)), Step::Reopen]);
    steps
}

/// The allowed contents, and the problems found.
struct Story {
    allowed: Allowed,
    wrong: Vec<String>,
}

impl Story {
    /// Performs a step; returns whether it succeeded.
    fn step(&mut self, file: &File<'_>, step: &Step) -> bool {
        match step {
            Step::Write(offset, data) => {
                let is_done = file.write_all(*offset, data).is_ok();
                let (start, end) = (*offset as usize, *offset as usize + data.len());
                self.allowed.change(is_done, &|content| {
                    content.resize(content.len().max(end), 0);
                    content[start..end].copy_from_slice(data);
                });
                is_done
            }
            Step::Truncate(size) => {
                let is_done = file.truncate(*size).is_ok();
                self.allowed.change(is_done, &|content| content.resize(*size as usize, 0));
                is_done
            }
            Step::Zero(offset, length) => {
                let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
                let is_done = file.fallocate(*offset, *length, mode).is_ok();
                let (start, end) = (*offset as usize, (*offset + *length) as usize);
                self.allowed.change(is_done, &|content| {
                    let end = end.min(content.len());
                    content[start.min(end)..end].fill(0);
                });
                is_done
            }
            Step::Sync => file.fsync(false).is_ok(),
            Step::Reopen => true,
        }
    }

    fn check(&mut self, fs: &dyn FileSystem, when: &str) {
        let client = Client::new(fs);
        let found = client.lookup(Ino::ROOT, "file").and_then(|attr| client.contents(attr.ino));
        let checked = self.allowed.check(found);
        self.wrong.extend(checked.err().map(|what| format!("{when}: {what}")));
    }
}

/// Runs the script with a failure. Returns the kind of the failed call, if any, and the problems
/// found.
fn outcome(layer: &str, failure: Failure) -> (Option<&'static str>, Vec<String>) {
    let (memory, fails) = (Arc::new(MemFs::default()), Fails::default());
    let lower = with_bug(Arc::clone(&memory) as Arc<dyn FileSystem>, fails.clone());
    let mount = || crate::layer(layer).build(Arc::clone(&lower)).unwrap();
    let mut story = Story { allowed: Allowed::of(Vec::new()), wrong: Vec::new() };
    let fs = mount();
    {
        let client = Client::new(&*fs);
        let (attr, file) = client
            .create(Ino::ROOT, "file", 0o644, OpenMode::READ_WRITE | OpenMode::EXCLUSIVE)
            .unwrap();
        let mut file = Some(file);
        fails.begin(failure);
        for step in &script() {
            if matches!(step, Step::Reopen) {
                file.take().map(File::close);
                file = client.open(attr.ino, OpenMode::READ_WRITE).ok();
            }
            let Some(file) = &file else { continue };
            story.step(file, step);
            if failure.then == Then::Ends && fails.failed().is_some() {
                fails.kill();
                break;
            }
        }
        file.take().map(File::close);
    }
    if failure.then != Then::Ends {
        story.check(&*fs, "in the same mount");
        fs.shutdown().unwrap_or_default();
    }
    drop(fs);
    fails.heal();
    let fs = mount();
    story.check(&*fs, "in the next mount");
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let more = Step::Write(500, b"one more write".to_vec());
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    let is_written = story.step(&file, &more);
    let is_synced = file.fsync(false).is_ok();
    file.close().unwrap();
    fs.shutdown().unwrap();
    if !(is_written && is_synced) {
        story.wrong.push("the file can't be written any more".to_owned());
    }
    story.check(&*mount(), "after one more write");
    let failed = fails.failed();
    let told = |what| format!("{layer}, {failure:?}, {failed:?}: {what}");
    (failed, story.wrong.into_iter().map(told).collect())
}

/// Makes each modifying call of the script fail in turn. Returns the kind of each call and the
/// problems found.
fn sweep(layer: &str, errno: Option<Errno>, then: Then) -> Vec<(&'static str, Vec<String>)> {
    failing::sweep(|first| outcome(layer, Failure { errno, first, then }))
}

/// Layers of a codec: one that packs at close, and one that collects garbage while it writes.
fn layers(codec: &str) -> [String; 2] {
    let of = |pack: &str| format!("{codec}:chunk=4KiB,garbage=4KiB,threads=1,pack={pack}");
    [of("close"), of("off")]
}

#[track_caller]
fn nothing_is_wrong(errno: Errno, then: Then) {
    for layer in CODECS.iter().flat_map(|codec| layers(codec)) {
        let outcomes = sweep(&layer, Some(errno), then);
        assert!(outcomes.len() > 50, "{layer}: {}", outcomes.len());
        let wrong: Vec<_> = outcomes.into_iter().flat_map(|(_, wrong)| wrong).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

#[test]
fn a_lower_disk_that_is_full_at_any_call_loses_nothing() {
    nothing_is_wrong(Errno::NOSPC, Then::Heals);
}

#[test]
fn a_lower_disk_that_stays_full_from_any_call_on_loses_nothing() {
    nothing_is_wrong(Errno::NOSPC, Then::Stays);
}

#[test]
fn a_lower_disk_that_fails_at_any_call_loses_nothing() {
    nothing_is_wrong(Errno::IO, Then::Heals);
}

#[test]
fn a_lower_disk_that_fails_before_the_mount_is_killed_loses_nothing() {
    nothing_is_wrong(Errno::IO, Then::Ends);
}

/// The checks must detect a write that reports success without writing.
#[test]
fn checks_detect_writes_that_a_codec_layer_lost() {
    let swept = sweep(&layers("zstd")[1], None, Then::Ends);
    let writes = swept.iter().filter(|(call, _)| *call == "write");
    let (seen, unseen): (Vec<_>, Vec<_>) = writes.partition(|(_, wrong)| !wrong.is_empty());
    // The other writes are checkpoints, slots, and copies of older content. If they are lost, no
    // data is lost.
    let steps = script();
    let changes = steps.iter().filter(|step| !matches!(step, Step::Sync | Step::Reopen)).count();
    assert!(seen.len() >= changes, "{} of {changes}, {} not", seen.len(), unseen.len());
}
