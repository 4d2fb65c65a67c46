//! Tests kept mounts (`-o keep`): if the daemon is killed, programs see a pause but no error.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::AddAssign;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fslab_sys::make_file_system::Kind;
use fslab_sys::mounts::Mount;
use fslab_vfs_testing::environment::{number, seed};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, is_mounted, require_mounting, run, soon, umount_unused};
use crate::tiering::{Tiered, noise};

/// Number of kills of a daemon under load; `FSLAB_KILLS` replaces it.
const KILLS: u64 = 12;

/// Maximum number of kills on one mount. It is below the number at which a mount is given up.
const KILLS_PER_MOUNT: u64 = 200;

/// The name that these tests use for a stack without layers over an ext2 image.
pub const EXT2: &str = "ext2";

/// Stacks whose daemons are killed, with mount options. On a kept mount over a codec, the kernel
/// buffers writes unless `nowriteback` is given.
const STACKS: [(&str, &str); 7] = [
    ("null", ""),
    ("gzip:chunk=4KiB", ""),
    ("null:passthrough=off", ""),
    ("zstd", "nowriteback,"),
    ("null", "writeback,"),
    ("lz4", ""),
    (EXT2, ""),
];

/// Returns the supervisor of a kept mount, and its current daemon if it has one.
pub fn processes(place: &Place) -> (Pid, Option<Pid>) {
    let to_pid = |pid: u32| Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let all = crate::support::daemons_naming(&place.point);
    let parent_of = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let behind_the_name = stat.rsplit(") ").next().unwrap_or_default().to_owned();
        behind_the_name.split(' ').nth(1).and_then(|parent| parent.parse::<u32>().ok())
    };
    let daemon = all.iter().copied().find(|pid| parent_of(*pid).is_some_and(|p| all.contains(&p)));
    let supervisor = all.into_iter().find(|pid| Some(*pid) != daemon).unwrap();
    (to_pid(supervisor), daemon.map(to_pid))
}

/// Kills the daemon, and waits until the next one answers.
pub fn kill_daemon(place: &Place) {
    let mut daemon = None;
    soon("there is a daemon", || {
        daemon = processes(place).1;
        daemon.is_some()
    });
    kill_process(daemon.unwrap(), Signal::KILL).unwrap();
    rustix::fs::statvfs(&place.point).unwrap();
}

fn mount_kept(place: &Place, (layer, options): (&str, &str)) {
    let options = format!("{options}keep=256");
    let arguments = [&["-o", &options], &arguments_for(layer)[..]].concat();
    let mut command = place.mount_command(&arguments);
    // The daemons log which requests the kernel sent again.
    let (code, message) = crate::support::ended(command.env("FSLAB_LOG", "info"));
    assert_eq!(code, 0, "{message}");
}

/// Returns the arguments that select a layer; none for [`EXT2`].
pub fn arguments_for(layer: &str) -> Vec<&str> {
    if layer == EXT2 { Vec::new() } else { vec!["-l", layer] }
}

/// Makes a place for a stack. For [`EXT2`], its lower file system is a new image.
pub fn place_for((layer, _): (&str, &str)) -> Place {
    let mut place = Place::on_disk();
    if layer == EXT2 {
        let image = crate::ext2::image(&place, "256MiB");
        place.lower = format!("ext2:{}", image.display()).into();
    }
    place
}

/// Unmounts the place. If the lower file system is an image, checks it.
pub fn umount_whole(place: &Place) {
    assert_eq!(umount_unused(&place.point).0, 0);
    if let Some(image) = place.lower.to_str().unwrap().strip_prefix("ext2:") {
        // The image's lock is released when both processes have exited.
        soon("daemon and supervisor have exited", || {
            crate::support::daemons_naming(&place.point).is_empty()
        });
        let (code, said) = run(&["ext2", "check", image]);
        assert_eq!(code, 0, "{said}");
    }
}

