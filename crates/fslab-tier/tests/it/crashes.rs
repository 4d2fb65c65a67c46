//! The power fails at every point of archiving, releasing, recalling, changing, renaming, repairing
//! and expiring.
//!
//! Afterwards the archives and the catalogue are in the state of that moment, and these checks must
//! pass:
//!
//! - Every byte, time and name of a file is one that it had at or after its last sync.
//! - Archiving, releasing and recalling once more changes nothing.
//! - A scan and an expiry remove every unneeded object, and no needed byte.
//! - The state that was found is kept, even if the power fails again during these checks.
//!
//! Each script runs with holes in place of released bytes, and with poison.
//!
//! `FSLAB_TIER_SCRIPTS` sets the number of scripts, `FSLAB_SEED` the seed. In one of
//! `FSLAB_TIER_AGAIN` states (default 64), the power fails once more.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::archive::{Archive, ContainerKind};
use fslab_tier::catalogue::{ObjectRow, ObjectState};
use fslab_tier::object::reader::ObjectReader;
use fslab_tier::stored::Marks;
use fslab_tier::{Found, Id, WalkEntry, own_request};
use fslab_vfs::{FileSystem, Ino, OpenMode, Timestamp};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::history::{are_bytes_of, is_size_of};
use fslab_vfs_testing::crash::{Order, Plan, State};
use fslab_vfs_testing::environment::{number, seed};

use mutants::{
    AFTER_SYNC_OF_ALL, MUTANTS, Mutant, Plant, first_sync_of_all_fails, interrupted_after_a_sync,
    second_sync_of_all_fails, with_false_sync_of_all, without_sync_of_all, without_sync_of_marks,
};
use script::{Diary, NAMES, Script};
use world::{Life, Moment, World};

mod mutants;
mod script;
mod world;

/// The number of scripts in a run, and of steps in a script.
const SCRIPTS: u64 = 6;
const STEPS: usize = 16;

/// The inverse of the fraction of states in which the power fails once more.
const CRASHED_AGAIN: u64 = 64;

/// The seed of the first of the scripts that find the planted bugs.
const PLANTED_SEED: u64 = 1;

/// The maximum number of scripts that are tried for a planted bug.
const ROUNDS: u64 = 30;

/// A script, and the choice of states that are checked.
#[derive(Clone, Copy)]
struct Case {
    seed: u64,
    order: Order,
    plan: Plan,
    /// The inverse of the fraction of states in which the power fails once more; 0 for none.
    again: u64,
    /// The planted fault of the archives, if any.
    archives: Archives,
    /// The number of archives. Each archive has a copy of everything.
    copies: u8,
    /// Whether released files get poison instead of holes.
    poison: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Archives {
    Sound,
    /// The archives keep deleted containers.
    Leak,
    /// A bundle is reported as stored before it is durable. The effect is the same as if files
    /// referred to it too early.
    Hasten,
}

impl Case {
    fn of(seed: u64) -> Self {
        let order = if seed.is_multiple_of(2) { Order::Independent } else { Order::Journal };
        let again = number("FSLAB_TIER_AGAIN").unwrap_or(CRASHED_AGAIN);
        let plan = Plan { seed, subsets: 3, prefixes: 3 };
        let copies = if seed % 4 < 2 { 1 } else { 2 };
        Self { seed, order, plan, again, archives: Archives::Sound, copies, poison: false }
    }

