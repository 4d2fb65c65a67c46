//! Tests that any range of an encrypted container is readable, and that every change is detected.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::archive::testing::MemoryArchive;

const KIND: ContainerKind = ContainerKind::Files;
const CONTAINER: Id = Id([3; 16]);
const CHUNK: usize = CHUNK_BYTES as usize;
const SEALED: usize = SEALED_BYTES as usize;
const HEAD: usize = HEAD_BYTES as usize;

struct Counted(AtomicU64);

impl Identities for Counted {
    fn make(&self) -> Id {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.0.fetch_add(1, Ordering::SeqCst).to_le_bytes());
        Id(id)
    }
}

struct Bench {
    inner: Arc<MemoryArchive>,
    sealed: EncryptedArchive,
}

impl Bench {
    fn new() -> Self {
        let inner = Arc::new(MemoryArchive::new(Id([1; 16]), "a"));
        let sealed = Self::with(&inner, 7);
        Self { inner, sealed }
    }

    fn with(inner: &Arc<MemoryArchive>, key: u8) -> EncryptedArchive {
        let identities = Arc::new(Counted(AtomicU64::new(0)));
        EncryptedArchive::new(
            Arc::clone(inner) as Arc<dyn Archive>,
            Key::new([key; 32]),
            identities,
        )
    }

    fn put(&self, container: Id, bytes: &[u8]) {
        let mut upload = self.sealed.begin((KIND, container)).unwrap();
        // The piece size does not divide the chunk size, so that pieces cross chunk boundaries.
        bytes.chunks(40_001).for_each(|piece| upload.write(piece).unwrap());
        upload.finish().unwrap();
    }

    /// Returns the encrypted bytes in the archive.
    fn raw(&self, container: Id) -> Vec<u8> {
        let mut bytes = vec![0; self.inner.length((KIND, container)).unwrap() as usize];
        self.inner.read((KIND, container), 0, &mut bytes).unwrap();
        bytes
    }

    /// Reads a range of a container whose encrypted bytes are `raw`.
    fn of_raw(raw: &[u8], container: Id, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let inner = Arc::new(MemoryArchive::new(Id([1; 16]), "a"));
        inner.put((KIND, container), raw.to_vec());
        read(&Self::with(&inner, 7), container, offset, length)
    }
}

fn read(archive: &dyn Archive, container: Id, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0xee; length];
    let count = archive.read((KIND, container), offset, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn contents(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + index / 251) as u8).collect()
}

#[test]
fn any_range_is_read_from_only_the_chunks_it_overlaps() {
    for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 5] {
        let (bench, bytes) = (Bench::new(), contents(length));
        bench.put(CONTAINER, &bytes);
        assert_eq!(bench.sealed.length((KIND, CONTAINER)).unwrap(), length as u64);
        let mut listed = Vec::new();
        bench.sealed.list(KIND, &mut |id, length| listed.push((id, length))).unwrap();
        assert_eq!(listed, [(CONTAINER, length as u64)]);
        for offset in [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 7, length] {
            for count in [0, 1, 100, CHUNK, 2 * CHUNK + 1, 5 * CHUNK] {
                let found = read(&bench.sealed, CONTAINER, offset as u64, count).unwrap();
                let from = offset.min(length);
                assert!(
                    found == bytes[from..(offset + count).clamp(from, length)],
                    "{length} {offset}"
                );
            }
        }
    }
    let bench = Bench::new();
    bench.put(CONTAINER, &contents(20 * CHUNK));
    read(&bench.sealed, CONTAINER, 0, 1).unwrap();
    let before = bench.inner.faults().bytes_read.load(Ordering::SeqCst);
    read(&bench.sealed, CONTAINER, 5 * CHUNK_BYTES + 9, 10).unwrap();
    assert_eq!(bench.inner.faults().bytes_read.load(Ordering::SeqCst) - before, SEALED_BYTES);
}

