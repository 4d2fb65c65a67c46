//! Tests of crashes while chunks are staged. If only the daemon is killed, all acknowledged data is
//! found. After a power cut, each chunk has synced content or later content.

use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{FileSystem, Ino, OpenMode};
use fslab_vfs_testing::client::{Client, File};
use fslab_vfs_testing::crash::{CrashFs, Order, Plan, State, Survivors};
use fslab_vfs_testing::environment::{number, seed};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::mutants::{Mutant, NO_STAGING};

const CHUNK: usize = 4096;

/// Default of `FSLAB_CRASH_AGAIN`: one of this many states is written to and crashed again.
const CUT_AGAIN: u64 = 512;

const LAYERS: [&str; 2] = [
    "zstd:chunk=4KiB,threads=2,level=1,cache=0",
    "gzip:chunk=4KiB,threads=3,level=1,cache=0,garbage=8KiB",
];

/// The content after an operation that returned when the log had `position` events.
struct Version {
    position: usize,
    content: Vec<u8>,
    is_synced: bool,
}

/// `FSLAB_STAGING_SCRIPTS` sets the number of scripts, `FSLAB_SEED` the first seed.
#[test]
fn staged_data_survives_a_killed_daemon_and_power_cuts() {
    let (first, scripts) = (seed(), number("FSLAB_STAGING_SCRIPTS").unwrap_or(4));
    let mut checked = 0;
    for script in first..first + scripts {
        let layer = LAYERS[script as usize % LAYERS.len()];
        let answer = check(layer, script, None);
        checked += answer.unwrap_or_else(|problem| panic!("{layer}, seed {script}: {problem}"));
    }
    eprintln!("{scripts} scripts, {checked} states");
}

/// Data that is acknowledged before it is in the lower file is lost if the daemon is killed.
#[test]
fn staging_without_the_write_to_the_staging_area_is_caught() {
    let problem = (1..20).find_map(|script| check(LAYERS[0], script, Some(&NO_STAGING)).err());
    eprintln!("{}: {}", NO_STAGING.bug, problem.expect("the planted bug was not caught"));
}

/// Runs a script and checks the states after each event; returns their number.
fn check(layer: &str, script: u64, mutant: Option<&Mutant>) -> Result<u64, String> {
    let crash = Arc::new(CrashFs::default());
    let below: Arc<dyn FileSystem> = crash.clone();
    let below = mutant.map_or(Arc::clone(&below), |mutant| (mutant.plant)(below));
    let reads = mutant.is_none();
    let versions = run(&*crate::layer(layer).build(below).unwrap(), &crash, script, reads);
    let mut checked = 0;
    let mut visit = |state: &State| {
        checked += 1;
        judge(layer, state, &versions)
    };
    let plan = Plan { seed: script, subsets: 2, prefixes: 2 };
    crash.log().for_each_state(Order::Independent, &plan, &|_| true, &mut visit)?;
    Ok(checked)
}

/// Runs random operations on one file. Most append chunks, whole or in pieces. `reads` is whether
/// the content is also read after each round of operations.
fn run(layer: &dyn FileSystem, crash: &CrashFs, script: u64, reads: bool) -> Vec<Version> {
    let mut draws = Pcg64Mcg::seed_from_u64(script);
    let client = Client::new(layer);
    let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
    layer.syncfs(&client.request(), Ino::ROOT).unwrap();
    let mut content = Vec::new();
    let mut versions = Vec::new();
    let mut note = |content: &[u8], is_synced| {
        let (position, content) = (crash.position(), content.to_vec());
        versions.push(Version { position, content, is_synced });
    };
    note(&content, true);
    for _ in 0..12 {
        for _ in 0..draws.random_range(1..16) {
            let missing = content.len().next_multiple_of(CHUNK) - content.len();
            let length = match draws.random_range(0..5) {
                0 | 1 => draws.random_range(64..=CHUNK),
                _ if missing > 0 => missing,
                _ => CHUNK,
            };
            let mut piece = vec![draws.random_range(b'a'..=b'z'); length];
            let count = length.min(8);
            piece[..count].copy_from_slice(&draws.random::<u64>().to_le_bytes()[..count]);
            append(&file, &mut content, &piece);
            note(&content, false);
        }
        let is_synced = operate((&client, &file), &mut content, &mut draws);
        note(&content, is_synced);
        assert!(!reads || client.contents(file.ino).unwrap() == content, "seed {script}");
    }
    file.close().unwrap();
    note(&content, false);
    versions
}

/// Performs an operation that ends staging. Returns whether the file is then synced.
fn operate(
    (client, file): (&Client<'_>, &File<'_>),
    content: &mut Vec<u8>,
    draws: &mut Pcg64Mcg,
) -> bool {
    match draws.random_range(0..7) {
        0 => file.fsync(draws.random()).map(|()| true).unwrap(),
        1 => {
            let size = draws.random_range(0..=content.len());
            // Half of the sizes are borders of chunks, where staging can begin again.
            let size = if draws.random() { size / CHUNK * CHUNK } else { size };
            file.truncate(size as u64).unwrap();
            content.resize(size, 0);
            false
        }
        2 => client.subject().syncfs(&client.request(), Ino::ROOT).map(|()| true).unwrap(),
        3 => {
            let piece = vec![b'.'; draws.random_range(1..2 * CHUNK)];
            append(file, content, &piece);
            let missing = content.len().next_multiple_of(CHUNK) - content.len();
            append(file, content, &vec![b'-'; missing]);
            false
        }
        4 => {
            let offset = draws.random_range(0..=content.len());
            write(file, content, offset, &vec![b'!'; draws.random_range(1..3 * CHUNK)]);
            let missing = content.len().next_multiple_of(CHUNK) - content.len();
            append(file, content, &vec![b'-'; missing]);
            false
        }
        _ => false,
    }
}