#[test]
fn programs_continue_after_a_daemon_is_killed() {
    require_mounting!();
    for stack in STACKS {
        let place = place_for(stack);
        mount_kept(&place, stack);
        let layer = stack.0;
        let path = |name: &str| place.point.join(name);
        fs::write(path("read"), b"bytes to be read").unwrap();
        let mut read = File::open(path("read")).unwrap();
        let mut append = OpenOptions::new();
        let mut append = append.append(true).create_new(true).open(path("append")).unwrap();
        append.write_all(b"first ").unwrap();
        let mut both = OpenOptions::new();
        both.read(true).write(true);
        let unlinked = both.create_new(true).open(path("unlinked")).unwrap();
        unlinked.write_all_at(b"nameless", 0).unwrap();
        fs::remove_file(path("unlinked")).unwrap();
        let without_a_name = rustix::fs::OFlags::TMPFILE.bits().cast_signed();
        both.create_new(false).custom_flags(without_a_name);
        let unnamed = both.open(&place.point).unwrap();
        unnamed.write_all_at(b"unnamed", 0).unwrap();
        fs::create_dir(path("d")).unwrap();
        (0..500).for_each(|n| drop(File::create(path("d").join(n.to_string())).unwrap()));
        let mut listing = fs::read_dir(path("d")).unwrap();
        let first = listing.by_ref().take(100).count();
        let before = fs::metadata(path("read")).unwrap();
        for _ in 0..3 {
            kill_daemon(&place);
            append.write_all(b"more ").unwrap();
        }
        let mut bytes = String::new();
        read.read_to_string(&mut bytes).unwrap();
        assert_eq!(bytes, "bytes to be read", "{layer}");
        assert_eq!(fs::read(path("append")).unwrap(), b"first more more more ", "{layer}");
        let others: Vec<_> = listing.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(first + others.len(), 500, "{layer}");
        let mut found = [0; 8];
        unlinked.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"nameless", "{layer}");
        unnamed.read_exact_at(&mut found[..7], 0).unwrap();
        assert_eq!(&found[..7], b"unnamed", "{layer}");
        let after = fs::metadata(path("read")).unwrap();
        assert_eq!((before.ino(), before.size()), (after.ino(), after.size()), "{layer}");
        drop((read, append, unlinked, unnamed));
        // The last daemon may not have the socket for its result yet, so the message is ignored.
        assert_eq!(umount_unused(&place.point).0, 0);
        soon("daemon and supervisor have exited", || {
            crate::support::daemons_naming(&place.point).is_empty()
        });
        // The lock of the tree was released, so the next mount does not wait for it.
        mount_kept(&place, stack);
        assert_eq!(fs::read(path("append")).unwrap(), b"first more more more ", "{layer}");
        place.umount();
    }
}

/// Work of several kinds continues while daemons are killed. No program sees an error. No
/// acknowledged operation is lost or performed twice.
#[test]
fn work_continues_while_daemons_are_killed() {
    require_mounting!();
    let kills = number("FSLAB_KILLS").unwrap_or(KILLS).div_ceil(STACKS.len() as u64);
    let mut all = Resent::default();
    for (stack, round) in STACKS.into_iter().zip(0..) {
        let mut resent = Resent::default();
        for first in (0..kills).step_by(KILLS_PER_MOUNT as usize) {
            let numbers = first..kills.min(first + KILLS_PER_MOUNT);
            resent += work_while_killed(stack, numbers.map(|kill| round * 1000 + kill));
        }
        eprintln!("{stack:?}: {resent:?}");
        all += resent;
    }
    assert!(all.kills_in_flight > 0, "no daemon was killed during a request");
}

/// Kills a daemon for each number, which selects the moment.
fn work_while_killed(stack: (&str, &str), numbers: impl Iterator<Item = u64>) -> Resent {
    let place = place_for(stack);
    let log = place.point.with_file_name("log");
    let options = format!("{}log={},", stack.1, log.display());
    mount_kept(&place, (stack.0, &options));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers = [
            scope.spawn(|| append_lines(&place.point, &is_over)),
            scope.spawn(|| change_names(&place.point, &is_over)),
            scope.spawn(|| write_and_read(&place.point, &is_over)),
        ];
        for number in numbers {
            let random = seed().wrapping_add(number).wrapping_mul(2_654_435_761);
            std::thread::sleep(Duration::from_micros(500 + random % 20_000));
            kill_daemon(&place);
        }
        is_over.store(true, Ordering::Relaxed);
        let done = workers.map(|worker| worker.join().unwrap());
        assert!(done.iter().all(|count| *count > 0), "{stack:?}: {done:?}");
    });
    umount_whole(&place);
    Resent::of_log(&log)
}