    fn planted(seed: u64) -> Self {
        let plan = Plan { seed, subsets: 6, prefixes: 3 };
        let (order, archives) = (Order::Independent, Archives::Sound);
        Self { seed, order, plan, again: 0, archives, copies: 1, poison: false }
    }
}

#[test]
fn files_survive_a_crash_at_every_event() {
    let seed = seed();
    let scripts = number("FSLAB_TIER_SCRIPTS").unwrap_or(SCRIPTS);
    let (mut states, mut copied) = (0, 0);
    for seed in (0..scripts).map(|script| seed.wrapping_add(script)) {
        let case = Case::of(seed);
        for poison in [false, true] {
            match explore(&Case { poison, ..case }, None) {
                Ok(count) => states += count,
                Err(problem) => panic!("FSLAB_SEED={seed}, poison {poison}: {problem}"),
            }
        }
        copied += u64::from(case.copies > 1);
    }
    eprintln!(
        "{states} states after {scripts} scripts with holes and with poison, {copied} of them with \
         two archives"
    );
}

#[test]
fn planted_bugs_are_caught() {
    let mut planted = Planted { sound: BTreeMap::new() };
    let mut missed = Vec::new();
    for mutant in MUTANTS {
        match (mutant.script..mutant.script + ROUNDS).find_map(|script| planted.by(mutant, script))
        {
            Some(how) => eprintln!("{}: caught: {how}\n", mutant.bug),
            None => missed.push(mutant.bug),
        }
    }
    for (archives, bug) in [
        (Archives::Leak, "archives keep unneeded containers"),
        (Archives::Hasten, "files refer to a bundle before it is durable"),
    ] {
        let case = |script| Case { archives, ..Case::planted(PLANTED_SEED + script) };
        if !(0..ROUNDS).any(|script| explore(&case(script), None).is_err()) {
            missed.push(bug);
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:#?}");
}

/// Archives the files `a` and `b` in one bundle.
fn bundle(life: &Life) {
    let request = own_request();
    let mut archiver = life.tier.archiver(&request, None, None);
    for name in NAMES {
        let found = Found::at(life.tier.lower(), name.as_bytes()).unwrap();
        let place = WalkEntry { path: name.as_bytes(), found: &found };
        archiver.archive(&place, &mut |_, outcome| outcome.map(drop)).unwrap();
    }
    archiver.finish(&mut |_, outcome| outcome.map(drop)).unwrap();
}

/// A program reads an offline file between the two syncs of a bundle. The files are archived a
/// second time, because truncating them changed them without a recall.
#[test]
fn block_recalled_while_a_bundle_is_recorded_survives_a_power_cut() {
    let world = World::new(1, false);
    let life = world.live(Some(interrupted_after_a_sync));
    let client = Client::new(&*life.fs);
    let contents = |name: &str| name.repeat(5000).into_bytes();
    for name in NAMES {
        client.file(Ino::ROOT, name, &contents(name)).unwrap();
    }
    bundle(&life);
    for name in NAMES {
        let ino = client.lookup(Ino::ROOT, name).unwrap().ino;
        assert!(life.tier.release(ino, name.as_bytes(), 0).unwrap().bytes > 0);
        client.truncate(ino, 5000).unwrap();
    }
    // The files are still offline.
    for name in NAMES {
        let found = Found::at(life.tier.lower(), name.as_bytes()).unwrap();
        let residency = Marks::Trusted.read(&**life.tier.lower(), found.ino()).unwrap().unwrap();
        assert!(residency.is_changed() && residency.is_stub(), "{residency:?}");
    }
    let start = world.crash.position();
    let (reader, has_read) = (Arc::clone(&life.fs), Arc::new(AtomicBool::default()));
    let seen = Arc::clone(&has_read);
    *AFTER_SYNC_OF_ALL.lock() = Some(Box::new(move || {
        let client = Client::new(&*reader);
        let ino = client.lookup(Ino::ROOT, NAMES[0]).unwrap().ino;
        assert_eq!(client.contents(ino).unwrap().len(), 5000);
        seen.store(true, Ordering::SeqCst);
    }));
    bundle(&life);
    assert!(has_read.load(Ordering::SeqCst), "the bundle was not synced as a whole");
    let mut visit = |state: &State| {
        let tree: Arc<dyn FileSystem> = Arc::new(state.open().unwrap());
        let (life, _) = world.moment(state.point).live(tree, true);
        let client = Client::new(&*life.fs);
        for name in NAMES {
            let ino = client.lookup(Ino::ROOT, name).map_err(|error| error.to_string())?.ino;
            if client.contents(ino).map_err(|error| error.to_string())? != contents(name) {
                return Err(format!("{name} has other contents"));
            }
        }
        Ok(())
    };
    let plan = Plan { seed: seed(), subsets: 200, prefixes: 3 };
    let log = world.log();
    let states = log.for_each_state(Order::Independent, &plan, &|at| at >= start, &mut visit);
    assert!(states.unwrap() > 0);
}

/// Archives files in a bundle. Returns the number of states after a power cut in which a file lacks
/// its residency, and the number of all states.
fn unarchived_after_a_bundle(plant: Option<Plant>) -> (usize, usize) {
    let world = World::new(1, false);
    let life = world.live(plant);
    let client = Client::new(&*life.fs);
    for name in NAMES {
        client.file(Ino::ROOT, name, name.repeat(5000).as_bytes()).unwrap();
    }
    client.sync_directory(Ino::ROOT).unwrap();
    bundle(&life);
    let end = world.crash.position();
    let mut lacking = 0;
    let mut visit = |state: &State| {
        let tree: Arc<dyn FileSystem> = Arc::new(state.open().unwrap());
        let is_archived = |name: &&str| {
            let found = Found::at(&tree, name.as_bytes());
            found.is_ok_and(|found| Marks::Trusted.read(&*tree, found.ino()).unwrap().is_some())
        };
        lacking += usize::from(!NAMES.iter().all(is_archived));
        Ok::<(), String>(())
    };
    let plan = Plan { seed: seed(), subsets: 6, prefixes: 3 };
    let log = world.log();
    let states = log.for_each_state(Order::Independent, &plan, &|point| point >= end, &mut visit);
    (lacking, states.unwrap())
}

#[test]
fn bundled_files_are_still_archived_after_a_power_cut() {
    let (lacking, states) = unarchived_after_a_bundle(None);
    assert!(lacking == 0 && states > 0, "{lacking} of {states}");
    // If syncs of the whole tree do nothing or fail, each file is synced.
    let plants: [Plant; 3] =
        [without_sync_of_all, first_sync_of_all_fails, second_sync_of_all_fails];
    for (case, plant) in plants.into_iter().enumerate() {
        let (lacking, states) = unarchived_after_a_bundle(Some(plant));
        assert!(lacking == 0 && states > 0, "case {case}: {lacking} of {states}");
    }
    let (lacking, states) = unarchived_after_a_bundle(Some(without_sync_of_marks));
    assert!(lacking > 0, "the planted bug is not found in {states} states");
}

/// Moves the object of a file to a new bundle. Returns the number of states after a power cut in
/// which the file's contents are lost, and the number of all states.
fn lost_after_a_move(plant: Plant) -> (usize, usize) {
    let world = World::new(1, false);
    let life = world.live(Some(plant));
    let (client, request) = (Client::new(&*life.fs), own_request());
    let kept = b"kept".repeat(100);
    client.file(Ino::ROOT, "a", &kept).unwrap();
    let changed = client.file(Ino::ROOT, "b", &b"changed".repeat(5000)).unwrap();
    client.sync_directory(Ino::ROOT).unwrap();
    bundle(&life);
    let ino = client.lookup(Ino::ROOT, "a").unwrap().ino;
    assert!(life.tier.release(ino, b"a", 0).unwrap().bytes > 0);
    let file = client.open(changed, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"again").unwrap();
    file.close().unwrap();
    life.tier.archive(changed, b"b", &request).unwrap();
    let object = |life: &Life| {
        let lower = life.tier.lower();
        let found = Found::at(lower, b"a").unwrap();
        Marks::Trusted.read(&**lower, found.ino()).unwrap().unwrap().object()
    };
    let before = object(&life);
    for _ in 0..2 {
        life.tier.scan(&request).unwrap();
        life.tier.expire(&request).unwrap();
    }
    assert_ne!(object(&life), before, "the object was not moved");
    let (end, mut lost) = (world.crash.position(), 0);
    let mut visit = |state: &State| {
        let tree: Arc<dyn FileSystem> = Arc::new(state.open().unwrap());
        let (life, _) = world.moment(state.point).live(tree, true);
        let client = Client::new(&*life.fs);
        let ino = client.lookup(Ino::ROOT, "a").unwrap().ino;
        lost += usize::from(client.contents(ino).ok().as_ref() != Some(&kept));
        Ok::<(), String>(())
    };
    let plan = Plan { seed: seed(), subsets: 20, prefixes: 3 };
    let log = world.log();
    let states = log.for_each_state(Order::Independent, &plan, &|point| point >= end, &mut visit);
    (lost, states.unwrap())
}

#[test]
fn moved_object_survives_a_power_cut_where_a_sync_of_all_does_nothing() {
    let (lost, states) = lost_after_a_move(without_sync_of_all);
    assert!(lost == 0 && states > 0, "{lost} of {states}");
    let (lost, states) = lost_after_a_move(with_false_sync_of_all);
    assert!(lost > 0, "the planted bug is not found in {states} states");
}

/// A search for planted bugs by the scripts from [`PLANTED_SEED`] on.
struct Planted {
    /// Whether a script passes without a planted bug, by script and poison. If not, its failure
    /// with the bug proves nothing.
    sound: BTreeMap<(u64, bool), bool>,
}

impl Planted {
    /// Returns the failure by which a script finds a planted bug, or `None` if it misses the bug.
    fn by(&mut self, mutant: &Mutant, script: u64) -> Option<String> {
        let poison = mutant.poison;
        let case = Case { poison, ..Case::planted(PLANTED_SEED + script) };
        let problem = explore(&case, Some(mutant)).err()?;
        let is_sound = || explore(&case, None).is_ok();
        let is_sound = *self.sound.entry((script, poison)).or_insert_with(is_sound);
        let found = problem.lines().next().map(|line| format!("by script {script}: {line}"));
        found.filter(|_| is_sound)
    }
}

/// Runs a script and checks states after a crash; returns their number.
fn explore(case: &Case, mutant: Option<&Mutant>) -> Result<usize, String> {
    let world = World::new(case.copies, case.poison);
    world.hasten(case.archives == Archives::Hasten);
    let life = world.live(mutant.map(|mutant| mutant.plant));
    let client = Client::new(&*life.fs);
    let start = world.crash.position();
    let diary = Script::run(&world.crash, &life.tier, &client, (case.seed, STEPS));
    let mut seen = HashSet::new();
    let mut visit = |state: &State| {
        let through = diary.steps.iter().filter(|(end, _)| *end <= state.point).count();
        let moment = world.moment(state.point);
        // A state that was checked before with the same allowed contents is skipped.
        if !seen.insert((state.fingerprint, through, moment.position())) {
            return Ok(());
        }
        let is_crashed_again = case.again > 0 && state.fingerprint.is_multiple_of(case.again);
        let again =
            || if is_crashed_again { crashes_again(&moment, state, case.order) } else { Ok(()) };
        let checked = check(&moment, state, &diary, case.archives).and_then(|()| again());
        checked.map_err(|problem| with_steps(&problem, &diary))
    };
    let wanted = |point| point >= start;
    world.log().for_each_state(case.order, &case.plan, &wanted, &mut visit)
}

fn with_steps(problem: &str, diary: &Diary) -> String {
    let steps = diary.steps.iter().map(|(end, step)| format!("  until event {end}: {step}"));
    format!("{problem}\n{}", steps.collect::<Vec<_>>().join("\n"))
}

/// Checks that a state after a crash has allowed contents, and that an engine can continue with it.
fn check(moment: &Moment, state: &State, diary: &Diary, planted: Archives) -> Result<(), String> {
    let tree: Arc<dyn FileSystem> = Arc::new(state.open().unwrap());
    is_closed(&tree)?;
    // In every third state the catalogue is lost too.
    let has_catalogue = !state.fingerprint.is_multiple_of(3);
    let (life, archives) = moment.live(Arc::clone(&tree), has_catalogue);
    archives.iter().for_each(|archive| {
        archive.faults().keeps.store(planted == Archives::Leak, Ordering::SeqCst)
    });
    let found = found(&life, &tree).map_err(|error| format!("can't be read: {error}"))?;
    for name in NAMES {
        let candidates = diary.candidates(name, state.point);
        let fits = |candidate: &Option<usize>| is_allowed(&found, name, *candidate, diary, state);
        let problems: Vec<String> =
            candidates.iter().map_while(|candidate| fits(candidate).err()).collect();
        if problems.len() == candidates.len() {
            return Err(problems.join("; or "));
        }
    }
    goes_on(&life, &tree, &archives, &found)
}

/// Checks that programs cannot access the lower files, which may read as zeros.
fn is_closed(tree: &Arc<dyn FileSystem>) -> Result<(), String> {
    let root = tree.getattr(&own_request(), Ino::ROOT, None).map_err(|error| error.to_string())?;
    let kept = Marks::Trusted.read_mode(&**tree);
    let kept = kept.map_err(|error| error.to_string())?;
    match (root.permissions.bits() & 0o777, kept) {
        (0o400, Some(_)) => Ok(()),
        (mode, kept) => Err(format!("the root has mode {mode:o}, and keeps {kept:?}")),
    }
}

/// A file as found after a crash.
#[derive(Clone, Debug, PartialEq)]
struct File {
    name: String,
    bytes: Vec<u8>,
    /// `None` for a file that was being changed.
    modified: Option<Timestamp>,
}

fn found(life: &Life, tree: &Arc<dyn FileSystem>) -> fslab_vfs::Result<Vec<File>> {
    let client = Client::new(&*life.fs);
    let look = |name: String| {
        let attr = client.lookup(Ino::ROOT, &name)?;
        let known = Marks::Trusted.read(&**tree, attr.ino).unwrap();
        let is_changed = known.is_some_and(|known| known.is_changed());
        Ok((
            attr.ino,
            File { name, bytes: Vec::new(), modified: (!is_changed).then_some(attr.modified) },
        ))
    };
    // All attributes are read before any file, because reading a file by its first name may make it
    // appear changed under its second name.
    let looked: Vec<_> =
        client.names(Ino::ROOT)?.into_iter().map(look).collect::<fslab_vfs::Result<_>>()?;
    let read = |(ino, file)| Ok(File { bytes: client.contents(ino)?, ..file });
    looked.into_iter().map(read).collect()
}

fn is_allowed(
    found: &[File],
    name: &str,
    candidate: Option<usize>,
    diary: &Diary,
    state: &State,
) -> Result<(), String> {
    let file = found.iter().find(|file| file.name == name);
    let (file, id) = match (file, candidate) {
        (None, None) => return Ok(()),
        (None, Some(id)) => return Err(format!("{name}, file {id}, is missing")),
        (Some(_), None) => return Err(format!("{name} reappeared")),
        (Some(file), Some(id)) => (file, id),
    };
    let versions = diary.versions(id, state.point);
    let right = is_size_of(file.bytes.len(), &versions)
        .and_then(|()| are_bytes_of(&file.bytes, 0, &versions));
    right.map_err(|problem| format!("{name} as file {id}: {problem}"))?;
    match file.modified {
        Some(time) if !diary.may_have_time(id, state.point, time) => {
            Err(format!("{name} as file {id}: modified at {time:?}, which it never was"))
        }
        _ => Ok(()),
    }
}

/// Checks that the state does not change when files are archived, released and recalled once more,
/// and after a scan and an expiry.
fn goes_on(
    life: &Life,
    tree: &Arc<dyn FileSystem>,
    archives: &[Arc<MemoryArchive>],
    expected: &[File],
) -> Result<(), String> {
    let client = Client::new(&*life.fs);
    let request = own_request();
    mend(life)?;
    for file in expected {
        let ino = client.lookup(Ino::ROOT, &file.name).map_err(|error| error.to_string())?.ino;
        let told = |error: fslab_tier::Error| format!("{}: {error}", file.name);
        life.tier.archive(ino, file.name.as_bytes(), &request).map_err(told)?;
        life.tier.release(ino, file.name.as_bytes(), 0).map_err(told)?;
    }
    is_unchanged(life, tree, expected, "after one more release and recall")?;
    // The first scan finds unneeded objects. The second expiry completes what the first one began.
    for _ in 0..2 {
        life.tier.scan(&request).map_err(|error| format!("no scan: {error}"))?;
        life.tier.expire(&request).map_err(|error| format!("no expiry: {error}"))?;
    }
    holds_what_is_needed(tree, archives)?;
    is_unchanged(life, tree, expected, "after an expiry")
}

/// Repairs copies that the power failure damaged; otherwise no file could be released.
fn mend(life: &Life) -> Result<(), String> {
    if life.tier.settings().copies == 1 {
        return Ok(());
    }
    // The scan finds files that a lost catalogue does not have.
    life.tier.scan(&own_request()).map_err(|error| format!("no scan: {error}"))?;
    let scrubbed = life.tier.scrub(&own_request()).map_err(|error| format!("no scrub: {error}"))?;
    // A known fault: an object that was begun and never stored may be reported as damaged until it
    // expires. This happens if a scan found that its file was removed.
    let mut needed = Vec::new();
    let note = &mut |row: ObjectRow| {
        needed.extend((row.state == ObjectState::Live).then_some(row.version.location.container));
        Ok(())
    };
    life.tier.catalogue().for_each(note).map_err(|error| error.to_string())?;
    let is_needed = |told: &String| needed.iter().any(|id| told.contains(&id.to_string()));
    match scrubbed.damaged.iter().find(|told| is_needed(told)) {
        None => Ok(()),
        Some(told) => Err(format!("not repaired: {told}")),
    }
}

fn is_unchanged(
    life: &Life,
    tree: &Arc<dyn FileSystem>,
    expected: &[File],
    when: &str,
) -> Result<(), String> {
    let again = found(life, tree).map_err(|error| format!("{when} can't be read: {error}"))?;
    for (before, after) in expected.iter().zip(&again) {
        let is_same_time = before.modified.is_none() || before.modified == after.modified;
        if (&before.name, &before.bytes, is_same_time) != (&after.name, &after.bytes, true) {
            let differs = before.bytes.iter().zip(&after.bytes).position(|(one, two)| one != two);
            let times = (before.modified, after.modified);
            return Err(format!("{when} {} is another: at {differs:?}, {times:?}", before.name));
        }
    }
    let counts = (expected.len(), again.len());
    if counts.0 == counts.1 { Ok(()) } else { Err(format!("{when} files are {counts:?}")) }
}

/// Checks that archives contain exactly the containers that files refer to, and the sources of the
/// objects in them.
fn holds_what_is_needed(
    tree: &Arc<dyn FileSystem>,
    archives: &[Arc<MemoryArchive>],
) -> Result<(), String> {
    let client = Client::new(&**tree);
    let mut needed = BTreeSet::new();
    for name in client.names(Ino::ROOT).map_err(|error| error.to_string())? {
        let ino = client.lookup(Ino::ROOT, &name).map_err(|error| error.to_string())?.ino;
        let known = Marks::Trusted.read(&**tree, ino).map_err(|error| error.to_string())?;
        let Some(place) = known.map(|known| known.location()) else { continue };
        let archive = Arc::clone(&archives[0]) as Arc<dyn Archive>;
        let object = ObjectReader::open_any(&archive, ContainerKind::Files, place);
        let object = object.map_err(|error| error.to_string())?;
        needed.insert(place.container);
        needed.extend(object.sources().iter().map(|source| Id(source.container)));
    }
    for archive in archives {
        let mut held: BTreeSet<Id> = BTreeSet::new();
        let listed = archive.list(ContainerKind::Files, &mut |id, _| {
            held.insert(id);
        });
        listed.map_err(|error| error.to_string())?;
        if held != needed {
            return Err(format!("archives hold {held:?}, and files name {needed:?}"));
        }
    }
    Ok(())
}

/// Checks that the state after a crash is kept if the power fails again. The second failure happens
/// while the engine repairs the effects of the first one, or while files are archived and recalled.
fn crashes_again(moment: &Moment, state: &State, order: Order) -> Result<(), String> {
    let world = World::after(moment, state);
    let start = world.crash.position();
    let tree: Arc<dyn FileSystem> = world.crash.clone();
    let life = world.live(None);
    let expected = found_twice(&life, &tree).map_err(|error| format!("once more: {error}"))?;
    let client = Client::new(&*life.fs);
    mend(&life)?;
    for file in &expected {
        let ino = client.lookup(Ino::ROOT, &file.name).unwrap().ino;
        life.tier.archive(ino, file.name.as_bytes(), &own_request()).unwrap();
        life.tier.release(ino, file.name.as_bytes(), 0).unwrap();
    }
    life.tier.scan(&own_request()).unwrap();
    life.tier.expire(&own_request()).unwrap();
    let mut visit = |state: &State| {
        let tree: Arc<dyn FileSystem> = Arc::new(state.open().unwrap());
        let (life, archives) = world.moment(state.point).live(Arc::clone(&tree), true);
        let mut expected = expected.clone();
        if order == Order::Independent {
            let again = found_twice(&life, &tree).map_err(|error| format!("after two: {error}"))?;
            forget_times(&mut expected, &again);
        }
        is_unchanged(&life, &tree, &expected, "after two crashes")?;
        goes_on(&life, &tree, &archives, &expected)
    };
    let plan = Plan { seed: 0, subsets: 2, prefixes: 2 };
    let wanted = |point| point >= start;
    world.log().for_each_state(order, &plan, &wanted, &mut visit).map(drop)
}

/// Reads all files twice, because the first read of a file may make it appear changed.
fn found_twice(life: &Life, tree: &Arc<dyn FileSystem>) -> fslab_vfs::Result<Vec<File>> {
    found(life, tree)?;
    found(life, tree)
}

/// Ignores the times of files that appear changed after a power cut, although their bytes are the
/// same. Some file systems do not order metadata changes. On these, a power cut may leave the
/// modification time that a recall has set, but neither the recalled bytes nor the `moving` flag.
fn forget_times(expected: &mut [File], again: &[File]) {
    for (before, after) in expected.iter_mut().zip(again) {
        if after.modified.is_none() {
            before.modified = None;
        }
    }
}