#[test]
fn ciphertext_hides_plaintext_and_differs_each_time() {
    let (bench, bytes) = (Bench::new(), vec![b'a'; 2 * CHUNK + 100]);
    bench.put(CONTAINER, &bytes);
    let first = bench.raw(CONTAINER);
    let has_run = |raw: &[u8]| raw.windows(16).any(|window| window == [window[0]; 16]);
    assert!(!has_run(&first[HEAD..]), "bytes shine through");
    assert!(first[HEAD..][..CHUNK] != first[HEAD + SEALED..][..CHUNK]);
    bench.put(CONTAINER, &bytes);
    let second = bench.raw(CONTAINER);
    let same = first[HEAD..].iter().zip(&second[HEAD..]).filter(|(one, two)| one == two).count();
    assert!(same < first.len() / 64, "{same} bytes of {} are the same", first.len());
    assert!(read(&bench.sealed, CONTAINER, 0, 10).unwrap() == bytes[..10], "written anew");
}

#[test]
fn changed_chunks_are_refused_and_the_rest_is_readable() {
    let (bench, bytes) = (Bench::new(), contents(3 * CHUNK + 50));
    bench.put(CONTAINER, &bytes);
    let raw = bench.raw(CONTAINER);
    for at in (0..raw.len()).step_by(977).chain([HEAD, raw.len() - 1, raw.len() - 16]) {
        let mut changed = raw.clone();
        changed[at] ^= 0x20;
        if at < HEAD {
            assert!(Bench::of_raw(&changed, CONTAINER, 0, 1).is_err(), "at {at} of the head");
            continue;
        }
        let damaged = (at - HEAD) / SEALED;
        for chunk in 0..4 {
            let found = Bench::of_raw(&changed, CONTAINER, (chunk * CHUNK) as u64, 40);
            assert_eq!(found.is_err(), chunk == damaged, "chunk {chunk}, changed at {at}");
        }
    }
}

#[test]
fn truncated_moved_or_foreign_chunks_are_refused() {
    let bench = Bench::new();
    bench.put(CONTAINER, &contents(3 * CHUNK + 50));
    let raw = bench.raw(CONTAINER);
    let last_of = |raw: &[u8]| {
        let length = plain_length(raw.len() as u64)?;
        Bench::of_raw(raw, CONTAINER, length.saturating_sub(1), 1)
    };
    assert!(last_of(&raw).is_ok());
    for length in [0, HEAD - 1, HEAD, HEAD + SEALED, HEAD + 2 * SEALED, raw.len() - 1] {
        assert!(last_of(&raw[..length]).is_err(), "cut to {length}");
    }
    let longer = [&raw[..], &raw[HEAD..HEAD + SEALED]].concat();
    assert!(last_of(&longer).is_err(), "made longer");
    let mut moved = raw.clone();
    moved[HEAD..HEAD + 2 * SEALED].rotate_left(SEALED);
    assert!(Bench::of_raw(&moved, CONTAINER, 0, 1).is_err(), "chunks exchanged");
    assert!(Bench::of_raw(&raw, Id([4; 16]), 0, 1).is_err(), "under another name");
    bench.put(Id([4; 16]), &contents(3 * CHUNK + 50));
    let other = bench.raw(Id([4; 16]));
    let mixed = [&raw[..HEAD + SEALED], &other[HEAD + SEALED..]].concat();
    assert!(Bench::of_raw(&mixed, CONTAINER, CHUNK_BYTES, 1).is_err(), "a chunk of another");
    let copy = Arc::new(MemoryArchive::new(Id([2; 16]), "b"));
    copy.put((KIND, CONTAINER), raw.clone());
    assert!(read(&Bench::with(&copy, 7), CONTAINER, 0, 1).is_err(), "of another archive");
    assert!(read(&Bench::with(&bench.inner, 8), CONTAINER, 0, 1).is_err(), "another key");
}
