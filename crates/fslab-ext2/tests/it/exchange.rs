//! Tests power cuts during the exchange of two names (`RENAME_EXCHANGE`).

use std::collections::HashSet;
use std::sync::Arc;

use fslab_ext2::{Ext2, MkfsOptions, VolumeOptions, mkfs};
use fslab_vfs::{BlockDevice, Ino, OpenMode, RenameMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::{CrashDevice, Plan};
use fslab_vfs_testing::environment::seed;

use crate::power::{image_of, repair};
use crate::support::{has, options};

const BYTES: u64 = 4 << 20;
const BLOCK: u32 = 1024;

/// The blocks and directories of the two exchanged names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Places {
    OneBlock,
    TwoBlocks,
    TwoDirectories,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    File,
    Directory,
}

/// The states found after power cuts, after e2fsck repaired each of them.
#[derive(Debug, Default)]
struct Outcome {
    states: usize,
    /// States in which neither name had changed.
    old: usize,
    /// States in which both names had changed.
    new: usize,
    /// States in which at least one inode was in lost+found.
    lost: usize,
}

struct Case {
    kind: Kind,
    /// The directory and name of each inode.
    names: [(&'static str, String); 2],
}

impl Case {
    fn new(kind: Kind, places: Places) -> Self {
        let name = |number: u32| format!("name{number:03}-{}", "x".repeat(60));
        let names = match places {
            Places::OneBlock => [("one", name(1)), ("one", name(2))],
            Places::TwoBlocks => [("one", name(1)), ("one", name(99))],
            Places::TwoDirectories => [("one", name(1)), ("other", name(2))],
        };
        Self { kind, names }
    }

    /// Makes directories of several blocks; each file or directory contains a text that identifies
    /// it.
    fn populate(&self, client: &Client<'_>) {
        for directory in ["one", "other"] {
            let ino = client.mkdir(Ino::ROOT, directory).unwrap();
            for number in 0..100 {
                let name = format!("name{number:03}-{}", "x".repeat(60));
                self.make(client, ino, &name, &format!("{directory}/{name}"));
            }
        }
    }

    fn make(&self, client: &Client<'_>, directory: Ino, name: &str, text: &str) {
        match self.kind {
            Kind::File => client.file(directory, name, text.as_bytes()).map(drop).unwrap(),
            Kind::Directory => {
                let inner = client.mkdir(directory, name).unwrap();
                client.file(inner, "text", text.as_bytes()).unwrap();
            }
        }
    }

    fn exchange(&self, client: &Client<'_>) {
        let [(one, name), (other, other_name)] = &self.names;
        let [one, other] = [one, other].map(|name| client.lookup(Ino::ROOT, name).unwrap().ino);
        client.rename_with(one, name, other, other_name, RenameMode::EXCHANGE).unwrap();
    }

    /// Reads the text that identifies an inode.
    fn text(&self, client: &Client<'_>, ino: Ino) -> Option<String> {
        let ino = match self.kind {
            Kind::File => ino,
            Kind::Directory => client.lookup(ino, "text").ok()?.ino,
        };
        String::from_utf8(client.contents(ino).ok()?).ok()
    }

    fn text_of_name(&self, client: &Client<'_>, number: usize) -> Option<String> {
        let (directory, name) = &self.names[number];
        let directory = client.lookup(Ino::ROOT, directory).unwrap().ino;
        self.text(client, client.lookup(directory, name).ok()?.ino)
    }

    /// Checks the state after a power cut. Both inodes must exist with their content, and all
    /// others must be unchanged.
    fn look(&self, client: &Client<'_>, outcome: &mut Outcome) -> Result<(), String> {
        let texts = self.names.clone().map(|(directory, name)| format!("{directory}/{name}"));
        let lost = client.lookup(Ino::ROOT, "lost+found").unwrap().ino;
        let lost: HashSet<String> = client
            .list(lost)
            .unwrap()
            .iter()
            .filter_map(|one| self.text(client, one.ino))
            .collect();
        let named = [0, 1].map(|number| self.text_of_name(client, number));
        for text in &texts {
            if !lost.contains(text) && !named.contains(&Some(text.clone())) {
                return Err(format!("{text} is missing: {named:?}, {lost:?}"));
            }
        }
        for text in named.iter().flatten() {
            if !texts.contains(text) {
                return Err(format!("a name stands for {text}"));
            }
        }
        // If one of two files is in lost+found, the other has both names. A directory has only one
        // name.
        let names = named.iter().flatten().count();
        if !lost.is_empty() && names != if self.kind == Kind::File { 2 } else { 1 } {
            return Err(format!("{lost:?} is in lost+found, and {named:?} are the names"));
        }
        outcome.states += 1;
        outcome.lost += usize::from(!lost.is_empty());
        let [one, other] = texts.map(Some);
        outcome.old += usize::from(named == [one.clone(), other.clone()]);
        outcome.new += usize::from(named == [other, one]);
        self.look_at_others(client)
    }

    fn look_at_others(&self, client: &Client<'_>) -> Result<(), String> {
        for directory in ["one", "other"] {
            let ino = client.lookup(Ino::ROOT, directory).unwrap().ino;
            for number in 0..100 {
                let name = format!("name{number:03}-{}", "x".repeat(60));
                if self.names.contains(&(directory, name.clone())) {
                    continue;
                }
                let found =
                    client.lookup(ino, &name).ok().and_then(|one| self.text(client, one.ino));
                if found != Some(format!("{directory}/{name}")) {
                    return Err(format!("{directory}/{name} is {found:?}"));
                }
            }
        }
        Ok(())
    }
}

/// The target of the sync after an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Synced {
    Everything,
    /// Another file in the same directory.
    Neighbour,
}

/// Cuts the power at all points during and after the sync that follows an exchange.
fn cut(kind: Kind, places: Places, what: Synced) -> Outcome {
    let case = Case::new(kind, places);
    let device = Arc::new(CrashDevice::new(BYTES, BLOCK.into()).unwrap());
    let made = MkfsOptions { bytes_per_inode: 4096, index: None, ..options(BLOCK) };
    mkfs(&*device, &made).unwrap();
    let shared: Arc<dyn BlockDevice> = device.clone();
    let ext2 = Ext2::open(shared, VolumeOptions::default()).unwrap();
    let client = Client::new(&ext2);
    case.populate(&client);
    ext2.sync().unwrap();
    let begin = device.position();
    case.exchange(&client);
    match what {
        Synced::Everything => ext2.sync().unwrap(),
        Synced::Neighbour => {
            let one = client.lookup(Ino::ROOT, "one").unwrap().ino;
            let file = client.file(one, "neighbour", b"").unwrap();
            client.open(file, OpenMode::READ_WRITE).unwrap().fsync(false).unwrap();
        }
    }
    let seed = seed();
    let plan = Plan { seed, subsets: 8, prefixes: 4 };
    let log = device.log();
    let points: HashSet<usize> =
        log.points_before_flushes().into_iter().filter(|point| *point > begin).collect();
    let see = |wanted: &dyn Fn(usize) -> bool| {
        let mut outcome = Outcome::default();
        let states = log.for_each_state(&plan, wanted, &mut |state| {
            let image = image_of(state, BYTES);
            repair(&image)?;
            image.check("repaired by e2fsck");
            case.look(&Client::new(&image.open()), &mut outcome)
        });
        states
            .unwrap_or_else(|problem| panic!("{kind:?}, {places:?}, FSLAB_SEED={seed}: {problem}"));
        outcome
    };
    let synced = see(&|point| point + 1 == log.points());
    assert_eq!((synced.new, synced.lost), (synced.states, 0), "{kind:?}, {places:?}: {synced:?}");
    see(&|point| points.contains(&point))
}

#[test]
fn names_of_one_block_are_exchanged_whole_or_not_at_all() {
    if !has("e2fsck") {
        return;
    }
    for kind in [Kind::File, Kind::Directory] {
        let outcome = cut(kind, Places::OneBlock, Synced::Everything);
        assert_eq!(outcome.old + outcome.new, outcome.states, "{kind:?}: {outcome:?}");
        assert_eq!(outcome.lost, 0, "{kind:?}: {outcome:?}");
    }
}

/// The guarantee for an exchange is limited: one of the two inodes may lose its name. That inode is
/// then in lost+found with its content.
#[test]
fn files_exchanged_across_blocks_survive_every_power_cut() {
    if !has("e2fsck") {
        return;
    }
    for kind in [Kind::File, Kind::Directory] {
        for places in [Places::TwoBlocks, Places::TwoDirectories] {
            let outcome = cut(kind, places, Synced::Everything);
            assert!(outcome.states > 0, "{kind:?}, {places:?}: {outcome:?}");
            let known = outcome.old + outcome.new + outcome.lost;
            assert_eq!(known, outcome.states, "{kind:?}, {places:?}: {outcome:?}");
            assert!(
                outcome.lost > 0,
                "nothing was lost, so the limit no longer exists: {kind:?}, {places:?}: {outcome:?}"
            );
        }
    }
}

/// After an fsync of another file in the same directory, the device has both exchanged names.
/// Writing only one of their blocks could leave an inode without a name.
#[test]
fn fsync_of_a_neighbour_writes_an_exchange_whole() {
    if !has("e2fsck") {
        return;
    }
    for places in [Places::OneBlock, Places::TwoBlocks, Places::TwoDirectories] {
        let outcome = cut(Kind::File, places, Synced::Neighbour);
        assert!(outcome.states > 0, "{places:?}: {outcome:?}");
    }
}
