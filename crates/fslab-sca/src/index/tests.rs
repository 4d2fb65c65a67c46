//! Tests that the index behaves like a map. Its pages are stored in a vector.

use std::cell::RefCell;
use std::collections::BTreeMap;

use fslab_vfs_testing::environment::cases;
use proptest::prelude::*;

use super::*;

/// A disk of pages in memory. The offset of a page is its number.
#[derive(Default)]
struct Disk {
    pages: RefCell<Vec<Vec<u8>>>,
    loads: RefCell<usize>,
}

impl Disk {
    fn load(&self, reference: Reference) -> Result<Vec<u8>> {
        *self.loads.borrow_mut() += 1;
        Ok(self.pages.borrow()[reference.offset as usize - 1].clone())
    }

    fn write(&self, payload: &[u8]) -> Reference {
        let mut pages = self.pages.borrow_mut();
        pages.push(payload.to_vec());
        Reference { offset: pages.len() as u64, stored_length: payload.len() as u32, header_crc: 0 }
    }

    fn checkpoint(&self, index: &mut Index) -> Reference {
        index.write(&mut |_, _, payload| self.write(payload), &mut Vec::new())
    }
}

fn entry(number: u64) -> Entry {
    let frame = Reference { offset: number + 1, stored_length: 9, header_crc: number as u32 };
    Entry { frame, from: 0, to: 5 }
}

fn reopened(index: &mut Index, disk: &Disk) -> Index {
    let root = disk.checkpoint(index);
    Index::stored(index.levels(), root)
}

/// Number of pages in memory, and of changed pages.
fn counted(link: &Link) -> (usize, usize) {
    let Link::Loaded(page) = link else { return (0, 0) };
    let below = match &page.slots {
        Slots::Inner(links) => links.items.iter().map(counted).collect(),
        Slots::Leaf(_) => Vec::new(),
    };
    let own = (1, usize::from(page.dirty));
    below.into_iter().fold(own, |sum, each| (sum.0 + each.0, sum.1 + each.1))
}

#[derive(Clone, Debug)]
enum Step {
    Set(u64),
    Remove(u64),
    Reopen,
    Trim,
    Unwrite,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Adjacent chunks, distant chunks, and the very last chunk.
    let chunk = prop_oneof![0..300_u64, 16_000..17_000_u64, Just(1 << 40), Just((1 << 51) - 1)];
    let step = prop_oneof![
        6 => chunk.clone().prop_map(Step::Set),
        3 => chunk.prop_map(Step::Remove),
        1 => Just(Step::Reopen),
        1 => Just(Step::Trim),
        1 => Just(Step::Unwrite),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(cases(256))]
    #[test]
    fn the_index_is_a_map(steps in steps()) {
        let disk = Disk::default();
        let load = |reference, _, _| disk.load(reference);
        let (mut index, mut map) = (Index::default(), BTreeMap::new());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Set(chunk) => {
                    let new = entry(number as u64);
                    let before = index.set(chunk, Some(new), &load).unwrap();
                    prop_assert_eq!(before, map.insert(chunk, new));
                }
                Step::Remove(chunk) => {
                    prop_assert_eq!(index.set(chunk, None, &load).unwrap(), map.remove(&chunk));
                }
                Step::Reopen => index = reopened(&mut index, &disk),
                Step::Trim => index.root.drop_clean(&mut index.loaded),
                Step::Unwrite => {
                    disk.checkpoint(&mut index);
                    index.unwrite();
                }
            }
            prop_assert_eq!((index.loaded, index.changed_pages()), counted(&index.root));
        }
        for chunk in map.keys().flat_map(|chunk| [*chunk, chunk.saturating_sub(1), chunk + 1]) {
            prop_assert_eq!(index.get(chunk, &load).unwrap(), map.get(&chunk).copied());
            let next = index.next_present(chunk, &load).unwrap();
            let expected = map.range(chunk..).next().map(|(chunk, entry)| (*chunk, *entry));
            prop_assert_eq!(next, expected);
        }
    }
}

#[test]
fn a_lookup_in_a_huge_file_loads_few_pages() {
    let disk = Disk::default();
    let load = |reference, _, _| disk.load(reference);
    let mut index = Index::default();
    // A tebibyte in chunks of 128 KiB has 2^23 chunks. Every 64th is enough to use all pages.
    for chunk in (0..1_u64 << 23).step_by(64) {
        index.set(chunk, Some(entry(chunk)), &load).unwrap();
    }
    let mut index = reopened(&mut index, &disk);
    *disk.loads.borrow_mut() = 0;
    let last = (1 << 23) - 64;
    assert_eq!(index.get(last, &load).unwrap(), Some(entry(last)));
    assert_eq!(*disk.loads.borrow(), 4);
}

/// A page with one entry uses little more memory than the entry. Otherwise a crafted file could
/// fill the memory.
#[test]
fn sparse_index_pages_use_little_memory() {
    let mut index = Index::default();
    for number in 0..1000 {
        index.set(number << 30, Some(entry(number)), &|_, _, _| unreachable!()).unwrap();
    }
    assert!(index.loaded > 2000, "{} pages", index.loaded);
    let most = index.loaded * 512;
    assert!(bytes(&index.root) < most, "{} of {most} bytes", bytes(&index.root));
}

/// Returns the memory of a page and of its child pages.
fn bytes(link: &Link) -> usize {
    let Link::Loaded(page) = link else { return 0 };
    let below = match &page.slots {
        Slots::Inner(links) => {
            let own = links.items.capacity() * size_of::<Link>();
            own + links.items.iter().map(bytes).sum::<usize>()
        }
        Slots::Leaf(entries) => entries.items.capacity() * size_of::<Entry>(),
    };
    size_of::<Page>() + below
}

#[test]
fn hostile_pages_are_refused() {
    for payload in [vec![], vec![0; 23], vec![0xff; 24], vec![0xff; 5000]] {
        assert!(Slots::decode(&payload, 0).is_none());
    }
}
