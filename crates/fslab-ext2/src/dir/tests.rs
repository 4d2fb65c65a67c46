//! Tests directories in memory by comparing them with a plain map of names.

use std::collections::{BTreeMap, BTreeSet};

use fslab_vfs::FileKind;
use fslab_vfs_testing::environment::seed;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::verify::verify;
use super::*;

const OWN: InodeNo = InodeNo(12);
const SEED_WORDS: [u32; 4] = [0x0403_0201, 0x0807_0605, 0x0c0b_0a09, 0x100f_0e0d];

fn rules(version: HashVersion, levels: u8) -> Rules {
    let hasher = Hasher::new(version, true, SEED_WORDS);
    Rules { hasher, form: Form::Indexed, levels, shrink: true, kinds: true }
}

fn size(bytes: u32) -> BlockSize {
    BlockSize::new(bytes).unwrap()
}

/// A directory and the names expected in it.
struct Pair {
    blocks: VectorBlocks,
    model: BTreeMap<Vec<u8>, InodeNo>,
}

impl Pair {
    fn new(rules: Rules, block_size: u32) -> Self {
        let blocks = VectorBlocks::new(size(block_size), &rules, OWN, InodeNo::ROOT);
        Self { blocks, model: BTreeMap::new() }
    }

    fn insert(&mut self, name: &[u8], inode: u32) -> Result<()> {
        let inode = InodeNo(inode);
        match find(&self.blocks, name)? {
            Search::Found(found) => assert_eq!(Some(&found.inode()), self.model.get(name)),
            Search::Absent(vacancy) => {
                assert!(!self.model.contains_key(name), "{name:?} is not found");
                let kind = EntryKind::REGULAR;
                insert(&mut self.blocks, &vacancy, name, inode, kind)?;
                self.model.insert(name.to_vec(), inode);
            }
        }
        Ok(())
    }

    fn remove(&mut self, name: &[u8]) {
        match find(&self.blocks, name).unwrap() {
            Search::Found(found) => {
                assert!(self.model.remove(name).is_some(), "{name:?} should not be there");
                let removed = remove(&mut self.blocks, &found).unwrap();
                give_back(&mut self.blocks, &found, removed).unwrap();
            }
            Search::Absent(_) => assert!(!self.model.contains_key(name), "{name:?} is not found"),
        }
    }

    #[track_caller]
    fn check(&self) {
        for (name, inode) in &self.model {
            let found = find(&self.blocks, name).unwrap();
            let is_right = matches!(found, Search::Found(found) if found.inode() == *inode);
            assert!(is_right, "{name:?}");
        }
        if self.blocks.is_indexed() {
            assert_eq!(verify(&self.blocks).unwrap(), []);
        }
        assert_eq!(is_empty(&self.blocks).unwrap(), self.model.is_empty());
        assert_eq!(self.listed(7), self.model.keys().cloned().collect());
    }

    /// Returns all names except `.` and `..`, listed `piece` at a time; asserts that no name is
    /// repeated.
    #[track_caller]
    fn listed(&self, piece: usize) -> BTreeSet<Vec<u8>> {
        let mut names = BTreeSet::new();
        let mut from = Cookie::START;
        loop {
            let before = from;
            let mut taken = 0;
            list(&self.blocks, from, &mut |listed| {
                if taken == piece {
                    return false;
                }
                taken += 1;
                from = listed.next;
                assert!(names.insert(listed.name.to_vec()), "{:?} comes twice", listed.name);
                true
            })
            .unwrap();
            if taken == 0 {
                break;
            }
            assert!(before < from, "the cookies don't grow");
        }
        assert!(names.remove(&b"."[..]) && names.remove(&b".."[..]));
        names
    }
}

fn random_name(random: &mut Pcg64) -> Vec<u8> {
    // Mostly short names, some of maximum length; only a few letters, so that names recur.
    let length = match random.random_range(0..20) {
        0 => random.random_range(1..=255),
        1..=4 => random.random_range(1..=40),
        _ => random.random_range(1..=6),
    };
    (0..length).map(|_| *b"abc\xe9".get(random.random_range(0..4)).unwrap()).collect()
}