/// Numbers of kills after which the kernel resent requests, as logged by the next daemons. A kill
/// may be counted in several of them.
#[derive(Debug, Default)]
struct Resent {
    /// Kills while any request was in flight.
    kills_in_flight: u64,
    /// Kills during requests that are not idempotent, begun and without an effect.
    kills_begun: u64,
    /// Kills after such a request had taken effect, and before its reply was recorded.
    kills_performed: u64,
    /// Kills after the reply to such a request was recorded, and before it was sent.
    kills_recorded: u64,
    /// Kills after such a request had taken effect: the latter two.
    kills_done: u64,
}

impl Resent {
    /// Counts kills in the log of a mount.
    fn of_log(log: &Path) -> Self {
        let text = fs::read_to_string(log).unwrap();
        let mut resent = Self::default();
        // Each daemon except the first logs this before it serves a request.
        for daemon in text.split("asking the kernel to resend unanswered requests").skip(1) {
            let lines = || daemon.lines().filter(|line| line.contains("the kernel resent"));
            let has = |progress: &str| {
                let part = format!("idempotent=false progress=\"{progress}\"");
                lines().any(|line| line.contains(&part))
            };
            let (is_performed, is_recorded) = (has("performed"), has("reply recorded"));
            resent.kills_in_flight += u64::from(lines().next().is_some());
            resent.kills_begun += u64::from(has("begun"));
            resent.kills_performed += u64::from(is_performed);
            resent.kills_recorded += u64::from(is_recorded);
            resent.kills_done += u64::from(is_performed || is_recorded);
        }
        resent
    }
}

impl AddAssign for Resent {
    fn add_assign(&mut self, other: Self) {
        self.kills_in_flight += other.kills_in_flight;
        self.kills_begun += other.kills_begun;
        self.kills_performed += other.kills_performed;
        self.kills_recorded += other.kills_recorded;
        self.kills_done += other.kills_done;
    }
}

/// Daemons are killed while they take over. They were not performing the requests that wait for
/// them, so no request may fail.
#[test]
fn work_continues_while_daemons_are_killed_during_takeovers() {
    require_mounting!();
    for stack in [("null:passthrough=off", ""), ("zstd", ""), (EXT2, "")] {
        let place = place_for(stack);
        let log = place.point.with_file_name("log");
        mount_kept(&place, (stack.0, &format!("{}log={},", stack.1, log.display())));
        work_during_takeovers(&place);
        umount_whole(&place);
        eprintln!("{stack:?}: {:?}", Resent::of_log(&log));
    }
}

#[test]
fn tier_keeps_working_while_daemons_are_killed_during_takeovers() {
    require_mounting!();
    let tiered = Tiered::over(Some(Kind::Ext4));
    let log = mount_tier(&tiered);
    work_during_takeovers(tiered.place());
    assert_eq!(umount_unused(&tiered.place().point).0, 0);
    eprintln!("tier: {:?}", Resent::of_log(&log));
}

/// Mounts a tier so that it outlives its daemons, and returns its log.
fn mount_tier(tiered: &Tiered) -> PathBuf {
    let log = tiered.place().point.with_file_name("log");
    mount_kept(tiered.place(), ("tier", &format!("log={},", log.display())));
    log
}

