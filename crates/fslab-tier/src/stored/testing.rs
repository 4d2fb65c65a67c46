//! Checks that must pass for any bytes in an archive or an xattr. Fuzz targets and tests share
//! them.
//!
//! Checksums would reject nearly all random bytes at once. So containers are also tried with valid
//! checksums, as an attacker would write them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use zerocopy::{FromBytes, IntoBytes};

use super::TreeEntry;
use super::compact::{CompactResidency, StoredResidency};
use super::format::{
    BLOCK_BYTES, CHUNK_BYTES, EntryRecord, HEAD_MAGIC, HeadRecord, PAGE_ENTRIES, SealRecord,
    TAG_BYTES, TAIL_MAGIC, TailRecord, VERSION, VERSION_WITH_SOURCES, crc_of,
};
use super::residency::{self, Residency};
use crate::archive::testing::MemoryArchive;
use crate::archive::{Archive, ContainerKind, EncryptedArchive, Key};
use crate::id::{Id, Identities};
use crate::object::bundle::contents_of;
use crate::object::reader::ObjectReader;

/// Maximum number of objects of a container that a check reads.
const OBJECTS: usize = 64;
/// Maximum number of blocks of an object that a check reads.
const BLOCKS: u64 = 16;

const ARCHIVE: Id = Id([1; 16]);
const CONTAINER: Id = Id([2; 16]);
const KIND: ContainerKind = ContainerKind::Files;
const KEY: [u8; 32] = [3; 32];
const HEAD_BYTES: usize = size_of::<SealRecord>();
const SEALED_BYTES: usize = (CHUNK_BYTES + TAG_BYTES) as usize;

/// Checks that an accepted xattr decodes to the same residency after it is written again, and that
/// its offline blocks lie within the file.
///
/// # Panics
/// If the check fails.
pub fn check_residency(bytes: &[u8]) {
    for value in [bytes.to_vec(), residency::resealed(bytes)] {
        residency::decode_tree(&value).ok();
        let known = match StoredResidency::decode(&value) {
            Ok(StoredResidency::Full(known)) => *known,
            Ok(StoredResidency::Compact(known)) => {
                assert_eq!(CompactResidency::decode(&known.encode()), Ok(known));
                continue;
            }
            Err(_) => continue,
        };
        if let Some(written) = known.encode() {
            assert_eq!(Residency::decode(&written).as_ref(), Ok(&known));
        }
        let blocks = known.offline.iter().map(|run| run.end).max().unwrap_or(0);
        assert!(blocks <= known.version.size.div_ceil(BLOCK_BYTES));
    }
}

/// Checks that reading a container ends, with a result or an error, and that no block is too long.
///
/// # Panics
/// If a block is too long.
pub fn check_container(bytes: &[u8]) {
    for container in [bytes.to_vec(), sealed(bytes)] {
        // Any error is allowed.
        read_all(container).ok();
    }
    check_encrypted(bytes);
}

/// Checks that each accepted chunk of an encrypted container equals the chunk that encryption would
/// write. Returns the number of accepted chunks.
fn check_encrypted(bytes: &[u8]) -> usize {
    let inner = Arc::new(MemoryArchive::new(ARCHIVE, "bytes"));
    inner.put((KIND, CONTAINER), bytes.to_vec());
    let archive = EncryptedArchive::new(inner, Key::new(KEY), Arc::new(Salt::of(bytes)));
    let Ok(length) = archive.length((KIND, CONTAINER)) else { return 0 };
    assert!(length < bytes.len() as u64, "{length} bytes are in {}", bytes.len());
    let mut plain = vec![0; length as usize];
    let mut believed = Vec::new();
    for (number, chunk) in plain.chunks_mut(CHUNK_BYTES as usize).enumerate() {
        match archive.read((KIND, CONTAINER), number as u64 * CHUNK_BYTES, chunk) {
            Ok(count) => assert_eq!(count, chunk.len(), "chunk {number}"),
            Err(_) => continue,
        }
        believed.push(number);
    }
    let beyond = archive.read((KIND, CONTAINER), u64::MAX, &mut [0; 9]);
    assert!(matches!(beyond, Ok(0) | Err(_)), "{beyond:?}");
    if believed.len() as u64 * CHUNK_BYTES >= length {
        read_all(plain.clone()).ok();
    }
    // Writing to memory is not expected to fail. If it does, the comparison below fails.
    let again = sealed_with_key(&plain, Salt::of(bytes)).unwrap_or_default();
    for number in &believed {
        let start = HEAD_BYTES + number * SEALED_BYTES;
        let end = bytes.len().min(start + SEALED_BYTES);
        assert!(
            again.get(start..end) == bytes.get(start..end),
            "chunk {number} is accepted although it is forged"
        );
    }
    believed.len()
}

