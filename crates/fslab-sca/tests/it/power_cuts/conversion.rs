//! Tests of power cuts while a tree is encoded or decoded. After each of them, every name must
//! refer to its content, and the next run must complete the conversion.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::sync::Arc;

use fslab_layers::StackContext;
use fslab_layers::observe::fault::{Fault, Program};
use fslab_sca::convert::{Conversion, Direction, Outcome};
use fslab_vfs::{FileSystem, Ino, Name, OpenMode, RenameMode, Request, XattrMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::{CrashFs, Order, Plan, State};
use fslab_vfs_testing::environment::{number, seed};
use parking_lot::Mutex;

const LAYER: &str = "zstd:chunk=4KiB,level=1,threads=1,cache=0,pack=off";

/// The names in the test tree: a plain file, one with two names, one with a hole, and a stored file
/// of another tree.
const NAMES: [&str; 5] = ["plain", "first", "second", "sparse", LOOKALIKE];

const LOOKALIKE: &str = "lookalike";

/// Returns the decoded content of the stored file of another tree.
fn inner() -> Vec<u8> {
    b"it was the season of light, ".repeat(200)
}

fn lookalike() -> Vec<u8> {
    static STORED: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    STORED.get_or_init(|| crate::sca::identity::stored(&inner()).0).clone()
}

/// Returns the content that a name must have.
fn content(name: &str) -> Vec<u8> {
    let words = |length: usize, text: &[u8]| text.iter().copied().cycle().take(length).collect();
    match name {
        "plain" => words(9000, b"It was the best of times, "),
        LOOKALIKE => lookalike(),
        "sparse" => [vec![0; 20_000], words(3000, b"it was the age of wisdom, ")].concat(),
        _ => words(6000, b"it was the epoch of belief, "),
    }
}

#[test]
fn conversions_hold_after_a_crash_at_every_event() {
    let seed = seed();
    let is_full = number("FSLAB_CRASH_FULL") == Some(1);
    let plan = if is_full { Plan::full(seed) } else { Plan::quick(seed) };
    for direction in [Direction::Encode, Direction::Decode] {
        for order in [Order::Independent, Order::Journal] {
            match explore(direction, order, &plan, |below| below) {
                Ok(states) => eprintln!("{direction:?}, {order:?}: {states} states"),
                Err(problem) => panic!("{direction:?}, {order:?}: {problem}"),
            }
        }
    }
}

/// Bugs that the test plants between the conversion and the disk.
const BUGS: [(&str, Plant, &[Direction]); 4] = [
    ("copies are not made durable", unsynced, &BOTH),
    ("names are not exchanged atomically", in_two_steps, &BOTH),
    ("records are not made durable", unsynced_directories, &BOTH),
    ("the record of the run is not written", without_record, &[Direction::Encode]),
];

const BOTH: [Direction; 2] = [Direction::Encode, Direction::Decode];

type Plant = fn(Arc<dyn FileSystem>) -> Arc<dyn FileSystem>;

/// Seed of a plan that detects all planted bugs.
const PLANTED_SEED: u64 = 1;

#[test]
fn planted_bugs_of_conversions_are_caught() {
    let plan = Plan::full(PLANTED_SEED);
    for (bug, plant, directions) in BUGS {
        for direction in directions {
            let problem = explore(*direction, Order::Independent, &plan, plant);
            let problem = problem.expect_err(bug);
            eprintln!("{bug}, {direction:?}: {}", problem.lines().next().unwrap());
            let is_found = ["after the crash", "after resuming", "without a mount"]
                .iter()
                .any(|when| problem.starts_with(when));
            assert!(is_found, "{bug}, {direction:?}: {problem}");
        }
    }
}

fn unsynced_directories(below: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
    let program = Program::parse("planted", "fsyncdir skip", 0).unwrap();
    Arc::new(Fault::new(below, program, Box::new(|_, _| Ok(()))))
}

fn without_record(below: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
    Arc::new(WithoutRecord(below))
}

/// A file system that loses the record of the run.
struct WithoutRecord(Arc<dyn FileSystem>);

impl FileSystem for WithoutRecord {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.0)
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> fslab_vfs::Result<()> {
        match name == "user.fslab.sca.run" {
            true => Ok(()),
            false => self.0.setxattr(request, ino, name, value, mode),
        }
    }
}

fn unsynced(below: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
    let program = Program::parse("planted", "fsync skip", 0).unwrap();
    Arc::new(Fault::new(below, program, Box::new(|_, _| Ok(()))))
}

fn in_two_steps(below: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
    Arc::new(InTwoSteps(below))
}

/// A file system that performs an atomic exchange in two steps, so a name is missing in between.
struct InTwoSteps(Arc<dyn FileSystem>);

impl FileSystem for InTwoSteps {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.0)
    }

    fn rename(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> fslab_vfs::Result<()> {
        if mode != RenameMode::EXCHANGE {
            return self.0.rename(request, parent, name, new_parent, new_name, mode);
        }
        self.0.unlink(request, parent, name)?;
        let mode = RenameMode::empty();
        self.0.rename(request, new_parent, new_name, parent, name, mode)
    }
}