/// Grows, churns and empties a directory, and occasionally checks it completely.
fn churn(mut pair: Pair, steps: usize, random: &mut Pcg64) {
    for step in 0..steps {
        let growing = step < steps / 2;
        let name = random_name(random);
        if random.random_bool(if growing { 0.8 } else { 0.2 }) {
            pair.insert(&name, 1 + step as u32).unwrap();
        } else {
            let at = pair.model.range(name..).next().map(|(name, _)| name.clone());
            if let Some(name) = at {
                pair.remove(&name);
            }
        }
        if step % (steps / 40) == 0 {
            pair.check();
        }
    }
    while let Some(name) = pair.model.keys().next().cloned() {
        pair.remove(&name);
    }
    pair.check();
    assert_eq!(pair.blocks.count(), 1, "an empty directory has one block");
}

#[test]
fn a_directory_is_a_map_of_names() {
    let mut random = Pcg64::seed_from_u64(seed());
    for version in HashVersion::ALL {
        for block_size in [1024, 2048, 4096] {
            churn(Pair::new(rules(version, 2), block_size), 12_000, &mut random);
        }
    }
}

#[test]
fn a_linear_directory_is_a_map_of_names() {
    let mut random = Pcg64::seed_from_u64(seed());
    let rules = Rules { form: Form::Linear, ..rules(HashVersion::HalfMd4, 2) };
    let mut pair = Pair::new(rules, 1024);
    for step in 0..4000 {
        let name = random_name(&mut random);
        if random.random_bool(if step < 2000 { 0.9 } else { 0.3 }) {
            pair.insert(&name, 1 + step).unwrap();
        } else if let Some(name) = pair.model.range(name..).next().map(|(name, _)| name.clone()) {
            pair.remove(&name);
        }
    }
    pair.check();
    assert!(!pair.blocks.is_indexed());
    while pair.model.len() > 3 {
        let name = pair.model.keys().next().cloned().unwrap();
        pair.remove(&name);
    }
    pair.check();
}

#[test]
fn index_grows_to_its_maximum_depth_and_then_returns_nospc() {
    // Names of 255 bytes fill small blocks quickly.
    let long = |number: u32| format!("{number:0255}").into_bytes();
    for levels in [2, 3] {
        let mut pair = Pair::new(rules(HashVersion::HalfMd4, levels), 1024);
        let most = if levels == 2 { u32::MAX } else { 150_000 };
        let mut number = 0;
        let error = loop {
            let name = long(number);
            match pair.insert(&name, 1 + number) {
                Ok(()) => number += 1,
                Err(error) => break Some(error),
            }
            if number == most {
                break None;
            }
        };
        pair.check();
        let mut deepest = 0;
        outline::outline(&pair.blocks, &mut |branch| deepest = deepest.max(branch.level)).unwrap();
        assert_eq!(deepest, usize::from(levels), "index levels above the leaves");
        if levels == 2 {
            let errno = fslab_vfs::Error::from(error.unwrap()).errno();
            assert_eq!(errno, fslab_vfs::Errno::NOSPC);
            assert!(number > 10_000, "{number} names only");
            assert!(matches!(find(&pair.blocks, &long(number)).unwrap(), Search::Absent(_)));
        }
        for gone in 0..number {
            pair.remove(&long(gone));
        }
        pair.check();
        assert_eq!(pair.blocks.count(), 1);
    }
}

#[test]
fn no_space_in_the_middle_of_a_split_loses_nothing() {
    let mut pair = Pair::new(rules(HashVersion::Tea, 2), 1024);
    let mut random = Pcg64::seed_from_u64(seed());
    let mut refused = 0;
    for step in 0..20_000 {
        pair.blocks.most = pair.blocks.count() + u32::from(random.random_bool(0.3));
        if pair.insert(&random_name(&mut random), 1 + step).is_err() {
            refused += 1;
        }
        if step % 1000 == 0 {
            pair.check();
        }
    }
    pair.check();
    assert!(refused > 100, "{refused}");
}

/// Finds `want` names with the same hash among three million names.
fn colliding(hasher: Hasher, want: usize) -> Vec<Vec<u8>> {
    let mut by_hash: std::collections::HashMap<u32, Vec<u32>> = std::collections::HashMap::new();
    for number in 0..3_000_000_u32 {
        let same = by_hash.entry(hasher.hash(name_of(number).as_bytes()).major).or_default();
        same.push(number);
        if same.len() == want {
            return same.iter().map(|&number| name_of(number).into_bytes()).collect();
        }
    }
    panic!("no {want} of three million names have the same hash");
}

