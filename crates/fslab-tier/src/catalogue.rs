//! The catalogue: an index of the objects in archives. It also records when an object became
//! unneeded.
//!
//! Invariant: the catalogue is only an index. Only the xattr on a file shows where its bytes are. A
//! compact residency leaves out facts about its object that never change. They are also in the
//! object itself, but can be read faster here. A lost or wrong catalogue can delay the deletion of
//! unneeded objects, but never causes the deletion of a needed one. An unneeded object is kept
//! until a scan has visited every file of the tree (`engine::expiry`).
//!
//! `receipts`: how and when copies were proved. `row`: the row of an object. `sources`: which
//! objects contain blocks of others. `status`: the state of the catalogue as a whole. `updates`:
//! changes of rows.

use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use fslab_vfs::Timestamp;
use parking_lot::Mutex;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::error::{Error, Result};
use crate::id::Id;
use crate::private;

mod receipts;
mod row;
mod sources;
mod status;
mod updates;

pub use receipts::Receipt;
pub use row::{ObjectRow, ObjectState, RowChange};

const OBJECTS: TableDefinition<[u8; 16], &[u8]> = TableDefinition::new("objects");
/// Number of rows of each container. A container is deleted with its last row.
const CONTAINERS: TableDefinition<[u8; 16], u64> = TableDefinition::new("containers");

/// The objects whose rows are pending. With this index, an engine finds them at its start without
/// searching all rows.
const PENDING: TableDefinition<[u8; 16], ()> = TableDefinition::new("pending");

/// Numbers about the catalogue as a whole, by name.
const FACTS: TableDefinition<&str, u64> = TableDefinition::new("facts");
const SEQUENCE: &str = "sequence";
/// The number of the last scan that has begun.
const SCAN: &str = "scan";

/// The recorded traffic of each archive: its counters, numbered as in [`Usage`].
const USAGE: TableDefinition<([u8; 16], u8), u64> = TableDefinition::new("usage");

/// Number of rows that are read at once by [`Catalogue::for_each_in_turn`].
const TURN: usize = 64;

/// The catalogue of a tier.
pub struct Catalogue {
    path: PathBuf,
    database: Database,
    /// Receipts that are not written yet.
    notes: Mutex<Vec<receipts::Note>>,
}