/// Returns a container that is encrypted with the key and the salt of the check.
fn sealed_with_key(plain: &[u8], salt: Salt) -> io::Result<Vec<u8>> {
    let inner = Arc::new(MemoryArchive::new(ARCHIVE, "bytes"));
    let archive = EncryptedArchive::new(
        Arc::clone(&inner) as Arc<dyn Archive>,
        Key::new(KEY),
        Arc::new(salt),
    );
    let mut upload = archive.begin((KIND, CONTAINER))?;
    upload.write(plain)?;
    upload.finish()?;
    let mut bytes = vec![0; inner.length((KIND, CONTAINER))? as usize];
    inner.read((KIND, CONTAINER), 0, &mut bytes)?;
    Ok(bytes)
}

/// A source of identities that returns the two halves of a container's salt by turns.
struct Salt([Id; 2], AtomicUsize);

impl Salt {
    /// Reads the salt of a container; the salt is zero if there is no head.
    fn of(container: &[u8]) -> Self {
        let head = SealRecord::read_from_prefix(container).map_or([0; 32], |(head, _)| head.salt);
        let half = |from: usize| Id(std::array::from_fn(|byte| head[from + byte]));
        Self([half(0), half(16)], AtomicUsize::new(0))
    }
}

impl Identities for Salt {
    fn make(&self) -> Id {
        self.0[self.1.fetch_add(1, Ordering::SeqCst) % 2]
    }
}

/// Checks that the path of an accepted tree entry does not lead out of the tree. The entry must
/// also decode to the same entry after it is written again.
///
/// # Panics
/// If the check fails.
pub fn check_tree_entry(bytes: &[u8]) {
    let Ok(entry) = TreeEntry::decode(bytes) else { return };
    let path = String::from_utf8_lossy(&entry.attributes.path).into_owned();
    assert!(!path.starts_with('/') && !path.split('/').any(|name| name == ".."), "{path}");
    assert_eq!(TreeEntry::decode(&entry.encode()[4..]), Ok(entry));
}

fn read_all(container: Vec<u8>) -> crate::Result<()> {
    let (kind, id, length) = (ContainerKind::Files, Id([2; 16]), container.len() as u64);
    let archive = MemoryArchive::new(Id([1; 16]), "bytes");
    archive.put((kind, id), container);
    let archive: Arc<dyn Archive> = Arc::new(archive);
    let objects = contents_of(&archive, id, length)?.members;
    for location in objects.into_iter().take(OBJECTS) {
        let reader = ObjectReader::open_any(&archive, kind, location)?;
        (0..reader.blocks().min(BLOCKS)).try_for_each(|block| reader.is_zeros(block).map(drop))?;
        for number in (0..reader.blocks()).take(BLOCKS as usize) {
            if let Ok(block) = reader.block(number) {
                assert!(block.len() as u64 <= BLOCK_BYTES, "a block of {} bytes", block.len());
            }
        }
    }
    Ok(())
}

/// Returns the container with valid checksums in its last object, if the sizes of that object's
/// parts are consistent.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut container = bytes.to_vec();
    // If the sizes are inconsistent, the container is left unchanged.
    seal_last(&mut container);
    container
}