/// Converts a tree and checks every state that a crash may leave; returns the number of states.
fn explore(direction: Direction, order: Order, plan: &Plan, plant: Plant) -> Result<usize, String> {
    let crash = Arc::new(CrashFs::default());
    make_tree(&*crash);
    if direction == Direction::Decode {
        let below: Arc<dyn FileSystem> = crash.clone();
        convert(&below, Direction::Encode)?;
    }
    crash.settle().unwrap();
    let start = crash.position();
    let originals = inodes(&*crash);
    convert(&plant(crash.clone()), direction)?;
    let mut seen = HashSet::new();
    let mut visit = |state: &State| match seen.insert(state.fingerprint) {
        true => check(state, direction, &originals),
        false => Ok(()),
    };
    crash.log().for_each_state(order, plan, &|point| point >= start, &mut visit)
}

/// Returns the inode of each name.
fn inodes(fs: &dyn FileSystem) -> Vec<(&'static str, Ino)> {
    let client = Client::new(fs);
    NAMES.iter().map(|name| (*name, client.lookup(Ino::ROOT, name).unwrap().ino)).collect()
}

fn make_tree(fs: &dyn FileSystem) {
    let client = Client::new(fs);
    for name in ["plain", "first", "sparse", LOOKALIKE] {
        let (_, file) = client.create(Ino::ROOT, name, 0o640, OpenMode::EXCLUSIVE).unwrap();
        let bytes = content(name);
        let start = bytes.iter().position(|byte| *byte != 0).unwrap();
        file.write_all(start as u64, &bytes[start..]).unwrap();
        file.close().unwrap();
    }
    let first = client.lookup(Ino::ROOT, "first").unwrap().ino;
    client.link(first, Ino::ROOT, "second").unwrap();
}

fn convert(below: &Arc<dyn FileSystem>, direction: Direction) -> Result<(), String> {
    let (layer, around) = (crate::layer(LAYER), StackContext::default());
    let conversion = Conversion::over(Arc::clone(below), &layer, direction, &around);
    let conversion = conversion.map_err(|error| format!("can't begin: {error}"))?;
    let kept = Mutex::new(Vec::new());
    let told = conversion.run(1, &|path, outcome| {
        if let Outcome::Kept(why) = outcome {
            kept.lock().push(format!("{}: {why}", path.display()));
        }
    });
    told.map_err(|error| format!("can't finish: {error}"))?;
    let kept = kept.into_inner();
    if kept.is_empty() { Ok(()) } else { Err(format!("not converted: {kept:?}")) }
}

/// Checks a state after a crash: all files are complete, and the conversion can be resumed, with or
/// without a mount in between.
fn check(state: &State, direction: Direction, originals: &[(&str, Ino)]) -> Result<(), String> {
    let open = || -> Arc<dyn FileSystem> {
        let found: Arc<dyn FileSystem> = Arc::new(state.open().unwrap());
        renumber(&*found, direction, originals);
        found
    };
    let found = open();
    let has_begun = direction == Direction::Decode || is_any_encoded(&*found);
    let seen = all_there(&found).map_err(|problem| format!("after the crash: {problem}"))?;
    if seen == Lookalike::Decoded && has_begun && !is_plain(&*open()) {
        return Err("after the crash: a stored file as content is decoded".to_owned());
    }
    convert(&found, direction).map_err(|problem| format!("after resuming: {problem}"))?;
    let kept = all_there(&found).map_err(|problem| format!("after resuming: {problem}"))?;
    if kept != seen && direction == Direction::Encode {
        return Err(format!("after resuming: a mount showed the lookalike {seen:?}, now {kept:?}"));
    }
    are_names_right(&*found)?;
    is_the_identity(&open(), direction).map_err(|problem| format!("without a mount: {problem}"))?;
    if !has_begun {
        return Ok(());
    }
    let other = match direction {
        Direction::Encode => Direction::Decode,
        Direction::Decode => Direction::Encode,
    };
    is_the_identity(&open(), other).map_err(|problem| format!("then {other:?}: {problem}"))
}

fn are_names_right(found: &dyn FileSystem) -> Result<(), String> {
    let client = Client::new(found);
    let mut names = client.names(Ino::ROOT).unwrap();
    names.sort();
    if names != ["first", LOOKALIKE, "plain", "second", "sparse"] {
        return Err(format!("after resuming, the names are {names:?}"));
    }
    let linked = ["first", "second"].map(|name| client.lookup(Ino::ROOT, name).unwrap());
    match (linked[0].ino == linked[1].ino, linked[0].links) {
        (true, 2) => Ok(()),
        other => Err(format!(
            "after resuming, the names of one file refer to different inodes: {other:?}"
        )),
    }
}

