//! Tests mounts whose daemon is killed under load. The directory can be mounted again, and the
//! results of all completed operations are there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use fslab_sys::processors;
use fslab_vfs_testing::environment::{number, seed};
use rustix::io::Errno;

use crate::support::{
    Place, Transport, daemons_naming, kill, open_process, require_mounting, run, soon,
};

/// Number of kills; `FSLAB_KILLS` replaces it.
const KILLS: u64 = 14;
/// Number of kills over io_uring.
const KILLS_OVER_URING: u64 = 30;

/// Number of threads that work on each processor over io_uring, and the maximum number of all.
const WORKERS_A_PROCESSOR: usize = 2;
const WORKERS_MAX: usize = 16;

/// The operation that was in flight when the daemon died, if it changes a file.
struct Doubt {
    name: String,
    /// Whether the operation appended to a file. Otherwise it changed names.
    appended: bool,
}

/// The expected content of each file after the completed operations, by name.
type Made = BTreeMap<String, Vec<u8>>;

#[test]
fn completed_operations_survive_a_killed_daemon() {
    require_mounting!();
    kill_under_load(Transport::Device, LAYERS, KILLS);
}

#[test]
fn completed_operations_survive_a_daemon_that_is_killed_over_io_uring() {
    require_mounting!(Transport::Uring);
    kill_under_load(Transport::Uring, LAYERS_OVER_URING, KILLS_OVER_URING);
}

fn kill_under_load(transport: Transport, layers: &[&str], kills: u64) {
    let kills = number("FSLAB_KILLS").unwrap_or(kills);
    let seed = seed();
    let mut seen = Seen::default();
    for (layer, round) in layers.iter().cycle().zip(0..kills) {
        killed_once(transport, layer, seed.wrapping_add(round), &mut seen);
    }
    eprintln!("{kills} kills, {seen:?}");
    seen.expect_all_queues(transport);
}

/// Stacks whose daemons are killed, in turn.
const LAYERS: &[&str] = &[
    "null",
    "gzip:chunk=4KiB",
    "null:passthrough=off",
    "zstd",
    "copy:chunk=16KiB,tails=off",
    "lz4:chunk=4KiB",
    "uuencode:chunk=8KiB",
];
const LAYERS_OVER_URING: &[&str] = &["null:passthrough=off", "zstd", "null"];

/// Copies files with requests of one chunk, as cp(1) does, and with smaller requests, as tar(1)
/// does. The layer stages chunks in both cases.
#[test]
fn copied_chunks_survive_a_killed_daemon() {
    require_mounting!();
    let kills = number("FSLAB_KILLS").unwrap_or(KILLS);
    let seed = seed();
    let layers = [
        ("gzip:chunk=4KiB,threads=2", 4 << 10),
        ("zstd:threads=2", 128 << 10),
        ("zstd:chunk=64KiB,threads=2", 10 << 10),
    ];
    let mut staging = 0;
    for (&(layer, length), round) in layers.iter().cycle().zip(0..kills) {
        staging += u64::from(killed_while_copying(layer, length, seed.wrapping_add(round)));
    }
    eprintln!("{kills} kills, {staging} of them while a chunk was staged");
    assert!(staging > 0, "none of {kills} daemons was killed while a chunk was staged");
}

/// Kills a daemon while a file is copied. Returns whether the file still had a staging area.
fn killed_while_copying(layer: &str, length: usize, seed: u64) -> bool {
    let place = Place::mounted(&["-l", layer]);
    let mut data = Vec::new();
    let mut file = fs::File::create_new(place.point.join("copy")).unwrap();
    let killer = kill_soon(&place, seed);
    let copied = (seed..).try_for_each(|number| {
        let mut piece = vec![number as u8; length];
        piece[..8].copy_from_slice(&number.to_le_bytes());
        data.extend(&piece);
        file.write_all(&piece)
    });
    copied.unwrap_err();
    killer.join().unwrap();
    let is_staging = fs::metadata(place.lower.join("copy")).unwrap().len() > 128 << 20;
    mount_again(&place, layer, seed.is_multiple_of(2));
    let found = fs::read(place.point.join("copy")).unwrap();
    assert!(found.len() + length >= data.len(), "{layer}: {} of {}", found.len(), data.len());
    assert!(data.starts_with(&found), "{layer}: other bytes");
    place.umount();
    is_staging
}