fn work_during_takeovers(place: &Place) {
    let kills = number("FSLAB_KILLS").unwrap_or(KILLS);
    let is_over = AtomicBool::new(false);
    let done = [const { AtomicU64::new(0) }; 3];
    std::thread::scope(|scope| {
        let start = |(number, done)| {
            let (directory, is_over) = (place.point.join(format!("{number}")), &is_over);
            scope.spawn(move || make_and_remove(&directory, done, is_over))
        };
        let workers: Vec<_> = done.iter().enumerate().map(start).collect();
        for burst in 0..kills.div_ceil(6) {
            let random = seed().wrapping_add(burst).wrapping_mul(2_654_435_761);
            kill_three_in_a_row(place, Duration::from_micros(random % 20_000));
            let before = done.each_ref().map(|done| done.load(Ordering::Relaxed));
            let go_on = |(now, old): (&AtomicU64, u64)| now.load(Ordering::Relaxed) > old + 1;
            soon("each program has continued or failed", || {
                done.iter().zip(before).all(go_on) || workers.iter().any(|one| one.is_finished())
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Kills the daemon and the two daemons after it. Each of the later daemons has at most `pause` to
/// take over.
fn kill_three_in_a_row(place: &Place, pause: Duration) {
    let mut killed = None;
    for _ in 0..3 {
        let mut daemon = killed;
        soon("there is another daemon", || {
            daemon = processes(place).1;
            daemon.is_some() && daemon != killed
        });
        kill_process(daemon.unwrap(), Signal::KILL).unwrap();
        killed = daemon;
        std::thread::sleep(pause);
    }
}

/// Makes, renames and removes files until `is_over`. `done` counts the files.
fn make_and_remove(directory: &Path, done: &AtomicU64, is_over: &AtomicBool) {
    fs::create_dir(directory).unwrap();
    let (one, other) = (directory.join("one"), directory.join("other"));
    while !is_over.load(Ordering::Relaxed) {
        let mut file = File::create_new(&one).unwrap();
        file.write_all(b"bytes").unwrap();
        fs::rename(&one, &other).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"bytes");
        fs::remove_file(&other).unwrap();
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Appends lines to a file until `is_over`. Then checks that the file contains each line once.
pub fn append_lines(point: &Path, is_over: &AtomicBool) -> u64 {
    let path = point.join("log");
    let mut log = OpenOptions::new().append(true).create_new(true).open(&path).unwrap();
    let mut expected = String::new();
    let mut count = 0;
    while count == 0 || !is_over.load(Ordering::Relaxed) {
        let line = format!("line {count}\n");
        assert_eq!(log.write(line.as_bytes()).unwrap(), line.len());
        expected += &line;
        count += 1;
        if count % 100 == 0 {
            log.sync_data().unwrap();
        }
    }
    assert!(fs::read_to_string(path).unwrap() == expected, "lines are missing or occur twice");
    count
}

/// Creates, links, renames, exchanges and removes files. Every call must succeed.
pub fn change_names(point: &Path, is_over: &AtomicBool) -> u64 {
    let directory = point.join("names");
    fs::create_dir(&directory).unwrap();
    let path = |name: &str| directory.join(name);
    let mut count = 0;
    while count == 0 || !is_over.load(Ordering::Relaxed) {
        drop(OpenOptions::new().write(true).create_new(true).open(path("a")).unwrap());
        fs::create_dir(path("d")).unwrap();
        std::os::unix::fs::symlink("target", path("l")).unwrap();
        fs::hard_link(path("a"), path("b")).unwrap();
        exchange(&path("a"), &path("d"));
        assert!(fs::metadata(path("a")).unwrap().is_dir());
        fs::rename(path("d"), path("e")).unwrap();
        fs::rename(path("b"), path("l")).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
        fs::remove_dir(path("a")).unwrap();
        fs::remove_file(path("e")).unwrap();
        fs::remove_file(path("l")).unwrap();
        count += 1;
    }
    count
}

fn exchange(one: &Path, other: &Path) {
    let (here, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
    rustix::fs::renameat_with(here, one, here, other, flags).unwrap();
}

/// Writes to a file at random offsets, and compares it with a copy in memory.
pub fn write_and_read(point: &Path, is_over: &AtomicBool) -> u64 {
    let path = point.join("data");
    let options = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let mut file = options.unwrap();
    let mut expected = vec![0_u8; 200_000];
    file.write_all(&expected).unwrap();
    let (mut count, mut random) = (0, seed());
    while count == 0 || !is_over.load(Ordering::Relaxed) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let start = (random >> 33) as usize % 190_000;
        let length = 1 + (random >> 20) as usize % 9000;
        expected[start..start + length].fill(random as u8);
        file.seek(SeekFrom::Start(start as u64)).unwrap();
        file.write_all(&expected[start..start + length]).unwrap();
        count += 1;
        if count % 50 == 0 {
            assert!(fs::read(&path).unwrap() == expected, "after {count} writes");
        }
    }
    assert!(fs::read(&path).unwrap() == expected, "after {count} writes");
    count
}

/// A thread of the killed daemon waits in the kernel until pages are written back. Only the next
/// daemon can write them back. So it must start before the killed daemon has ended completely.
#[test]
fn daemon_blocked_in_the_kernel_is_replaced() {
    require_mounting!();
    let place = Place::on_disk();
    mount_kept(&place, ("zstd", ""));
    let is_over = Arc::new(AtomicBool::new(false));
    let seek = |number: u32| {
        let (path, is_over) = (place.point.join(number.to_string()), Arc::clone(&is_over));
        std::thread::spawn(move || seek_among_dirty_pages(&path, &is_over))
    };
    let seekers = [1, 2, 3].map(seek);
    let mut pauses = Vec::new();
    for _ in 0..number("FSLAB_KILLS").unwrap_or(4) {
        std::thread::sleep(Duration::from_millis(100));
        let (point, daemon) = (place.point.clone(), processes(&place).1.unwrap());
        kill_process(daemon, Signal::KILL).unwrap();
        let killed = Instant::now();
        let (told, answered) = std::sync::mpsc::channel();
        std::thread::spawn(move || told.send(rustix::fs::statvfs(&point).is_ok()));
        assert_eq!(answered.recv_timeout(Duration::from_secs(60)), Ok(true));
        pauses.push(killed.elapsed());
    }
    pauses.sort_unstable();
    let (median, max) = (pauses[pauses.len() / 2], pauses[pauses.len() - 1]);
    eprintln!("{} pauses: median {median:?}, maximum {max:?}", pauses.len());
    // Without a signal, the supervisor would check the daemon a second after its start.
    assert!(median < Duration::from_secs(1), "{pauses:?}");
    is_over.store(true, Ordering::Relaxed);
    seekers.into_iter().for_each(|seeker| assert!(seeker.join().unwrap() > 0));
    assert_eq!(umount_unused(&place.point).0, 0);
}

fn seek_among_dirty_pages(path: &Path, is_over: &AtomicBool) -> u64 {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path).unwrap();
    let (bytes, mut count) = (vec![7; 1 << 20], 0);
    while count == 0 || !is_over.load(Ordering::Relaxed) {
        [0, 2, 4].iter().for_each(|at| file.write_all_at(&bytes, at << 20).unwrap());
        let seek = |to| rustix::fs::seek(&file, to).map(|found| found >> 20);
        assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(1));
        assert_eq!(seek(rustix::fs::SeekFrom::Data(1 << 20)), Ok(2));
        file.set_len(0).unwrap();
        count += 1;
    }
    count
}

/// A tier continues to work while daemons are killed and files are archived and recalled. Only a
/// tier command that is running at a kill may fail.
#[test]
fn tier_keeps_working_while_daemons_are_killed() {
    require_mounting!();
    let tiered = Tiered::over(Some(Kind::Ext4));
    let log = mount_tier(&tiered);
    let (path, bytes) = (tiered.path("still"), noise(seed(), (3 << 20) + 5));
    fs::write(&path, &bytes).unwrap();
    let unlinked = File::create_new(tiered.path("unlinked")).unwrap();
    fs::remove_file(tiered.path("unlinked")).unwrap();
    let (is_over, place) = (AtomicBool::new(false), tiered.place());
    std::thread::scope(|scope| {
        let workers = [
            scope.spawn(|| append_lines(&place.point, &is_over)),
            scope.spawn(|| change_names(&place.point, &is_over)),
            scope.spawn(|| write_and_read(&place.point, &is_over)),
            scope.spawn(|| archive_and_recall(&path, &bytes, &is_over)),
        ];
        let kills = number("FSLAB_KILLS").unwrap_or(KILLS);
        for kill in 0..kills.div_ceil(2) {
            let random = seed().wrapping_add(kill).wrapping_mul(2_654_435_761);
            std::thread::sleep(Duration::from_micros(500 + random % 200_000));
            kill_daemon(place);
        }
        is_over.store(true, Ordering::Relaxed);
        let done = workers.map(|worker| worker.join().unwrap());
        assert!(done.iter().all(|count| *count > 0), "{done:?}");
    });
    unlinked.write_all_at(b"nameless", 0).unwrap();
    assert_eq!(unlinked.metadata().unwrap().len(), 8);
    drop(unlinked);
    assert_eq!(umount_unused(&place.point).0, 0);
    eprintln!("tier: {:?}", Resent::of_log(&log));
    place.mount(&["-l", "tier"]);
    assert!(fs::read(&path).unwrap() == bytes);
    place.umount();
}

/// Archives, releases and recalls a file until `is_over`. Returns the number of releases.
fn archive_and_recall(path: &Path, bytes: &[u8], is_over: &AtomicBool) -> u64 {
    let done = |action: &str| {
        let (code, said) = run(&["tier", action, path.to_str().unwrap()]);
        let is_cut_off = said.contains("exited before it replied") || said.contains("the daemon");
        assert!(code == 0 || is_cut_off, "{said}");
        code == 0
    };
    let mut releases = 0;
    while releases == 0 || !is_over.load(Ordering::Relaxed) {
        releases += u64::from(done("archive") && done("release"));
        assert!(fs::read(path).unwrap() == bytes, "after {releases} releases");
    }
    releases
}

#[test]
fn no_daemon_is_started_after_repeated_deaths() {
    require_mounting!();
    let place = Place::on_disk();
    place.mount(&["-o", "keep=2", "-l", "null"]);
    kill_daemon(&place);
    let (supervisor, daemon) = processes(&place);
    kill_process(daemon.unwrap(), Signal::KILL).unwrap();
    soon("the supervisor has exited", || rustix::process::test_kill_process(supervisor).is_err());
    let error = fs::read_dir(&place.point).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOTCONN.raw_os_error()));
    // The lock of the tree was released.
    place.mount(&["-o", "replace", "-l", "null"]);
    place.umount();
}

/// The next daemon uses the image that is open, even if another file now has its name.
#[test]
fn next_daemon_uses_the_open_image_after_its_path_was_replaced() {
    require_mounting!();
    let place = place_for((EXT2, ""));
    mount_kept(&place, (EXT2, ""));
    fs::write(place.point.join("file"), b"bytes").unwrap();
    let image = place.lower.to_str().unwrap().strip_prefix("ext2:").unwrap().to_owned();
    let copy = format!("{image}.copy");
    fs::copy(&image, &copy).unwrap();
    fs::rename(&copy, &image).unwrap();
    let before = fs::read(&image).unwrap();
    for _ in 0..3 {
        kill_daemon(&place);
        assert_eq!(fs::read(place.point.join("file")).unwrap(), b"bytes");
        fs::write(place.point.join("file"), b"bytes").unwrap();
    }
    assert_eq!(umount_unused(&place.point).0, 0);
    assert!(fs::read(&image).unwrap() == before, "the copy was changed");
}

/// A kept mount can replace a dead one, as the systemd unit does. The dead mount may cover its own
/// lower directory.
#[test]
fn a_dead_mount_is_replaced_by_a_kept_one() {
    require_mounting!();
    for is_covering in [false, true] {
        let mut place = Place::on_disk();
        if is_covering {
            place.point.clone_from(&place.lower);
        }
        place.mount(&["-l", "zstd"]);
        fs::write(place.point.join("file"), b"bytes").unwrap();
        let daemon = Pid::from_raw(place.daemon().try_into().unwrap()).unwrap();
        kill_process(daemon, Signal::KILL).unwrap();
        soon("the mount is dead", || fs::read_dir(&place.point).is_err());
        place.mount(&["-o", "keep,replace", "-l", "zstd"]);
        for _ in 0..3 {
            kill_daemon(&place);
            assert_eq!(fs::read(place.point.join("file")).unwrap(), b"bytes");
        }
        assert_eq!(umount_unused(&place.point).0, 0);
        assert!(!is_mounted(&place.point));
    }
}

/// On these mounts, the kernel buffers writes. Even so, synced and closed files survive the death
/// of the mount.
#[test]
fn closed_and_synced_files_survive_a_dead_mount() {
    require_mounting!();
    for options in ["keep=1", "writeback"] {
        let place = Place::on_disk();
        place.mount(&["-o", options, "-l", "zstd"]);
        let path = |name: &str| place.point.join(name);
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n / 7) as u8).collect();
        let mut files = ["synced", "written"].map(|name| File::create(path(name)).unwrap());
        files.iter_mut().for_each(|file| file.write_all(&bytes).unwrap());
        files[0].sync_all().unwrap();
        fs::write(path("closed"), &bytes).unwrap();
        let daemon = Pid::from_raw(place.daemon().try_into().unwrap()).unwrap();
        let daemon = if options == "writeback" { Some(daemon) } else { processes(&place).1 };
        kill_process(daemon.unwrap(), Signal::KILL).unwrap();
        soon("the mount is dead", || fs::metadata(path("closed")).is_err());
        drop(files);
        place.mount(&["-o", "replace", "-l", "zstd"]);
        for name in ["synced", "closed"] {
            assert!(fs::read(path(name)).unwrap() == bytes, "{options}: {name}");
        }
        let left = fs::read(path("written")).unwrap();
        assert!(bytes.starts_with(&left), "{options}");
        place.umount();
    }
}

#[test]
fn daemon_keeps_serving_after_its_supervisor_dies() {
    require_mounting!();
    let place = Place::on_disk();
    mount_kept(&place, ("null", ""));
    let (supervisor, _) = processes(&place);
    fs::write(place.point.join("a"), b"before").unwrap();
    kill_process(supervisor, Signal::KILL).unwrap();
    soon("the supervisor has exited", || rustix::process::test_kill_process(supervisor).is_err());
    assert_eq!(fs::read(place.point.join("a")).unwrap(), b"before");
    fs::write(place.point.join("a"), b"after").unwrap();
    place.umount();
    soon("the daemon has exited", || crate::support::daemons_naming(&place.point).is_empty());
}

/// More files are open than the default limit allows a process to open. The next daemon must list
/// all of them.
#[test]
fn a_daemon_with_thousands_of_open_files_is_replaced() {
    require_mounting!();
    let place = Place::on_disk();
    mount_kept(&place, ("null:passthrough=off", ""));
    let raised = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let limit = rustix::process::Rlimit { current: raised.maximum, ..raised };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let path = |number: usize| place.point.join(number.to_string());
    let open = |number| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).open(path(number)).unwrap()
    };
    let files: Vec<File> = (0..3000).map(open).collect();
    kill_daemon(&place);
    kill_daemon(&place);
    for (number, file) in files.iter().enumerate() {
        file.write_all_at(number.to_string().as_bytes(), 0).unwrap();
    }
    drop(files);
    (0..3000).for_each(|number| {
        assert_eq!(fs::read_to_string(path(number)).unwrap(), number.to_string());
    });
    place.umount();
}