/// Completes the conversion, decodes the tree, and checks that it equals the original tree.
fn is_the_identity(found: &Arc<dyn FileSystem>, direction: Direction) -> Result<(), String> {
    convert(found, direction)?;
    if direction == Direction::Encode {
        convert(found, Direction::Decode)?;
    }
    are_names_right(&**found)?;
    let client = Client::new(&**found);
    for name in NAMES {
        let attr = client.lookup(Ino::ROOT, name).unwrap();
        if client.contents(attr.ino).unwrap() != content(name) {
            return Err(format!("{name} holds other bytes"));
        }
        let xattrs = client.listxattr(attr.ino).unwrap();
        if !xattrs.is_empty() || attr.permissions.bits() != 0o640 {
            return Err(format!("{name}: {xattrs:?}, {:o}", attr.permissions.bits()));
        }
    }
    Ok(())
}

fn is_any_encoded(found: &dyn FileSystem) -> bool {
    let client = Client::new(found);
    NAMES.iter().any(|name| {
        let ino = client.lookup(Ino::ROOT, name).map(|attr| attr.ino);
        ino.is_ok_and(|ino| client.contents(ino).unwrap() != content(name))
    })
}

/// Whether the xattr of the tree marks all its files as plain and no file is still encoded. Then a
/// decoding is almost complete.
fn is_plain(found: &dyn FileSystem) -> bool {
    let tree = Client::new(found).getxattr(Ino::ROOT, "user.fslab.sca.tree");
    tree.is_ok_and(|value| value[1] & 2 != 0 && !is_any_encoded(found))
}

/// Corrects the original's inode number in the xattr of an incomplete copy and in a temporary name.
/// On a disk, files keep their numbers, but the rebuilt state of a test assigns new ones.
fn renumber(fs: &dyn FileSystem, direction: Direction, originals: &[(&str, Ino)]) {
    let (client, name) = (Client::new(fs), OsStr::new("trusted.fslab.convert"));
    for (number, left) in (0_u64..).zip(client.names(Ino::ROOT).unwrap()) {
        if let Some(digits) = left.strip_prefix(COPY_NAME) {
            let ino = client.lookup(Ino::ROOT, &left).unwrap().ino;
            let is_original = is_original(&client.contents(ino).unwrap(), direction);
            let before = Ino(u64::from_str_radix(digits, 16).unwrap());
            let is_its_name = |(_, ino): &&(&str, Ino)| *ino == before;
            let original = originals.iter().find(is_its_name).map(|(name, _)| *name);
            let now = original.and_then(|name| client.lookup(Ino::ROOT, name).ok());
            let number = match is_original {
                true => ino.0,
                false => now.map_or(u64::MAX - number, |attr| attr.ino.0),
            };
            let right = format!("{COPY_NAME}{number:016x}");
            client.rename(Ino::ROOT, &left, Ino::ROOT, &right).unwrap();
        }
    }
    let [first, second] =
        ["first", "second"].map(|name| client.lookup(Ino::ROOT, name).map(|attr| attr.ino));
    let (Ok(first), Ok(second)) = (first, second) else { return };
    for (copy, original) in [(first, second), (second, first)] {
        let number = if copy == original { u64::MAX } else { original.0 };
        if fs.getxattr(&client.request(), copy, name).is_ok() {
            let (value, mode) = (number.to_le_bytes(), XattrMode::empty());
            fs.setxattr(&client.request(), copy, name, &value, mode).unwrap();
        }
    }
}

const COPY_NAME: &str = ".fslab-convert-";

/// Whether a file is an original. When encoding, it is complete and plain. When decoding, it does
/// not begin like a plain file or like a part of one.
fn is_original(found: &[u8], direction: Direction) -> bool {
    let is_part_of = |content: &[u8]| {
        let mut pairs = found.iter().zip(content).take(128);
        pairs.all(|(found, whole)| *found == 0 || found == whole)
    };
    match direction {
        Direction::Encode => NAMES.iter().any(|name| content(name) == found),
        Direction::Decode => !NAMES.iter().any(|name| is_part_of(&content(name))),
    }
}

/// The form in which a mount shows the stored file of another tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lookalike {
    AsItIs,
    Decoded,
}

/// Whether each name has its content when seen through a layer, which shows plain files unchanged.
fn all_there(below: &Arc<dyn FileSystem>) -> Result<Lookalike, String> {
    let mut seen = Lookalike::AsItIs;
    let layer = crate::layer(LAYER);
    let built = layer.build(Arc::clone(below)).map_err(|error| format!("can't mount: {error}"))?;
    let client = Client::new(&*built);
    for name in NAMES {
        let told = |error: fslab_vfs::Error| format!("{name}: {error}");
        let attr = client.lookup(Ino::ROOT, name).map_err(told)?;
        let found = client.contents(attr.ino).map_err(told)?;
        let expected = content(name);
        if name == LOOKALIKE && found == inner() {
            seen = Lookalike::Decoded;
        } else if found != expected {
            let same = found.iter().zip(&expected).take_while(|(one, other)| one == other).count();
            return Err(format!("{name}: {} bytes, right up to {same}", found.len()));
        }
        if attr.permissions.bits() != 0o640 {
            return Err(format!("{name}: permissions {:o}", attr.permissions.bits()));
        }
    }
    built.shutdown().map_err(|error| format!("can't shut down: {error}"))?;
    Ok(seen)
}