impl std::fmt::Debug for Catalogue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Catalogue").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Catalogue {
    /// Opens a catalogue, or creates a new one.
    ///
    /// # Errors
    /// If another program uses the catalogue, or it is damaged.
    pub fn open(path: &Path) -> Result<Self> {
        // The database itself would create a file that everybody may read.
        let made = private::options().create(true).truncate(false).open(path);
        made.map_err(|error| failed(path, redb::StorageError::Io(error)))?;
        let opened = builder().create(path).map_err(|error| failed(path, error))?;
        Self::with(path, opened)
    }

    /// Creates a catalogue in memory.
    ///
    /// # Errors
    /// Errors of the database, which are not expected in memory.
    pub fn in_memory() -> Result<Self> {
        Self::on(redb::backends::InMemoryBackend::new())
    }

    /// Opens a catalogue on a storage other than a file.
    ///
    /// # Errors
    /// Errors of the storage, or if it is not a catalogue.
    pub fn on(storage: impl redb::StorageBackend) -> Result<Self> {
        let path = Path::new("in memory");
        let opened = builder().create_with_backend(storage);
        Self::with(path, opened.map_err(|error| failed(path, error))?)
    }

    fn with(path: &Path, database: Database) -> Result<Self> {
        let catalogue = Self { path: path.to_owned(), database, notes: Mutex::default() };
        // All tables are created here, so that a reader finds an empty table instead of a missing
        // one.
        catalogue.change(|transaction| {
            transaction.open_table(OBJECTS)?;
            transaction.open_table(CONTAINERS)?;
            transaction.open_table(FACTS)?;
            transaction.open_table(PENDING)?;
            transaction.open_table(USAGE)?;
            sources::create_tables(transaction)?;
            receipts::create_table(transaction)?;
            Ok(())
        })?;
        Ok(catalogue)
    }

    fn change<T>(
        &self,
        work: impl FnOnce(&redb::WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T> {
        let done = || {
            let transaction = self.database.begin_write()?;
            let answer = work(&transaction)?;
            let notes = std::mem::take(&mut *self.notes.lock());
            receipts::write(&transaction, &notes)?;
            transaction.commit()?;
            Ok::<T, redb::Error>(answer)
        };
        done().map_err(|error| failed(&self.path, error))
    }

    fn ask<T>(
        &self,
        work: impl FnOnce(&redb::ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T> {
        let done = || work(&self.database.begin_read()?);
        done().map_err(|error| failed(&self.path, error))
    }

    /// Returns a new sequence number. It is greater than all earlier sequence numbers, those in
    /// rows, and `above`, the greatest one that the caller found in archives. It is at least the
    /// current time in nanoseconds since 1970. So sequence numbers increase even after the loss of
    /// a catalogue, and even if the clock was set back.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn next_sequence(&self, now: Timestamp, above: u64) -> Result<u64> {
        let time = sequence_at(now);
        self.change(|transaction| {
            let mut facts = transaction.open_table(FACTS)?;
            let last = facts.get(SEQUENCE)?.map_or(0, |last| last.value());
            let next = last.max(above).saturating_add(1).max(time);
            facts.insert(SEQUENCE, next)?;
            Ok(next)
        })
    }

    /// Returns whether the catalogue has assigned a sequence number or contained a row.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn has_numbered(&self) -> Result<bool> {
        Ok(self.fact(SEQUENCE)?.is_some())
    }

    /// Writes rows durably, all or none. The rows count as seen by all scans so far, because the
    /// caller's information is at least as recent as that of a scan.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn put(&self, rows: &[ObjectRow]) -> Result<()> {
        self.change(|transaction| {
            let scan = last_scan(transaction)?;
            let said: Vec<_> = rows.iter().map(|row| row.clone().said_after(scan)).collect();
            insert(transaction, &said)
        })
    }

    /// Deletes rows, except those of objects that contain blocks of other objects. Returns the
    /// deleted objects, and the containers without remaining rows.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn remove(&self, rows: &[ObjectRow]) -> Result<(Vec<Id>, Vec<Id>)> {
        self.change(|transaction| {
            let (mut removed, mut unused) = (Vec::new(), Vec::new());
            let mut rest: Vec<&ObjectRow> = rows.iter().collect();
            // The rows of sources can be deleted after the last row that needs them.
            loop {
                let (needed, unneeded) = sources::needed(transaction, &rest)?;
                for row in &unneeded {
                    removed.push(row.version.object);
                    unused.extend(delete_row(transaction, row)?);
                }
                if unneeded.is_empty() || needed.is_empty() {
                    return Ok((removed, unused));
                }
                rest = needed;
            }
        })
    }

    /// Returns the row of an object.
    ///
    /// # Errors
    /// Errors of the database, or if the row is damaged.
    pub fn get(&self, object: Id) -> Result<Option<ObjectRow>> {
        let bytes = self.ask(|transaction| {
            let objects = transaction.open_table(OBJECTS)?;
            Ok(objects.get(object.0)?.map(|row| row.value().to_vec()))
        })?;
        bytes.map(|bytes| self.decode(object, &bytes)).transpose()
    }

    /// Returns the pending rows.
    ///
    /// # Errors
    /// Errors of the database, or if a row is damaged.
    pub fn pending(&self) -> Result<Vec<ObjectRow>> {
        let objects = self.ask(|transaction| {
            let pending = transaction.open_table(PENDING)?;
            pending.iter()?.map(|entry| Ok(Id(entry?.0.value()))).collect::<Result<Vec<_>, _>>()
        })?;
        objects.into_iter().filter_map(|object| self.get(object).transpose()).collect()
    }

    /// Returns whether any row refers to a container.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn knows_container(&self, container: Id) -> Result<bool> {
        self.ask(|transaction| Ok(transaction.open_table(CONTAINERS)?.get(container.0)?.is_some()))
    }

    /// Calls `visit` with each row in a snapshot of the catalogue. While the snapshot exists, freed
    /// space in the catalogue's file is not reused.
    ///
    /// # Errors
    /// Errors of the database and of `visit`, or if a row is damaged.
    pub fn for_each(&self, visit: &mut dyn FnMut(ObjectRow) -> Result<()>) -> Result<()> {
        self.for_some(None, &mut |row| visit(row).map(|()| true))
    }

    /// Calls `visit` with the rows in the order of their objects, until `visit` returns `false`.
    /// Begins with the first row after the object `behind`.
    ///
    /// # Errors
    /// As [`Self::for_each`].
    pub fn for_some(
        &self,
        behind: Option<Id>,
        visit: &mut dyn FnMut(ObjectRow) -> Result<bool>,
    ) -> Result<()> {
        let from = behind.map_or(Bound::Unbounded, |object| Bound::Excluded(object.0));
        let answered = self.ask(|transaction| {
            let objects = transaction.open_table(OBJECTS)?;
            for row in objects.range::<[u8; 16]>((from, Bound::Unbounded))? {
                let (key, value) = row?;
                let decoded = self.decode(Id(key.value()), value.value());
                match decoded.and_then(&mut *visit) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => return Ok(Err(error)),
                }
            }
            Ok(Ok(()))
        });
        answered?
    }

    /// Calls `visit` with each row. No transaction is open during a call, so `visit` may be slow.
    /// Rows that are added or deleted meanwhile may or may not be visited, and a visited row may be
    /// outdated.
    ///
    /// # Errors
    /// As [`Self::for_each`].
    pub fn for_each_in_turn(&self, visit: &mut dyn FnMut(ObjectRow) -> Result<()>) -> Result<()> {
        let mut behind = None;
        loop {
            let mut rows = Vec::new();
            self.for_some(behind, &mut |row| {
                rows.push(row);
                Ok(rows.len() < TURN)
            })?;
            let Some(last) = rows.last() else { return Ok(()) };
            behind = Some(last.version.object);
            rows.into_iter().try_for_each(&mut *visit)?;
        }
    }

    fn decode(&self, object: Id, bytes: &[u8]) -> Result<ObjectRow> {
        let damaged = |what| Error::CatalogueDamaged { path: self.path.clone(), what };
        ObjectRow::decode(object, bytes).map_err(damaged)
    }
}