/// A shell or a service manager may signal a whole process group, so the daemon receives the signal
/// twice. Open files must stay usable.
#[test]
fn open_files_stay_usable_after_both_processes_are_signalled() {
    require_mounting!();
    let place = Place::on_disk();
    mount_kept(&place, ("null:passthrough=off", ""));
    fs::write(place.point.join("a"), b"text").unwrap();
    let mut used = File::open(place.point.join("a")).unwrap();
    let (supervisor, daemon) = processes(&place);
    kill_process(daemon.unwrap(), Signal::TERM).unwrap();
    kill_process(supervisor, Signal::TERM).unwrap();
    soon("the mount is unmounted", || !is_mounted(&place.point));
    let mut text = String::new();
    used.read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    drop(used);
    soon("daemon and supervisor have exited", || {
        crate::support::daemons_naming(&place.point).is_empty()
    });
}

/// The next daemon can't find files of a nested file system by their inode numbers. They must be
/// looked up again by name.
#[test]
fn files_of_nested_mounts_are_looked_up_again_by_name() {
    require_mounting!();
    let place = Place::on_disk();
    fs::create_dir(place.lower.join("inner")).unwrap();
    let inner = place.lower.join("inner");
    let _inner = Mount::new(Path::new("none"), &inner, "tmpfs", "size=1m").unwrap();
    fs::write(inner.join("a"), b"before").unwrap();
    mount_kept(&place, ("null:passthrough=off", ""));
    let path = place.point.join("inner/a");
    let open = OpenOptions::new().write(true).open(&path).unwrap();
    kill_daemon(&place);
    let error = open.write_at(b"x", 0).unwrap_err();
    let errno = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    assert!(matches!(errno, Some(rustix::io::Errno::BADF | rustix::io::Errno::STALE)), "{error}");
    drop(open);
    // The kernel caches the name for a second.
    soon("the name can be looked up again", || fs::read(&path).is_ok());
    assert_eq!(fs::read(&path).unwrap(), b"before");
    fs::write(&path, b"after").unwrap();
    assert_eq!(fs::read(inner.join("a")).unwrap(), b"after");
    place.umount();
}