fn append(file: &File<'_>, content: &mut Vec<u8>, bytes: &[u8]) {
    write(file, content, content.len(), bytes);
}

fn write(file: &File<'_>, content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if !bytes.is_empty() {
        file.write_all(offset as u64, bytes).unwrap();
        content.resize(content.len().max(offset + bytes.len()), 0);
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// Checks the content after a crash, and that the file can be written again.
fn judge(layer: &str, state: &State, versions: &[Version]) -> Result<(), String> {
    // An operation in progress at the crash may be performed or not. Some operations consist of two
    // writes.
    let Some(done) = versions.iter().rposition(|version| version.position <= state.point) else {
        return Ok(());
    };
    let until = (done + 2).min(versions.len());
    let synced = versions[..=done].iter().rposition(|version| version.is_synced).unwrap_or(0);
    let memory: Arc<dyn FileSystem> = Arc::new(state.open().map_err(|error| error.to_string())?);
    let mut found = read(layer, &memory)?;
    let possible = match state.survivors {
        Survivors::All => done..until,
        _ => synced..until,
    };
    explain(&found, &versions[possible.clone()]).map_err(|what| {
        format!("point {}, {}, versions {possible:?}: {what}", state.point, state.survivors)
    })?;
    let again = number("FSLAB_CRASH_AGAIN").unwrap_or(CUT_AGAIN);
    if again > 0 && state.fingerprint.is_multiple_of(again) {
        second_cut(layer, state, &found)?;
    }
    append_to(layer, &memory, &mut found)?;
    let again = read(layer, &memory)?;
    let message = || format!("point {}: other content after the next write", state.point);
    if again == found { Ok(()) } else { Err(message()) }
}

/// Writes to the file after the first power cut. Checks that a second power cut loses nothing that
/// was found after the first.
fn second_cut(layer: &str, state: &State, found: &[u8]) -> Result<(), String> {
    let crash = Arc::new(state.record().map_err(|error| error.to_string())?);
    let (below, start): (Arc<dyn FileSystem>, _) = (crash.clone(), crash.position());
    append_to(layer, &below, &mut found.to_vec())?;
    let mut visit = |second: &State| {
        let memory: Arc<dyn FileSystem> = Arc::new(second.open().unwrap());
        let again = read(layer, &memory)?;
        match again.starts_with(found) {
            true => Ok(()),
            false => Err(format!(
                "point {}, {}: {} of {} bytes after the second cut at point {}, {}",
                state.point,
                state.survivors,
                again.len(),
                found.len(),
                second.point,
                second.survivors
            )),
        }
    };
    let plan = Plan { seed: state.fingerprint, subsets: 4, prefixes: 4 };
    let log = crash.log();
    log.for_each_state(Order::Independent, &plan, &|point| point >= start, &mut visit).map(drop)
}

/// Checks that each chunk of `found` equals that of one of the versions. A lost chunk may read as
/// zeros if one of the versions does not contain it.
fn explain(found: &[u8], versions: &[Version]) -> Result<(), String> {
    let is_whole = versions.len() <= 2;
    let sizes: Vec<usize> = versions.iter().map(|version| version.content.len()).collect();
    let range = |from: usize| from..(from + CHUNK).min(found.len());
    for from in (0..found.len()).step_by(CHUNK) {
        let piece = &found[range(from)];
        let is_of = |version: &Version| is_part(piece, &version.content, range(from));
        let is_new = versions.iter().any(|version| version.content.len() <= from);
        let is_lost = !is_whole && is_new && piece.iter().all(|byte| *byte == 0);
        if !versions.iter().any(is_of) && !is_lost {
            return Err(format!("the chunk at {from} has content of no version"));
        }
    }
    let (least, most) = (sizes.iter().min(), sizes.iter().max());
    match least.zip(most) {
        Some((least, most)) if (*least..=*most).contains(&found.len()) => Ok(()),
        _ => Err(format!("{} bytes instead of {sizes:?}", found.len())),
    }
}

/// Whether `piece` equals the bytes of `content` at `range`, with zeros after the end of `content`.
fn is_part(piece: &[u8], content: &[u8], range: Range<usize>) -> bool {
    let end = range.end.min(content.len()).max(range.start.min(content.len()));
    let known = &content[range.start.min(end)..end];
    piece.starts_with(known) && piece[known.len()..].iter().all(|byte| *byte == 0)
}

fn read(layer: &str, below: &Arc<dyn FileSystem>) -> Result<Vec<u8>, String> {
    let built = crate::layer(layer).build(Arc::clone(below)).map_err(|error| error.to_string())?;
    let client = Client::new(&*built);
    let ino = client.lookup(Ino::ROOT, "file").map_err(|error| error.to_string())?.ino;
    client.contents(ino).map_err(|error| error.to_string())
}

fn append_to(
    layer: &str,
    below: &Arc<dyn FileSystem>,
    content: &mut Vec<u8>,
) -> Result<(), String> {
    let built = crate::layer(layer).build(Arc::clone(below)).map_err(|error| error.to_string())?;
    let client = Client::new(&*built);
    let ino = client.lookup(Ino::ROOT, "file").map_err(|error| error.to_string())?.ino;
    let file = client.open(ino, OpenMode::READ_WRITE).map_err(|error| error.to_string())?;
    append(&file, content, b"written after the crash");
    file.close().map_err(|error| error.to_string())
}