fn seal_last(container: &mut [u8]) -> Option<()> {
    let tail_start = container.len().checked_sub(size_of::<TailRecord>())?;
    let mut tail = TailRecord::read_from_bytes(&container[tail_start..]).ok()?;
    tail.magic = TAIL_MAGIC;
    let length = usize::try_from(tail.length.get()).ok()?;
    let start = container.len().checked_sub(length)?;
    let object = container.get_mut(start..tail_start)?;
    let table = usize::try_from(tail.table_offset.get()).ok()?;
    let blocks = usize::try_from(tail.blocks.get()).ok()?;
    let hashes = table.checked_add(blocks.checked_mul(size_of::<EntryRecord>())?)?;
    seal_head(object)?;
    seal_pages(object.get_mut(table..)?, hashes - table);
    let (head, _) = HeadRecord::read_from_prefix(object).ok()?;
    let described = size_of::<HeadRecord>().checked_add(head.attributes_length.get() as usize)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(object.get(..described)?);
    hasher.update(object.get(hashes..)?);
    tail.root = *hasher.finalize().as_bytes();
    tail.crc = crc_of(tail.as_bytes()).into();
    container[tail_start..].copy_from_slice(tail.as_bytes());
    Some(())
}

fn seal_head(object: &mut [u8]) -> Option<()> {
    let (mut head, _) = HeadRecord::read_from_prefix(object).ok()?;
    head.magic = HEAD_MAGIC;
    if head.version != VERSION_WITH_SOURCES {
        head.version = VERSION;
    }
    head.crc = crc_of(head.as_bytes()).into();
    object.get_mut(..size_of::<HeadRecord>())?.copy_from_slice(head.as_bytes());
    Some(())
}