fn name_of(number: u32) -> String {
    format!("{number:x}-collides-with-another-name-and-is-long-enough-to-fill-a-leaf-{number:0180}")
}

#[test]
fn names_with_equal_hashes_are_found_across_leaves() {
    let rules = rules(HashVersion::HalfMd4, 2);
    let mut names = Vec::new();
    // A leaf of 1 KiB has room for only four of these names, so some leaves end between names with
    // the same hash.
    for want in [2, 3] {
        names.extend(colliding(rules.hasher, want));
    }
    let mut pair = Pair::new(rules, 1024);
    for number in 0..3000 {
        pair.insert(name_of(number + 5_000_000).as_bytes(), 1 + number).unwrap();
        if number % 500 == 250 {
            for name in &names {
                pair.insert(name, 77).unwrap();
            }
            pair.check();
            for name in &names {
                pair.remove(name);
            }
            pair.check();
        }
    }
}

fn has_continuation(blocks: &VectorBlocks) -> bool {
    (0..blocks.count()).any(|number| {
        let bytes = blocks.read(FileBlock(number), <[u8]>::to_vec).unwrap();
        let level = usize::from(number > 0);
        index::Table::of_level(&bytes, level)
            .is_ok_and(|table| (1..table.count()).any(|at| table.hash(at) & 1 == 1))
    })
}

/// Names with the same legacy hash: 240 times "p", then one of these numbers as eight hexadecimal
/// digits. The numbers were found by a search through 2^31 numbers.
const LEGACY_COLLISIONS: [u32; 9] = [
    0x0098_6d22,
    0x08c3_0f9d,
    0x08f0_182d,
    0x1bfd_154b,
    0x1e48_1da1,
    0x2ea6_1219,
    0x4ce5_4322,
    0x51e3_198b,
    0x9bf9_5963,
];

#[test]
fn names_of_one_hash_over_many_leaves_are_listed_and_found() {
    let rules = rules(HashVersion::Legacy, 2);
    let names = LEGACY_COLLISIONS.map(|end| format!("{}{end:08x}", "p".repeat(240)).into_bytes());
    let hashes: BTreeSet<_> = names.iter().map(|name| rules.hasher.hash(name).major).collect();
    assert_eq!(hashes.len(), 1);
    let mut pair = Pair::new(rules, 1024);
    for number in 0..400_u32 {
        pair.insert(name_of(number).as_bytes(), 1 + number).unwrap();
    }
    for (number, name) in (1..).zip(&names) {
        pair.insert(name, number).unwrap();
    }
    // A leaf has room for only four such names, so an index entry must be marked as a continuation.
    assert!(has_continuation(&pair.blocks));
    pair.check();
    assert_eq!(pair.listed(1).len(), 409);
    for name in names.iter().step_by(2) {
        pair.remove(name);
    }
    pair.check();
}

#[test]
fn listing_returns_each_remaining_name_once_during_changes() {
    let mut random = Pcg64::seed_from_u64(seed());
    for block_size in [1024, 4096] {
        let mut pair = Pair::new(rules(HashVersion::HalfMd4, 2), block_size);
        let stay: BTreeSet<Vec<u8>> = (0..2000).map(|n| format!("stays{n}").into_bytes()).collect();
        for name in &stay {
            pair.insert(name, 5).unwrap();
        }
        let mut seen = Vec::new();
        let mut from = Cookie::START;
        loop {
            let mut taken = 0;
            list(&pair.blocks, from, &mut |listed| {
                if taken < 5 {
                    seen.push(listed.name.to_vec());
                    from = listed.next;
                    taken += 1;
                }
                taken < 5
            })
            .unwrap();
            if taken == 0 {
                break;
            }
            // The directory alternately grows and shrinks.
            for _ in 0..40 {
                let name = format!("moves{}", random.random_range(0..4000)).into_bytes();
                if (seen.len() / 300).is_multiple_of(2) {
                    pair.insert(&name, 6).unwrap();
                } else {
                    pair.remove(&name);
                }
            }
        }
        seen.retain(|name| name.starts_with(b"stays"));
        let count = seen.len();
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), stay);
        assert_eq!(count, stay.len(), "some came twice");
        pair.check();
    }
}