/// Returns the lowest sequence number that can be drawn at a given time. Sequence numbers drawn
/// before that time are lower, unless the clock was set back.
#[must_use]
pub fn sequence_at(time: Timestamp) -> u64 {
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(time.nanoseconds.into())
}

/// Returns the number of the last scan that has begun.
fn last_scan(transaction: &redb::WriteTransaction) -> Result<u64, redb::Error> {
    let facts = transaction.open_table(FACTS)?;
    Ok(facts.get(SCAN)?.map_or(0, |number| number.value()))
}

/// Deletes the row of an object. Returns the container of the object if it has no other row.
fn delete_row(
    transaction: &redb::WriteTransaction,
    row: &ObjectRow,
) -> Result<Option<Id>, redb::Error> {
    let object = row.version.object;
    transaction.open_table(PENDING)?.remove(object.0)?;
    let mut objects = transaction.open_table(OBJECTS)?;
    let Some(stored) = objects.remove(object.0)?.map(|stored| stored.value().to_vec()) else {
        return Ok(None);
    };
    sources::forget(transaction, &ObjectRow::decode(object, &stored).unwrap_or(row.clone()))?;
    let container = row.version.location.container;
    let mut containers = transaction.open_table(CONTAINERS)?;
    let left = containers.get(container.0)?.map_or(0, |count| count.value() - 1);
    if left == 0 {
        containers.remove(container.0)?;
        receipts::forget(transaction, container)?;
        return Ok(Some(container));
    }
    containers.insert(container.0, left)?;
    Ok(None)
}