/// If the mount is unmounted after a daemon has died and before the next one starts, the supervisor
/// exits.
#[test]
fn supervisor_ends_if_unmounted_without_a_daemon() {
    require_mounting!();
    let place = Place::on_disk();
    let log = place.lower.with_file_name("log");
    let options = format!("keep=256,log={}", log.display());
    place.mount(&["-o", &options, "-l", "null"]);
    let (supervisor, daemon) = processes(&place);
    kill_process(supervisor, Signal::STOP).unwrap();
    kill_process(daemon.unwrap(), Signal::KILL).unwrap();
    rustix::mount::unmount(&place.point, rustix::mount::UnmountFlags::DETACH).unwrap();
    kill_process(supervisor, Signal::CONT).unwrap();
    soon("daemon and supervisor have exited", || {
        crate::support::daemons_naming(&place.point).is_empty()
    });
    let said = fs::read_to_string(log).unwrap();
    assert!(!said.contains("given up"), "{said}");
    mount_kept(&place, ("null", ""));
    place.umount();
}

/// SIGTERM to the supervisor, which systemd sends, unmounts.
#[test]
fn a_signal_to_the_supervisor_unmounts() {
    require_mounting!();
    let place = Place::on_disk();
    mount_kept(&place, ("null", ""));
    kill_daemon(&place);
    kill_process(processes(&place).0, Signal::TERM).unwrap();
    soon("daemon and supervisor have exited", || {
        crate::support::daemons_naming(&place.point).is_empty()
    });
    assert!(!is_mounted(&place.point));
}