#[test]
fn listing_by_inode_is_sorted_and_complete() {
    let mut pair = Pair::new(rules(HashVersion::HalfMd4, 2), 1024);
    for number in 0..3000_u32 {
        pair.insert(format!("name{number}").as_bytes(), 20 + number * 7919 % 3000).unwrap();
    }
    let mut order = InodeOrder::new(1000);
    let (mut from, mut inodes, mut names) = (Cookie::START, Vec::new(), BTreeSet::new());
    loop {
        let mut taken = 0;
        order
            .list(&pair.blocks, from, &mut |listed| {
                if taken < 9 {
                    from = listed.next;
                    inodes.push(listed.inode);
                    assert!(names.insert(listed.name.to_vec()));
                    taken += 1;
                }
                taken < 9
            })
            .unwrap();
        if taken == 0 {
            break;
        }
    }
    assert_eq!(inodes.len(), 3002);
    assert_eq!(inodes[..2], [OWN, InodeNo::ROOT]);
    let falls = inodes[2..].windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert_eq!(falls, 3, "one between batches");
    // Positions are also valid in another listing.
    let mut again = Vec::new();
    let mut take = |listed: Listed<'_>| {
        again.push(listed.inode);
        true
    };
    let from = Cookie(2500);
    InodeOrder::new(1000).list(&pair.blocks, from, &mut take).unwrap();
    assert_eq!(again, inodes[2500..]);
}

#[test]
fn directory_shrinks_after_most_names_are_removed() {
    let mut pair = Pair::new(rules(HashVersion::HalfMd4, 2), 4096);
    for number in 0..100_000_u32 {
        pair.insert(format!("file{number:06}").as_bytes(), 20 + number).unwrap();
    }
    let full = pair.blocks.count();
    for number in (0..100_000_u32).filter(|number| number % 1000 != 7) {
        pair.remove(format!("file{number:06}").as_bytes());
    }
    pair.check();
    assert!(full > 500, "{full} blocks");
    assert!(pair.blocks.count() <= 2, "{} of {full}", pair.blocks.count());
}

#[test]
fn damage_is_an_error_and_never_a_panic_or_a_hang() {
    let mut random = Pcg64::seed_from_u64(seed());
    let mut whole = Pair::new(rules(HashVersion::HalfMd4, 3), 1024);
    for number in 0..4000_u32 {
        whole.insert(format!("name{number}").as_bytes(), 20 + number).unwrap();
    }
    for _ in 0..3000 {
        let mut bytes = whole.blocks.bytes.clone();
        for _ in 0..random.random_range(1..20) {
            // Half of the damage is done to the first kilobyte, which contains the root of the
            // index.
            let end = if random.random_bool(0.5) { 1024 } else { bytes.len() };
            let at = random.random_range(0..end);
            bytes[at] = match random.random_range(0..3) {
                0 => 0,
                1 => 0xff,
                _ => random.random(),
            };
        }
        let mut blocks = whole.blocks.clone();
        blocks.bytes = bytes;
        drop(verify(&blocks));
        drop(list(&blocks, Cookie::START, &mut |_| true));
        drop(is_empty(&blocks));
        for _ in 0..50 {
            let name = format!("name{}", random.random_range(0..8000)).into_bytes();
            match find(&blocks, &name) {
                Ok(Search::Found(found)) => drop(
                    remove(&mut blocks, &found)
                        .and_then(|removed| give_back(&mut blocks, &found, removed)),
                ),
                Ok(Search::Absent(vacancy)) => {
                    let (inode, kind) = (InodeNo(3), EntryKind::REGULAR);
                    drop(insert(&mut blocks, &vacancy, &name, inode, kind));
                }
                Err(_) => {}
            }
        }
    }
}

#[test]
fn entry_kinds_match_the_format() {
    let kinds = [FileKind::Regular, FileKind::Directory, FileKind::Symlink].map(EntryKind::from);
    assert_eq!(kinds, [EntryKind::REGULAR, EntryKind::DIRECTORY, EntryKind(7)]);
    assert_eq!(EntryKind::UNKNOWN.file_kind(), None);
    let mut all = (1..=7).map(EntryKind);
    assert!(all.all(|kind| kind.file_kind().map(EntryKind::from) == Some(kind)));
}