/// Writes the hash of each page of the table to its slot after the table.
fn seal_pages(rest: &mut [u8], table_bytes: usize) {
    let Some((table, hashes)) = rest.split_at_mut_checked(table_bytes) else { return };
    let pages = table.chunks(PAGE_ENTRIES as usize * size_of::<EntryRecord>());
    for (page, hash) in pages.zip(hashes.chunks_exact_mut(32)) {
        hash.copy_from_slice(blake3::hash(page).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use fslab_vfs::Timestamp;
    use fslab_vfs_testing::environment::{number, seed};
    use rand::{Rng, RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::super::format::{KIND_BUNDLE, KIND_FILE, MEMBERS_MAX};
    use super::super::{Attributes, Location};
    use super::*;
    use crate::object::bundle::{enclose, list_bytes};
    use crate::object::writer::{BlockEncoder, Heading, ObjectWriter};

    const GOLDEN: &str = "tests/golden";

    /// Returns the golden files: a residency, a container of a file, a tree, a bundle, an encrypted
    /// container, and two versions of a file, the second with sources.
    fn golden() -> Vec<Vec<u8>> {
        let mut files = vec![format!("{GOLDEN}/residency-1")];
        let kinds = ["archive-1/files", "archive-1/trees", "bundle-1/files", "sealed-1/files"];
        for kind in kinds.into_iter().chain(["sources-2/files"]) {
            let top = std::fs::read_dir(format!("{GOLDEN}/{kind}")).unwrap();
            let mut pending: Vec<_> = top.map(|entry| entry.unwrap().path()).collect();
            while let Some(path) = pending.pop() {
                match std::fs::read_dir(&path) {
                    Ok(inner) => pending.extend(inner.map(|entry| entry.unwrap().path())),
                    Err(_) => files.push(path.display().to_string()),
                }
            }
        }
        assert!(files.len() > 3, "{files:?}");
        files.iter().map(|path| std::fs::read(path).unwrap()).collect()
    }

    fn check_all(bytes: &[u8]) {
        check_residency(bytes);
        check_container(bytes);
        check_tree_entry(bytes);
    }

    #[test]
    fn recomputing_checksums_changes_no_intact_container() {
        let golden = golden();
        let plain: Vec<_> = golden.into_iter().skip(1).filter(|file| members(file) > 0).collect();
        assert!(plain.len() >= 3, "{} containers", plain.len());
        for file in plain {
            assert!(sealed(&file) == file);
            read_all(file).unwrap();
        }
    }

    /// The initial corpus for fuzzing: an object, a tree, a bundle, and each of them encrypted with
    /// the key of the check. `FSLAB_BLESS=corpus` makes it from the files that version 1 wrote.
    #[test]
    fn the_corpus_passes() {
        let corpus = "../../fuzz/corpus/tier_container";
        if std::env::var_os("FSLAB_BLESS").is_some_and(|blessed| blessed == "corpus") {
            bless(std::path::Path::new(corpus));
        }
        let (mut bundles, mut believed) = (0, 0);
        for entry in std::fs::read_dir(corpus).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            check_all(&bytes);
            bundles += usize::from(members(&bytes) > 1);
            believed += check_encrypted(&bytes);
        }
        assert!(bundles > 0 && believed > 0, "{bundles} bundles, {believed} chunks");
    }

    fn bless(corpus: &std::path::Path) {
        std::fs::create_dir_all(corpus).unwrap();
        let files = golden();
        let whole: Vec<_> = files.iter().filter(|file| members(file) > 0).collect();
        for (number, file) in whole.iter().enumerate() {
            std::fs::write(corpus.join(format!("container{number}")), file).unwrap();
            let sealed = sealed_with_key(file, Salt::of(&[])).unwrap();
            std::fs::write(corpus.join(format!("sealed{number}")), sealed).unwrap();
        }
    }

    /// Returns the number of objects in a container; 0 if it is invalid.
    fn members(bytes: &[u8]) -> usize {
        let archive = MemoryArchive::new(ARCHIVE, "bytes");
        archive.put((KIND, CONTAINER), bytes.to_vec());
        let archive: Arc<dyn Archive> = Arc::new(archive);
        let contents = contents_of(&archive, CONTAINER, bytes.len() as u64);
        contents.map_or(0, |contents| contents.members.len())
    }

    /// Returns an object of an empty file.
    fn object() -> Vec<u8> {
        let (mut object, mut raw) = (Vec::new(), BlockEncoder::raw());
        let writer = ObjectWriter::begin(&mut object, &heading(KIND_FILE), &nameless(), &mut raw);
        writer.unwrap().finish().unwrap();
        object
    }

    fn heading(kind: u8) -> Heading {
        let (object, file, tier) = (Id([4; 16]), Id([5; 16]), Id([6; 16]));
        let (sequence, created) = (1, Timestamp::default());
        Heading { kind, object, file, tier, sequence, size: 0, created, may_have_sources: false }
    }

    fn nameless() -> Attributes {
        let reader = golden().swap_remove(1);
        let archive = MemoryArchive::new(ARCHIVE, "bytes");
        let length = reader.len() as u64;
        archive.put((KIND, CONTAINER), reader);
        let archive: Arc<dyn Archive> = Arc::new(archive);
        let location = Location { container: CONTAINER, offset: 0, length };
        let object = ObjectReader::open_any(&archive, KIND, location).unwrap();
        object.attributes().clone()
    }

    /// In a truncated bundle, the list determines the contents, up to the maximum length of a
    /// bundle. Without a list, the walk from object to object ends at the maximum number of
    /// objects.
    #[test]
    fn objects_per_container_and_bytes_per_bundle_are_limited() {
        let object = object();
        assert_eq!(members(&object.repeat(MEMBERS_MAX)), MEMBERS_MAX);
        // One object more than the limit is accepted, because it may be the last list of a bundle.
        assert_eq!(members(&object.repeat(MEMBERS_MAX + 2)), 0);
        let own = list_bytes(1);
        for (length, expected) in [(64 << 20, 0), ((64 << 20) - 2 * own, 1), (u64::MAX - own, 0)] {
            let place = Location { container: CONTAINER, offset: own, length };
            let bundle = enclose(&heading(KIND_BUNDLE), &[(Id([7; 16]), place)], &[]).unwrap();
            // The list at the end is damaged, so the one at the beginning is used.
            let cut = [&bundle[..own as usize], &[0; 500]].concat();
            assert_eq!(members(&cut), expected, "a member of {length} bytes");
        }
    }

    #[test]
    fn encrypted_container_is_accepted_except_for_damaged_parts() {
        let plain: Vec<u8> = (0..3 * CHUNK_BYTES + 9).map(|byte| (byte % 251) as u8).collect();
        let whole = sealed_with_key(&plain, Salt::of(&[7; HEAD_BYTES])).unwrap();
        assert_eq!(check_encrypted(&whole), 4);
        let mut damaged = whole.clone();
        damaged[HEAD_BYTES + SEALED_BYTES + 5] ^= 1;
        assert_eq!(check_encrypted(&damaged), 3);
        assert_eq!(check_encrypted(&whole[..whole.len() - 1]), 3);
        let mut head = whole.clone();
        head[20] ^= 1;
        assert_eq!(check_encrypted(&head), 0);
    }

    /// Without a valid checksum, the table would be refused before its values are checked.
    #[test]
    fn invalid_table_with_valid_checksum_is_refused() {
        let mut file = golden().swap_remove(1);
        let tail = TailRecord::read_from_bytes(&file[file.len() - size_of::<TailRecord>()..]);
        let table = tail.unwrap().table_offset.get() as usize;
        // Changes the length of the first block.
        file[table + 12] ^= 1;
        let says = |bytes: Vec<u8>| read_all(bytes).unwrap_err().to_string();
        assert!(says(file.clone()).contains("table of blocks is damaged"));
        assert!(says(sealed(&file)).contains("table of blocks is inconsistent"));
    }

    /// The invalid object is the second one in its container, so adding the object's offset
    /// overflows, too.
    #[test]
    fn block_offset_that_overflows_is_refused() {
        let (first, mut last) = (object(), golden().swap_remove(1));
        let tail = TailRecord::read_from_bytes(&last[last.len() - size_of::<TailRecord>()..]);
        let table = tail.unwrap().table_offset.get() as usize;
        last[table..table + 8].fill(0xff);
        let says = read_all(sealed(&[first, last].concat())).unwrap_err().to_string();
        assert!(says.contains("table of blocks is inconsistent"), "{says}");
    }

    /// `FSLAB_STORED_CASES` sets the number of cases, `FSLAB_SEED` the seed.
    #[test]
    fn random_damage_to_version_1_files_causes_no_panic() {
        let (cases, seed, files) = (number("FSLAB_STORED_CASES").unwrap_or(300), seed(), golden());
        for case in 0..cases {
            let mut draws = Pcg64Mcg::seed_from_u64(seed.wrapping_add(case));
            let mut bytes = files[draws.random_range(0..files.len())].clone();
            for _ in 0..draws.random_range(1..8) {
                damage(&mut bytes, &mut draws);
            }
            if let Err(panic) = std::panic::catch_unwind(|| check_all(&bytes)) {
                eprintln!("FSLAB_SEED={} FSLAB_STORED_CASES=1", seed.wrapping_add(case));
                std::panic::resume_unwind(panic);
            }
        }
    }

    /// Changes a byte or a number, mostly near the beginning or the end, or truncates the file.
    fn damage(bytes: &mut Vec<u8>, draws: &mut Pcg64Mcg) {
        const ENDS: usize = 400;
        let length = bytes.len();
        let place = match draws.random_range(0..3) {
            0 => draws.random_range(0..length.min(ENDS)),
            1 => length - draws.random_range(1..=length.min(ENDS)),
            _ => draws.random_range(0..length),
        };
        match draws.random_range(0..8) {
            0 => bytes.truncate(place.max(1)),
            1 => {
                let number = (draws.next_u64() >> draws.random_range(0..64)).to_le_bytes();
                let end = length.min(place + 8);
                bytes[place..end].copy_from_slice(&number[..end - place]);
            }
            _ => bytes[place] = draws.random(),
        }
    }
}