/// The daemon is killed before it can handle the signal.
#[test]
fn a_signal_to_the_supervisor_outlives_the_daemon() {
    require_mounting!();
    let place = Place::on_disk();
    mount_kept(&place, ("null", ""));
    let (supervisor, daemon) = processes(&place);
    let daemon = daemon.unwrap();
    kill_process(daemon, Signal::STOP).unwrap();
    // A thread that still runs could handle the next signal before this one.
    soon("all threads of the daemon have stopped", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.as_raw_pid())).unwrap();
        tasks.flatten().all(|task| {
            let status = fs::read_to_string(task.path().join("status")).unwrap();
            status.contains("State:\tT (stopped)")
        })
    });
    kill_process(supervisor, Signal::TERM).unwrap();
    soon("the signal was passed on", || {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.as_raw_pid())).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
        let pending = u64::from_str_radix(pending.trim(), 16).unwrap();
        pending & 1 << (Signal::TERM.as_raw() - 1) != 0
    });
    kill_process(daemon, Signal::KILL).unwrap();
    soon("daemon and supervisor have exited", || {
        crate::support::daemons_naming(&place.point).is_empty()
    });
    assert!(!is_mounted(&place.point));
}

#[test]
fn unsupported_uses_of_keep_are_refused_in_one_line() {
    require_mounting!();
    let place = Place::on_disk();
    let point = place.point.to_str().unwrap();
    let lower = place.lower.to_str().unwrap();
    for (options, lower, part) in [
        ("keep", "mem:", "-o keep works only for directories and ext2 images"),
        ("keep", "ext2:memory", "-o keep works only for directories and ext2 images"),
        ("keep,transport=uring", lower, "keep and transport=uring exclude each other"),
        ("keep=0", lower, "'0' is not a number from 1 to 256"),
    ] {
        let (code, message) = run(&["mount", "-o", options, lower, point]);
        assert_eq!(code, 3, "{options}: {message}");
        assert!(message.contains(part), "{options}: {message}");
        assert_eq!(message.lines().count(), 1, "{options}: {message}");
        assert!(!is_mounted(&place.point));
    }
}