/// Kills the daemon of a mount after a delay of up to 60 ms.
fn kill_soon(place: &Place, seed: u64) -> std::thread::JoinHandle<Instant> {
    let delay = Duration::from_micros(500 + seed.wrapping_mul(2_654_435_761) % 60_000);
    kill_after(place, delay)
}

/// Kills the daemon of a mount after a delay, and waits until its last thread has ended. Returns
/// the time of the kill.
fn kill_after(place: &Place, delay: Duration) -> std::thread::JoinHandle<Instant> {
    let daemon = open_process(place.daemon());
    std::thread::spawn(move || {
        std::thread::sleep(delay);
        let killed = Instant::now();
        kill(&daemon);
        killed
    })
}

/// What programs saw when daemons were killed.
#[derive(Debug, Default)]
pub struct Seen {
    /// Number of requests that were in flight, by the processor that made them.
    in_flight: BTreeMap<usize, u64>,
    /// Longest time from a kill to the last error.
    until_errors: Duration,
}

impl Seen {
    /// Checks that kills met requests in each queue of io_uring. There is a queue for each
    /// processor.
    #[track_caller]
    pub fn expect_all_queues(&self, transport: Transport) {
        let queues = if transport == Transport::Uring { processors_to_use() } else { Vec::new() };
        let is_missed = |processor: &usize| !self.in_flight.contains_key(processor);
        let missed: Vec<_> = queues.into_iter().filter(is_missed).collect();
        assert!(missed.is_empty(), "no kill during requests from these processors: {missed:?}");
    }
}

/// Returns the processors that threads use over io_uring.
fn processors_to_use() -> Vec<usize> {
    let online = processors::online().unwrap();
    online.into_iter().take(WORKERS_MAX / WORKERS_A_PROCESSOR).collect()
}

/// Kills the daemon of a mount after a delay, while threads work. Each thread has a number, and
/// ends at its first error. Returns the results of the threads.
///
/// # Panics
/// If a thread gets no error, or an error that a killed daemon does not cause.
pub fn killed_while_working<T: Send + 'static>(
    place: &Place,
    delay: Duration,
    seen: &mut Seen,
    work: impl Fn(&Path, u64) -> (T, std::io::Error) + Clone + Send + 'static,
) -> Vec<T> {
    let workers: Vec<Option<usize>> = match place.transport {
        Transport::Device => vec![None; 3],
        Transport::Uring => {
            processors_to_use().repeat(WORKERS_A_PROCESSOR).into_iter().map(Some).collect()
        }
    };
    let killer = kill_after(place, delay);
    let start = |(worker, processor): (u64, Option<usize>)| {
        let (point, work) = (place.point.clone(), work.clone());
        let thread = std::thread::spawn(move || {
            processor.into_iter().for_each(|number| processors::run_on(number).unwrap());
            work(&point, worker)
        });
        (processor, thread)
    };
    let threads: Vec<_> = (0..).zip(workers).map(start).collect();
    let killed = killer.join().unwrap();
    assert_eq!(daemons_naming(&place.point), [0_u32; 0], "processes of the killed daemon remain");
    soon("every request got a reply or an error", || {
        threads.iter().all(|(_, thread)| thread.is_finished())
    });
    seen.until_errors = seen.until_errors.max(killed.elapsed());
    let mut results = Vec::new();
    for (processor, thread) in threads {
        let (result, error) = thread.join().unwrap();
        match Errno::from_io_error(&error) {
            // The request was in flight. The kernel cancels requests that it was about to pass to a
            // thread through io_uring.
            Some(Errno::CONNABORTED | Errno::CANCELED) => {
                processor.into_iter().for_each(|one| *seen.in_flight.entry(one).or_default() += 1);
            }
            // The request was made later.
            Some(Errno::NOTCONN) => {}
            _ => panic!("unexpected error after a kill: {error}"),
        }
        results.push(result);
    }
    results
}

fn killed_once(transport: Transport, layer: &str, seed: u64, seen: &mut Seen) {
    let place = Place::mounted_over(transport, &["-l", layer]);
    let delay = Duration::from_micros(500 + seed.wrapping_mul(2_654_435_761) % 60_000);
    let made = killed_while_working(&place, delay, seen, move |point, writer| {
        work_until_killed(point, writer, seed)
    });
    mount_again(&place, layer, seed.is_multiple_of(2));
    for (made, in_doubt) in &made {
        check(layer, &place.point, made, in_doubt.as_ref());
    }
    place.umount();
}

