//! A cache of opened readers of archived objects.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::archive::Archive;
use crate::error::Result;
use crate::id::Id;
use crate::object::reader::ObjectReader;
use crate::stored::Version;

/// Expected number of readers. Each reader has the file's attributes and a page of the object's
/// table in memory.
const READERS: usize = 64;

/// Maximum size of all readers in bytes. It has room for the two largest possible readers, of 64
/// MiB each.
const READERS_BYTES: u64 = 160 << 20;

/// The identities of the archive and of the object.
type Key = (Id, Id);

/// A bounded cache of recently used readers.
pub(super) struct ReaderCache(Cache<Key, Arc<ObjectReader>, Bytes>);

/// Weighs a reader by its bytes in memory.
#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Arc<ObjectReader>> for Bytes {
    fn weight(&self, _: &Key, reader: &Arc<ObjectReader>) -> u64 {
        reader.memory_bytes()
    }
}

impl Default for ReaderCache {
    fn default() -> Self {
        Self::with_room(READERS_BYTES)
    }
}

impl ReaderCache {
    fn with_room(bytes: u64) -> Self {
        Self(Cache::with_weighter(READERS, bytes, Bytes))
    }

    /// Returns a reader of a version in an archive; opens the version unless it is cached.
    pub(in crate::engine) fn get(
        &self,
        archive: &Arc<dyn Archive>,
        version: &Version,
    ) -> Result<Arc<ObjectReader>> {
        let key = (archive.id(), version.object);
        // Threads that need the same reader share one attempt, which saves requests.
        self.0
            .get_or_insert_with(&key, || ObjectReader::open_to_read(archive, version).map(Arc::new))
    }

    /// Adds a reader of a version in an archive.
    pub(super) fn put(&self, archive: Id, version: &Version, reader: ObjectReader) {
        self.0.insert((archive, version.object), Arc::new(reader));
    }

    /// Returns whether a reader is cached.
    pub(in crate::engine) fn has(&self, key: &Key) -> bool {
        self.0.contains_key(key)
    }

    /// Removes the readers of an archive.
    pub(in crate::engine) fn forget_archive(&self, archive: Id) {
        self.0.retain(|(known, _), _| *known != archive);
    }

    /// Removes the reader of an object.
    pub(in crate::engine) fn remove(&self, key: &Key) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use fslab_vfs::{FileSystem, MemFs, Timestamp};

    use super::*;
    use crate::archive::ContainerKind;
    use crate::archive::testing::MemoryArchive;
    use crate::lower::Found;
    use crate::object::writer::{BlockEncoder, Heading, ObjectWriter};
    use crate::stored::format::KIND_FILE;
    use crate::stored::{Attributes, Location};

    const ROOM: u64 = 2 << 20;

    /// Puts an empty file with 400 KiB of xattrs into an archive.
    fn put(archive: &MemoryArchive, number: u8) -> Version {
        let [object, file, tier] = [Id([number; 16]), Id([2; 16]), Id([3; 16])];
        let created = Timestamp::default();
        let (sequence, size, may_have_sources) = (1, 0, false);
        let heading = Heading {
            kind: KIND_FILE,
            object,
            file,
            tier,
            sequence,
            size,
            created,
            may_have_sources,
        };
        let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let root = Found::root(&memory).unwrap();
        let xattrs = vec![(b"user.large".to_vec(), vec![7; 400 << 10])];
        let attributes = Attributes { xattrs, ..Attributes::of(&root.attr) };
        let (mut bytes, mut raw) = (Vec::new(), BlockEncoder::raw());
        let writer = ObjectWriter::begin(&mut bytes, &heading, &attributes, &mut raw).unwrap();
        let (length, root) = writer.finish().unwrap();
        archive.put((ContainerKind::Files, object), bytes);
        let location = Location { container: object, offset: 0, length };
        let modified = attributes.modified;
        Version { object, location, size: 0, sequence: 1, modified, root, copies: Vec::new() }
    }

    #[test]
    fn reader_cache_is_bounded() {
        let archive = MemoryArchive::new(Id([1; 16]), "memory");
        let versions: Vec<_> = (10..20).map(|number| put(&archive, number)).collect();
        let archive: Arc<dyn Archive> = Arc::new(archive);
        let readers = ReaderCache::with_room(ROOM);
        for version in &versions {
            assert_eq!(readers.get(&archive, version).unwrap().heading().object, version.object);
            let kept: u64 = readers.0.iter().map(|(_, reader)| reader.memory_bytes()).sum();
            assert!((1..=ROOM).contains(&kept), "{kept} bytes");
        }
    }
}
