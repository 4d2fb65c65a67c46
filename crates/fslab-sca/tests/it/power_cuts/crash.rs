//! Tests of power cuts in the file system under SCA layers: random scripts with a crash at every
//! event of the lower file system. The state after each crash is compared with the guarantees.
//!
//! `FSLAB_CRASH_SCRIPTS` sets the number of scripts, `FSLAB_SEED` the seed. With
//! `FSLAB_CRASH_FULL=1`, each prefix and 64 subsets are checked at each point. One in
//! `FSLAB_CRASH_AGAIN` states (default 64) is written to after recovery and crashed again; 0
//! disables this.

use std::collections::HashSet;
use std::sync::Arc;

use fslab_layers::LayerChoice;
use fslab_layers::observe::fault::{Fault, Program};
use fslab_vfs::{Errno, FileSystem, Ino, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::history::{are_bytes_of, is_size_of};
use fslab_vfs_testing::crash::{CrashFs, Order, Plan, State};
use fslab_vfs_testing::environment::{number, seed};

use super::mutants::{MUTANTS, Mutant};
use super::script::{Diary, NAMES, Script};

const CHUNK_BYTES: usize = 4096;
const STEPS: usize = 25;

/// Default of `FSLAB_CRASH_AGAIN`: one of this many states is written to and crashed again.
const CRASHED_AGAIN: u64 = 64;

/// A layer with the default `garbage`: its files are too small for garbage collection.
const COPY: &str = "copy:chunk=16KiB,threads=1,tails=off,cache=0";

/// Seed of the first script that is tried for each planted bug. From this seed on, the scripts find
/// every bug. Some bugs show in few scripts, so not every seed would do.
const PLANTED_SEED: u64 = 1;

/// Layers that write differently: a codec for each kind of container, with and without the
/// important options.
const LAYERS: &[&str] = &[
    "gzip:chunk=4KiB,threads=1,level=1,cache=0",
    "zstd:chunk=4KiB,threads=1,level=1,cache=0",
    "copy:chunk=16KiB,threads=1,tails=off,cache=0,garbage=8KiB",
    "lz4:chunk=4KiB,threads=1,size-xattr=off,cache=0",
    "uuencode:chunk=4KiB,threads=1,cache=0",
    "zstd:chunk=4KiB,threads=1,level=1,cache=0,garbage=4KiB,pack=close",
    "copy:chunk=16KiB,threads=1,tails=off,cache=0,garbage=4KiB,pack=close",
];

/// A script over a layer, and the states to be checked.
#[derive(Clone, Copy)]
struct Case {
    layer: &'static str,
    seed: u64,
    order: Order,
    plan: Plan,
    /// One of this many states is written to and crashed again; 0 means none.
    again: u64,
}

impl Case {
    /// Returns the case for a script number, with as many states as the environment requests.
    fn numbered(seed: u64, script: u64) -> Self {
        let layer = LAYERS[script as usize % LAYERS.len()];
        let seed = seed.wrapping_add(script);
        let order = if script % 3 == 2 { Order::Journal } else { Order::Independent };
        let is_full = number("FSLAB_CRASH_FULL") == Some(1);
        let plan = if is_full { Plan::full(seed) } else { Plan::quick(seed) };
        let again = number("FSLAB_CRASH_AGAIN").unwrap_or(CRASHED_AGAIN);
        Self { layer, seed, order, plan, again }
    }

    /// Returns a case that checks all states after one crash.
    fn once(layer: &'static str, seed: u64) -> Self {
        Self { layer, seed, order: Order::Independent, plan: Plan::full(seed), again: 0 }
    }
}

#[test]
fn promises_hold_after_a_crash_at_every_event() {
    let seed = seed();
    let scripts = number("FSLAB_CRASH_SCRIPTS").unwrap_or(14);
    let mut states = 0;
    for number in 0..scripts {
        let case = Case::numbered(seed, number);
        match explore(&case, None) {
            Ok(count) => states += count,
            Err(problem) => {
                let Case { layer, order, seed, .. } = case;
                panic!("FSLAB_SEED={seed}, script {number}, {layer}, {order:?}: {problem}")
            }
        }
    }
    eprintln!("{scripts} scripts, {states} states");
}

/// Scripts for which the test above once failed.
#[test]
fn scripts_that_once_failed_pass() {
    let found = [
        // Half of a gap's header, and half of the torn header that it overwrote, looked valid.
        (LAYERS[1], 5036, Order::Independent, Plan::quick as fn(u64) -> Plan, 64),
        // Quarantined copies were mistaken for frames written after a torn frame.
        (COPY, 1017, Order::Journal, Plan::full, 64),
        (LAYERS[1], 1021, Order::Independent, Plan::full, 64),
        // Code other than the walk could not read a header that the walk had repaired.
        (LAYERS[3], 7058, Order::Independent, Plan::quick, 8),
        // A torn piece of a tail made earlier synced data unreadable.
        (LAYERS[4], 6_106_317_495_334_488_584, Order::Independent, Plan::full, 64),
    ];
    for (layer, seed, order, plan, again) in found {
        let case = Case { layer, seed, order, plan: plan(seed), again };
        if let Err(problem) = explore(&case, None) {
            panic!("seed {seed}, {layer}: {problem}");
        }
    }
}

#[test]
fn planted_bugs_are_caught() {
    let mut missed = Vec::new();
    for mutant in MUTANTS {
        match (0..40).find_map(|round| caught(mutant, PLANTED_SEED + round).map(|how| (round, how)))
        {
            Some((round, how)) => eprintln!("{}: caught by script {round}: {how}\n", mutant.bug),
            None => missed.push(mutant.bug),
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:#?}");
}

fn caught(mutant: &Mutant, seed: u64) -> Option<String> {
    let case = Case::once(mutant.layer, seed);
    let problem = explore(&case, Some(mutant)).err()?;
    // A layer that fails even without the bug proves nothing about the bug.
    explore(&case, None).ok()?;
    problem.lines().next().map(str::to_owned)
}

/// Runs one script and checks all states after a crash; returns the number of states.
fn explore(case: &Case, mutant: Option<&Mutant>) -> Result<usize, String> {
    let layer = crate::layer(case.layer);
    let crash = Arc::new(CrashFs::default());
    let below: Arc<dyn FileSystem> = crash.clone();
    let below = mutant.map_or(Arc::clone(&below), |mutant| (mutant.plant)(below));
    let built = layer.build(Arc::clone(&below)).unwrap();
    let start = crash.position();
    let client = Client::new(&*built);
    let request = client.request();
    let after_step = || {
        below.statfs(&request, Ino::ROOT).unwrap();
    };
    let (diary, ended) = Script::run(&crash, &client, &after_step, (case.seed, STEPS));
    ended.unwrap();
    let mut seen = HashSet::new();
    let mut visit = |state: &State| {
        // A state with the same content and the same guarantees need not be checked again.
        let through = diary.steps.iter().filter(|(end, _)| *end <= state.point).count();
        if !seen.insert((state.fingerprint, through)) {
            return Ok(());
        }
        let memory: Arc<dyn FileSystem> = Arc::new(state.open().unwrap());
        let checked = check(&layer, &memory, &diary, state.point);
        let is_crashed_again = case.again > 0 && state.fingerprint.is_multiple_of(case.again);
        let once_more = || match is_crashed_again {
            true => crashes_again(&layer, state, case.seed),
            false => Ok(()),
        };
        checked.and_then(|()| once_more()).map_err(|problem| with_steps(&problem, &diary))
    };
    crash.log().for_each_state(case.order, &case.plan, &|point| point >= start, &mut visit)
}

fn with_steps(problem: &str, diary: &Diary) -> String {
    let steps = diary.steps.iter().map(|(end, step)| format!("  until event {end}: {step}"));
    format!("{problem}\n{}", steps.collect::<Vec<_>>().join("\n"))
}

/// Compares the recovered state with the guarantees.
fn check(
    layer: &LayerChoice,
    memory: &Arc<dyn FileSystem>,
    diary: &Diary,
    point: usize,
) -> Result<(), String> {
    let built = layer.build(Arc::clone(memory)).map_err(|error| format!("can't mount: {error}"))?;
    let client = Client::new(&*built);
    for name in client.names(Ino::ROOT).map_err(|error| format!("no listing: {error}"))? {
        if !NAMES.contains(&name.as_str()) {
            return Err(format!("a file {name} that the script did not create"));
        }
    }
    for name in NAMES {
        let candidates = diary.candidates(name, point);
        let fits = |candidate: &Option<usize>| match candidate {
            None => match client.exists(Ino::ROOT, name) {
                Ok(false) => Ok(()),
                Ok(true) => Err(format!("{name} reappeared")),
                Err(error) => Err(format!("{name}: {error}")),
            },
            Some(id) => is_allowed(&client, name, &diary.versions(*id, point))
                .map_err(|problem| format!("{name} as file {id}: {problem}")),
        };
        let problems: Vec<String> =
            candidates.iter().map_while(|candidate| fits(candidate).err()).collect();
        if problems.len() == candidates.len() {
            return Err(problems.join("; or "));
        }
    }
    if point.is_multiple_of(16) { goes_on(layer, memory, &client) } else { Ok(()) }
}

/// Checks a file's bytes. Each byte must belong to an allowed version, and the size must be that of
/// one version. Unreadable data must not have been guaranteed.
fn is_allowed(client: &Client<'_>, name: &str, allowed: &[&[u8]]) -> Result<(), String> {
    let attr = client.lookup(Ino::ROOT, name).map_err(|error| error.to_string())?;
    let size = attr.size as usize;
    is_size_of(size, allowed)?;
    let file = client.open(attr.ino, OpenMode::empty()).map_err(|error| error.to_string())?;
    for start in (0..size).step_by(CHUNK_BYTES) {
        let length = CHUNK_BYTES.min(size - start);
        match file.read(start as u64, length) {
            Ok(bytes) if bytes.len() < length => {
                return Err(format!("only {} bytes at {start} of {size}", bytes.len()));
            }
            Ok(bytes) => are_bytes_of(&bytes, start, allowed)?,
            Err(error) if error.errno() == Errno::IO && was_empty(start, allowed) => {}
            Err(error) => return Err(format!("synced data can't be read at {start}: {error}")),
        }
    }
    Ok(())
}

/// Whether the chunk was empty at some time since the last sync. If later data there is torn, the
/// layer has no older content to show.
fn was_empty(start: usize, allowed: &[&[u8]]) -> bool {
    allowed.iter().any(|version| {
        let rest = version.get(start..).unwrap_or_default();
        rest.iter().take(CHUNK_BYTES).all(|byte| *byte == 0)
    })
}

/// Checks that files can be written again after the crash, and that the new data is found.
fn goes_on(
    layer: &LayerChoice,
    memory: &Arc<dyn FileSystem>,
    client: &Client<'_>,
) -> Result<(), String> {
    let told = |error: fslab_vfs::Error| format!("after the crash: {error}");
    let mut written = Vec::new();
    for name in client.names(Ino::ROOT).map_err(told)? {
        let ino = client.lookup(Ino::ROOT, &name).map_err(told)?.ino;
        // Skips a file that the crash made unreadable.
        let Ok(before) = client.contents(ino) else { continue };
        let file = client.open(ino, OpenMode::READ_WRITE).map_err(told)?;
        let at_the_end = file.write_all(before.len() as u64, b"written after the crash");
        match at_the_end.and_then(|()| file.write_all(0, b"first")) {
            // The lost part of a chunk may lie past the end of the file; then only writes of
            // complete chunks succeed.
            Err(error) if error.errno() == Errno::IO => continue,
            answer => answer.map_err(told)?,
        }
        file.fsync(false).map_err(told)?;
        file.close().map_err(told)?;
        let mut expected = before;
        expected.extend(b"written after the crash");
        expected[..5].copy_from_slice(b"first");
        written.push((name, expected));
    }
    client.subject().shutdown().map_err(told)?;
    let again =
        layer.build(Arc::clone(memory)).map_err(|error| format!("no second mount: {error}"))?;
    let again = Client::new(&*again);
    for (name, expected) in written {
        let ino = again.lookup(Ino::ROOT, &name).map_err(told)?.ino;
        let found = again.contents(ino);
        let found = found.map_err(|error| format!("{name}, written and synced: {error}"))?;
        if found != expected {
            let lengths = (found.len(), expected.len());
            return Err(format!("{name}, written on: {lengths:?} bytes found and expected"));
        }
    }
    Ok(())
}

/// Everything found after a crash is kept, even if the power fails again during recovery and later
/// writes.
fn crashes_again(layer: &LayerChoice, state: &State, seed: u64) -> Result<(), String> {
    let told = |error: fslab_vfs::Error| format!("once more: {error}");
    let crash = Arc::new(state.record().map_err(told)?);
    let start = crash.position();
    let built = layer.build(crash.clone()).map_err(|error| format!("once more: {error}"))?;
    let client = Client::new(&*built);
    let mut held = Vec::new();
    for name in client.names(Ino::ROOT).map_err(told)? {
        let ino = client.lookup(Ino::ROOT, &name).map_err(told)?.ino;
        let Ok(before) = client.contents(ino) else { continue };
        let file = client.open(ino, OpenMode::READ_WRITE).map_err(told)?;
        match file.write_all(before.len() as u64, &[9; 100]) {
            Err(error) if error.errno() == Errno::IO => continue,
            answer => answer.map_err(told)?,
        }
        file.close().map_err(told)?;
        let after = [&before[..], &[9; 100]].concat();
        held.push((name, before, after));
    }
    let mut visit = |state: &State| {
        let memory: Arc<dyn FileSystem> = Arc::new(state.open().map_err(told)?);
        let built = layer.build(memory).map_err(|error| format!("after two crashes: {error}"))?;
        let client = Client::new(&*built);
        for (name, before, after) in &held {
            is_allowed(&client, name, &[before, after])
                .map_err(|problem| format!("{name}, after two crashes: {problem}"))?;
        }
        Ok(())
    };
    let plan = Plan { seed, subsets: 4, prefixes: 4 };
    let states = crash.log();
    states.for_each_state(Order::Independent, &plan, &|point| point >= start, &mut visit).map(drop)
}

/// The lower disk is full at each of the layer's calls in turn. The caller gets an error, all data
/// of successful calls is found, and the other operations work once there is room.
#[test]
fn a_full_disk_loses_nothing() {
    let seed = seed();
    let scripts = number("FSLAB_CRASH_SCRIPTS").unwrap_or(3);
    for number in 0..scripts {
        let layer = LAYERS[number as usize % LAYERS.len()];
        let calls = (1..).take_while(|call| full_at(layer, *call, seed.wrapping_add(number)));
        let calls = calls.count();
        assert!(calls > 10, "{layer}: only {calls} calls could fail");
        eprintln!("{layer}: full at each of {calls} calls");
    }
}

/// Returns whether the script met a full disk at all.
fn full_at(layer: &str, call: u64, seed: u64) -> bool {
    let layer = crate::layer(layer);
    let crash = Arc::new(CrashFs::default());
    let rule = format!("write|create|setxattr|rename|copy_file_range nth {call} error ENOSPC");
    let program = Program::parse("full", &rule, 0).unwrap();
    let fault = Arc::new(Fault::new(crash.clone(), program, Box::new(|_, _| Ok(()))));
    let below: Arc<dyn FileSystem> = fault.clone();
    // A disk that is full from the start can't be mounted.
    let built = match layer.build(Arc::clone(&below)) {
        Ok(built) => built,
        Err(error) => {
            assert!(error.to_string().contains("No space left"), "{error}");
            return true;
        }
    };
    let client = Client::new(&*built);
    let (mut diary, ended) = Script::run(&crash, &client, &|| (), (seed, STEPS));
    let told = ended.map_err(|error| error.errno());
    assert!(matches!(told, Ok(()) | Err(Errno::NOSPC)), "{told:?}");
    let struck = fault.counts().iter().any(|rule| rule.struck > 0);
    diary.confirm();
    let shut = built.shutdown().map_err(|error| error.errno());
    assert!(matches!(shut, Ok(()) | Err(Errno::NOSPC)), "{shut:?}");
    let memory: Arc<dyn FileSystem> = crash;
    // The number is a multiple of 16, so that the check also writes to the files.
    if let Err(problem) = check(&layer, &memory, &diary, usize::MAX / 16 * 16) {
        let steps: Vec<_> = diary.steps.iter().map(|(_, step)| step.as_str()).collect();
        panic!("FSLAB_SEED={seed}, call {call}, told {told:?}: {problem}\n{}", steps.join("\n"));
    }
    struck
}

/// Tests the harness with the layer `null`, which only forwards calls. All synced data must be
/// found. If the layer skips syncs, the harness must detect it.
#[test]
fn null_layer_keeps_synced_data() {
    let seed = seed();
    for round in 0..3 {
        let answer = explore(&Case::once("null", seed + round), None);
        assert!(answer.is_ok(), "{}", answer.unwrap_err());
    }
    let no_sync = &MUTANTS[0];
    assert!((0..6).any(|round| explore(&Case::once("null", seed + round), Some(no_sync)).is_err()));
}