fn insert(transaction: &redb::WriteTransaction, rows: &[ObjectRow]) -> Result<(), redb::Error> {
    let mut objects = transaction.open_table(OBJECTS)?;
    let mut containers = transaction.open_table(CONTAINERS)?;
    let mut pending = transaction.open_table(PENDING)?;
    for row in rows {
        if row.state == ObjectState::Pending {
            pending.insert(row.version.object.0, ())?;
        } else {
            pending.remove(row.version.object.0)?;
        }
        let object = row.version.object;
        let before = objects.get(object.0)?.map(|before| before.value().to_vec());
        let before = before.map(|before| ObjectRow::decode(object, &before));
        let is_new = before.is_none();
        let row = sources::note(transaction, row, before.and_then(Result::ok))?;
        objects.insert(object.0, &row.encode()[..])?;
        if is_new {
            let container = row.version.location.container.0;
            let count = containers.get(container)?.map_or(0, |count| count.value());
            containers.insert(container, count + 1)?;
        }
    }
    let Some(greatest) = rows.iter().map(|row| row.version.sequence).max() else { return Ok(()) };
    let mut facts = transaction.open_table(FACTS)?;
    if facts.get(SEQUENCE)?.is_none_or(|last| last.value() < greatest) {
        facts.insert(SEQUENCE, greatest)?;
    }
    Ok(())
}

/// Maximum memory for the database's cached pages, in bytes.
const CACHE_BYTES: usize = 32 << 20;

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn failed(path: &Path, error: impl Into<redb::Error>) -> Error {
    let (path, source) = (path.to_owned(), Box::new(error.into()));
    match is_damage(&source) {
        true => Error::CatalogueUnreadable { path, source },
        false => Error::Catalogue { path, source },
    }
}

