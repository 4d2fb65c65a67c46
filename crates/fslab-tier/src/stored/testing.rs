//! What must hold whatever bytes an archive or an xattr has: shared by the fuzz targets and tests.
//!
//! Checksums would stop nearly all random bytes at once, so bytes are also tried with every
//! checksum made right: what an attacker would do.

use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use super::bundle::contents_of;
use super::format::{
    BLOCK_BYTES, EntryRecord, HEAD_MAGIC, HeadRecord, PAGE_ENTRIES, TAIL_MAGIC, TailRecord,
    VERSION, crc_of,
};
use super::reader::ObjectReader;
use super::residency::{self, Residency};
use super::{TreeEntry, dump};
use crate::archive::memory::MemoryArchive;
use crate::archive::{Archive, ContainerKind, Key, SealedArchive};
use crate::id::Id;
use crate::surroundings::Identities;

/// Objects and blocks of one container that are read.
const OBJECTS: usize = 64;
const BLOCKS: u64 = 16;

/// What is believed of an xattr is written the same again, and can be shown.
///
/// # Panics
/// Where it is not.
pub fn check_residency(bytes: &[u8]) {
    for value in [bytes.to_vec(), residency::resealed(bytes)] {
        residency::decode_tree(&value).ok();
        let Ok(known) = Residency::decode(&value) else { continue };
        let shown = dump::residency(&known);
        assert!(shown.lines().count() >= 10, "{shown}");
        if let Some(written) = known.encode() {
            assert_eq!(Residency::decode(&written).as_ref(), Ok(&known));
        }
        let blocks = known.offline.iter().map(|run| run.end).max().unwrap_or(0);
        assert!(blocks <= known.version.size.div_ceil(BLOCK_BYTES));
    }
}

/// Reading a container ends, with an answer or an error, and no block is longer than one may be.
///
/// # Panics
/// Where one is.
pub fn check_container(bytes: &[u8]) {
    for container in [bytes.to_vec(), sealed(bytes)] {
        // Whatever is wrong is told, and nothing else is promised.
        read_all(container).ok();
    }
    check_encrypted(bytes);
}

/// What was not sealed with a key is refused, wherever it is read.
fn check_encrypted(bytes: &[u8]) {
    let (kind, id) = (ContainerKind::Files, Id([2; 16]));
    let inner = MemoryArchive::new(Id([1; 16]), "bytes");
    inner.put(kind, id, bytes.to_vec());
    let archive = SealedArchive::new(Arc::new(inner), Key::new([0; 32]), Arc::new(NoIdentities));
    let Ok(length) = archive.length(kind, id) else { return };
    assert!(length < bytes.len() as u64, "{length} bytes are in {}", bytes.len());
    for offset in [0, length / 2, length.saturating_sub(1), length, u64::MAX] {
        assert!(archive.read(kind, id, offset, &mut [0; 100]).is_err(), "{offset} is believed");
    }
}

/// Nothing is written.
struct NoIdentities;

impl Identities for NoIdentities {
    fn make(&self) -> Id {
        Id::default()
    }
}

/// An entry of a tree is refused, or stays below the root and is written the same again.
///
/// # Panics
/// Where it is not.
pub fn check_tree_entry(bytes: &[u8]) {
    let Ok(entry) = TreeEntry::decode(bytes) else { return };
    let path = String::from_utf8_lossy(&entry.attributes.path).into_owned();
    assert!(!path.starts_with('/') && !path.split('/').any(|name| name == ".."), "{path}");
    assert_eq!(TreeEntry::decode(&entry.encode()[4..]), Ok(entry));
}

fn read_all(container: Vec<u8>) -> crate::Result<()> {
    let (kind, id, length) = (ContainerKind::Files, Id([2; 16]), container.len() as u64);
    let archive = MemoryArchive::new(Id([1; 16]), "bytes");
    archive.put(kind, id, container);
    let archive: Arc<dyn Archive> = Arc::new(archive);
    let objects = contents_of(&archive, kind, id, length)?.members;
    for location in objects.into_iter().take(OBJECTS) {
        let reader = ObjectReader::open_any(&archive, kind, location)?;
        dump::object(&reader, BLOCKS)?;
        for number in (0..reader.blocks()).take(BLOCKS as usize) {
            if let Ok(block) = reader.block(number) {
                assert!(block.len() as u64 <= BLOCK_BYTES, "a block of {} bytes", block.len());
            }
        }
    }
    Ok(())
}

/// The container with the checksums of its last object made right, as far as its parts fit.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut container = bytes.to_vec();
    // Where they do not, there is nothing to be made right.
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
    (head.magic, head.version) = (HEAD_MAGIC, VERSION);
    head.crc = crc_of(head.as_bytes()).into();
    object.get_mut(..size_of::<HeadRecord>())?.copy_from_slice(head.as_bytes());
    Some(())
}

/// Hashes each page of the table into its place behind the table.
fn seal_pages(rest: &mut [u8], table_bytes: usize) {
    let Some((table, hashes)) = rest.split_at_mut_checked(table_bytes) else { return };
    let pages = table.chunks(PAGE_ENTRIES as usize * size_of::<EntryRecord>());
    for (page, hash) in pages.zip(hashes.chunks_exact_mut(32)) {
        hash.copy_from_slice(blake3::hash(page).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use fslab_vfs::testing::environment::{number, seed};
    use rand::{Rng, RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

    /// What version 1 wrote: a residency, a container of a file, a tree, a bundle.
    fn golden() -> Vec<Vec<u8>> {
        let mut files = vec![format!("{GOLDEN}/residency-1")];
        for kind in ["archive-1/files", "archive-1/trees", "bundle-1/files"] {
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

    /// Sealing leaves what is whole as it is: what is read then is the object.
    #[test]
    fn whole_containers_are_read_to_their_end_sealed_or_not() {
        for file in golden().into_iter().skip(1) {
            assert!(sealed(&file) == file);
            read_all(file).unwrap();
        }
    }

    /// Without it, damage to a table would end at its checksum, and nothing behind be tried.
    #[test]
    fn a_damaged_table_is_made_whole_and_then_refused_for_what_it_says() {
        let mut file = golden().swap_remove(1);
        let tail = TailRecord::read_from_bytes(&file[file.len() - size_of::<TailRecord>()..]);
        let table = tail.unwrap().table_offset.get() as usize;
        // The length of the first block.
        file[table + 12] ^= 1;
        let says = |bytes: Vec<u8>| read_all(bytes).unwrap_err().to_string();
        assert!(says(file.clone()).contains("table of blocks is damaged"));
        assert!(says(sealed(&file)).contains("table makes no sense"));
    }

    /// `FSLAB_STORED_CASES` asks for more, `FSLAB_SEED` for a seed.
    #[test]
    fn random_damage_to_what_version_1_wrote_passes() {
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

    /// Changes a byte or a number, most of all in what begins and ends an object, or cuts it.
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