/// The files after the completed operations, and the failed operation.
type Work = (Made, Option<Doubt>);

/// Creates, appends to, renames, removes, reads and lists files until an operation fails.
fn work_until_killed(point: &Path, writer: u64, seed: u64) -> (Work, std::io::Error) {
    let mut made = Made::new();
    let mut step = seed;
    loop {
        let name = format!("{writer}-{}", step % 17);
        let operation = (step / 3 + writer) % 6;
        if let Err(error) = apply(point, &name, step, operation, &mut made) {
            let in_doubt = (operation < 4).then_some(Doubt { name, appended: operation < 2 });
            return ((made, in_doubt), error);
        }
        step += 1;
    }
}

fn apply(
    point: &Path,
    name: &str,
    step: u64,
    operation: u64,
    made: &mut Made,
) -> std::io::Result<()> {
    let path = point.join(name);
    match operation {
        0 | 1 => {
            let data = vec![step as u8; 1 + (step as usize * 37) % 9000];
            let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
            made.entry(name.to_owned()).or_default();
            file.write_all(&data)?;
            made.entry(name.to_owned()).or_default().extend(data);
            if step.is_multiple_of(5) {
                file.sync_all()?;
            }
        }
        2 if made.contains_key(name) => {
            let renamed = format!("{name}-renamed");
            fs::rename(&path, point.join(&renamed))?;
            let contents = made.remove(name).unwrap_or_default();
            made.insert(renamed, contents);
        }
        3 if made.contains_key(name) => {
            fs::remove_file(&path)?;
            made.remove(name);
        }
        4 => read_back(point, made.iter().next())?,
        5 => list(point, made.keys())?,
        _ => {}
    }
    Ok(())
}

/// Reads a file and compares its content.
pub fn read_back(point: &Path, file: Option<(&String, &Vec<u8>)>) -> std::io::Result<()> {
    let Some((name, expected)) = file else { return Ok(()) };
    let found = fs::read(point.join(name))?;
    assert!(found == *expected, "{name} contains other bytes");
    Ok(())
}

/// Lists a directory and checks that all of these files are in it, while other files change.
pub fn list<'a>(point: &Path, names: impl Iterator<Item = &'a String>) -> std::io::Result<()> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(point)? {
        found.insert(entry?.file_name().into_string().unwrap());
    }
    let missing: Vec<_> = names.filter(|name| !found.contains(*name)).collect();
    assert!(missing.is_empty(), "a listing lacks {missing:?}");
    Ok(())
}

/// Checks that the results of all completed operations exist. Only the effect of the failed
/// operation is uncertain.
fn check(layer: &str, point: &Path, made: &Made, in_doubt: Option<&Doubt>) {
    for (name, contents) in made {
        let found = fs::read(point.join(name));
        match in_doubt.filter(|doubt| doubt.is_about(name)) {
            None => {
                let found = found.unwrap_or_else(|error| panic!("{layer}, {name}: {error}"));
                assert!(found == *contents, "{layer}: {name} contains other bytes");
            }
            Some(doubt) if doubt.appended => {
                let found = found.unwrap_or_else(|error| panic!("{layer}, {name}: {error}"));
                assert!(found.starts_with(contents), "{layer}: {name} contains other bytes");
            }
            // The failed operation removed or renamed the file, perhaps over an existing file.
            Some(doubt) => {
                let before = [Some(contents), made.get(&doubt.name)];
                let is_known = found.is_err() || before.contains(&found.as_ref().ok());
                assert!(is_known, "{layer}: {name} contains unexpected bytes");
            }
        }
    }
}

impl Doubt {
    fn is_about(&self, name: &str) -> bool {
        name.strip_prefix(&self.name).is_some_and(|rest| ["", "-renamed"].contains(&rest))
    }
}

fn mount_again(place: &Place, layer: &str, replace: bool) {
    let point = place.point.to_str().unwrap();
    let (code, message) = place.try_mount(&["-l", layer]);
    assert_eq!(code, 3, "over a dead mount: {message}");
    assert!(message.contains("daemon is dead; run `fslab umount"), "{message}");
    if replace {
        place.mount(&["-o", "replace", "-l", layer]);
    } else {
        assert_eq!(run(&["umount", "--lazy", point]), (0, String::new()));
        place.mount(&["-l", layer]);
    }
    fs::write(place.point.join("after"), "alive").unwrap();
    assert_eq!(fs::read(place.point.join("after")).unwrap(), b"alive");
}