fn is_damage(error: &redb::Error) -> bool {
    match error {
        redb::Error::Corrupted(_) => true,
        redb::Error::Io(error) => {
            matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(object: u8, container: u8) -> ObjectRow {
        let mut version = crate::stored::residency::tests::example().version;
        version.object = Id([object; 16]);
        version.location.container = Id([container; 16]);
        ObjectRow {
            state: ObjectState::Replaced,
            file: Id([1; 16]),
            inode: Id([2; 16]),
            version,
            since: Timestamp { seconds: 4, nanoseconds: 5 },
            seen: 6,
            path: b"a/b".to_vec(),
            sources: Some(Vec::new()),
        }
    }

    #[test]
    fn container_is_forgotten_with_its_last_row() {
        let catalogue = Catalogue::in_memory().unwrap();
        let rows = [row(1, 9), row(2, 9), row(3, 8)];
        catalogue.put(&rows).unwrap();
        catalogue.put(&rows[..1]).unwrap();
        assert_eq!(catalogue.get(Id([2; 16])).unwrap().as_ref(), Some(&rows[1]));
        let mut count = 0;
        let mut visit = |_| {
            count += 1;
            Ok(())
        };
        catalogue.for_each(&mut visit).unwrap();
        assert_eq!(count, 3);
        assert_eq!(catalogue.remove(&rows[..1]).unwrap().1, []);
        assert!(catalogue.knows_container(Id([9; 16])).unwrap());
        assert_eq!(catalogue.remove(&rows).unwrap().1, [Id([9; 16]), Id([8; 16])]);
        assert!(!catalogue.knows_container(Id([9; 16])).unwrap());
    }

    #[test]
    fn concurrent_update_of_a_row_stays() {
        let catalogue = Catalogue::in_memory().unwrap();
        let [still, turned, gone, new] = [1, 2, 3, 4].map(|object| row(object, 9));
        catalogue.put(&[still.clone(), turned.clone()]).unwrap();
        let change = |row: &ObjectRow, before: Option<&ObjectRow>| RowChange {
            before: before.cloned(),
            after: ObjectRow { state: ObjectState::Live, seen: 8, ..row.clone() },
        };
        let changes = [
            change(&still, Some(&still)),
            change(&turned, Some(&turned)),
            change(&gone, Some(&gone)),
            change(&new, None),
        ];
        let since = Timestamp { seconds: 9, nanoseconds: 0 };
        catalogue.turn(turned.version.object, ObjectState::Removed, since).unwrap();
        catalogue.put_where_still(&changes).unwrap();
        let found = [still, turned, gone, new].map(|row| {
            let row = catalogue.get(row.version.object).unwrap()?;
            Some((row.state, row.seen))
        });
        let live = Some((ObjectState::Live, 8));
        assert_eq!(found, [live, Some((ObjectState::Removed, 8)), None, live]);
    }

    /// A file is removed after archiving has written its xattr, but before archiving updates the
    /// catalogue. The update must not turn the row into a live one.
    #[test]
    fn removal_during_archiving_is_recorded() {
        let catalogue = Catalogue::in_memory().unwrap();
        let [before, still, gone] = [1, 2, 3].map(|object| row(object, object));
        let pending = |row: &ObjectRow| ObjectRow { state: ObjectState::Pending, ..row.clone() };
        let live = ObjectRow { state: ObjectState::Live, ..before.clone() };
        catalogue.put(&[live, pending(&still), pending(&gone)]).unwrap();
        let scan = still.seen + 1;
        while catalogue.begin_scan().unwrap() < scan {}
        let then = Timestamp { seconds: 8, nanoseconds: 0 };
        catalogue.turn(gone.version.object, ObjectState::Removed, then).unwrap();
        let written = |row: &ObjectRow| {
            let mut row = pending(row);
            row.version.root = [9; 32];
            row
        };
        let object_before = Some(before.version.object);
        let archived = [(written(&still), object_before), (written(&gone), None)];
        let now = Timestamp { seconds: 9, nanoseconds: 0 };
        catalogue.settle(&archived, now).unwrap();
        let found = [before, still, gone].map(|row| {
            let row = catalogue.get(row.version.object).unwrap().unwrap();
            assert!(row.seen >= scan, "a scan that had begun did not see it");
            (row.state, row.since, row.version.root == [9; 32])
        });
        let expected = [
            (ObjectState::Replaced, now, false),
            (ObjectState::Live, now, true),
            (ObjectState::Removed, then, true),
        ];
        assert_eq!(found, expected);
    }

    fn pending(catalogue: &Catalogue) -> Vec<u8> {
        use redb::ReadableTableMetadata;
        let rows = catalogue.pending().unwrap();
        let noted = catalogue.ask(|transaction| Ok(transaction.open_table(PENDING)?.len()?));
        assert_eq!(noted.unwrap(), rows.len() as u64, "and no others");
        rows.iter().map(|row| row.version.object.0[0]).collect()
    }

    #[test]
    fn pending_rows_are_indexed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("catalogue.redb");
        let catalogue = Catalogue::open(&path).unwrap();
        let rows = [1, 2, 3, 4].map(|object| {
            let state = ObjectState::Pending;
            ObjectRow { state, ..row(object, object) }
        });
        catalogue.put(&rows).unwrap();
        catalogue.put(&[row(5, 5)]).unwrap();
        assert_eq!(pending(&catalogue), [1, 2, 3, 4]);
        catalogue.settle(&[(rows[0].clone(), None)], Timestamp::default()).unwrap();
        catalogue.turn(Id([2; 16]), ObjectState::Removed, Timestamp::default()).unwrap();
        catalogue.remove(&rows[2..3]).unwrap();
        assert_eq!(pending(&catalogue), [4]);
        drop(catalogue);
        assert_eq!(pending(&Catalogue::open(&path).unwrap()), [4]);
    }

    #[test]
    fn unclean_shutdown_leaves_the_catalogue_in_doubt_until_a_scan() {
        let catalogue = Catalogue::in_memory().unwrap();
        catalogue.begin_use().unwrap();
        assert!(catalogue.is_in_doubt().unwrap(), "a new catalogue is in doubt");
        catalogue.end_use().unwrap();
        catalogue.begin_use().unwrap();
        assert!(catalogue.is_in_doubt().unwrap());
        catalogue.end_doubt().unwrap();
        catalogue.end_use().unwrap();
        catalogue.begin_use().unwrap();
        assert!(!catalogue.is_in_doubt().unwrap());
        catalogue.begin_use().unwrap();
        assert!(catalogue.is_in_doubt().unwrap(), "the previous use did not end cleanly");
    }

    #[test]
    fn sequence_numbers_increase_even_if_the_clock_is_set_back() {
        let catalogue = Catalogue::in_memory().unwrap();
        let late = Timestamp { seconds: 100, nanoseconds: 7 };
        assert_eq!(catalogue.next_sequence(late, 0).unwrap(), 100_000_000_007);
        let next = |above| catalogue.next_sequence(Timestamp::default(), above).unwrap();
        assert_eq!((next(0), next(200_000_000_000)), (100_000_000_008, 200_000_000_001));
        let mut known = row(1, 2);
        known.version.sequence = 300_000_000_000;
        catalogue.put(&[known]).unwrap();
        assert_eq!(next(0), 300_000_000_001);
    }
}
