//! Which objects contain blocks of others. An object may refer to blocks in other objects, its
//! sources. No archive may delete a source while a row lists it.

use std::collections::{HashMap, HashSet};
use std::ops::Bound;

use redb::{ReadableTable, TableDefinition};

use super::{Catalogue, OBJECTS, ObjectRow, ObjectState, insert, last_scan};
use crate::error::Result;
use crate::id::Id;
use crate::stored::Version;
use crate::stored::format::SourceRecord;

/// A container, and an object with blocks in it.
const NEEDED: TableDefinition<([u8; 16], [u8; 16]), ()> = TableDefinition::new("needed");
/// The objects whose sources are unknown.
const UNKNOWN: TableDefinition<[u8; 16], ()> = TableDefinition::new("unknown sources");
/// The objects of which a scrub or a recall found no intact copy in any archive.
const DAMAGED: TableDefinition<[u8; 16], ()> = TableDefinition::new("damaged");

pub(super) fn create_tables(transaction: &redb::WriteTransaction) -> Result<(), redb::Error> {
    transaction.open_table(NEEDED)?;
    transaction.open_table(UNKNOWN)?;
    transaction.open_table(DAMAGED)?;
    Ok(())
}

/// Records the sources of a row. Returns the row with the sources that are known.
pub(super) fn note(
    transaction: &redb::WriteTransaction,
    row: &ObjectRow,
    before: Option<ObjectRow>,
) -> Result<ObjectRow, redb::Error> {
    let known = before.as_ref().and_then(ObjectRow::known_sources).cloned();
    let row = ObjectRow { sources: row.sources.clone().or(known), ..row.clone() };
    let before = before.map(|before| before.sources);
    if before.as_ref() == Some(&row.sources) {
        return Ok(row);
    }
    let object = row.version.object;
    forget_all(transaction, object, before.flatten())?;
    let mut needed = transaction.open_table(NEEDED)?;
    for container in row.sources.iter().flatten() {
        needed.insert((container.0, object.0), ())?;
    }
    if row.sources.is_none() {
        transaction.open_table(UNKNOWN)?.insert(object.0, ())?;
    }
    Ok(row)
}

/// Deletes the records about the sources of a row.
pub(super) fn forget(
    transaction: &redb::WriteTransaction,
    row: &ObjectRow,
) -> Result<(), redb::Error> {
    transaction.open_table(DAMAGED)?.remove(row.version.object.0)?;
    forget_all(transaction, row.version.object, row.sources.clone())
}

fn forget_all(
    transaction: &redb::WriteTransaction,
    object: Id,
    sources: Option<Vec<Id>>,
) -> Result<(), redb::Error> {
    let mut needed = transaction.open_table(NEEDED)?;
    for container in sources.iter().flatten() {
        needed.remove((container.0, object.0))?;
    }
    if sources.is_none() {
        transaction.open_table(UNKNOWN)?.remove(object.0)?;
    }
    Ok(())
}

/// Divides rows into those whose containers have blocks of other objects, and the others.
pub(super) fn needed<'r>(
    transaction: &redb::WriteTransaction,
    rows: &[&'r ObjectRow],
) -> Result<(Vec<&'r ObjectRow>, Vec<&'r ObjectRow>), redb::Error> {
    let table = transaction.open_table(NEEDED)?;
    let (mut needed, mut unneeded) = (Vec::new(), Vec::new());
    for row in rows {
        let part = if is_needed(&table, row.version.location.container)? {
            &mut needed
        } else {
            &mut unneeded
        };
        part.push(*row);
    }
    Ok((needed, unneeded))
}

fn is_needed(
    table: &impl ReadableTable<([u8; 16], [u8; 16]), ()>,
    container: Id,
) -> Result<bool, redb::Error> {
    let range = (container.0, [0; 16])..=(container.0, [u8::MAX; 16]);
    Ok(table.range(range)?.next().transpose()?.is_some())
}

/// Returns whether a row shows that the object of a source exists, and that it was recorded
/// completely.
fn is_recorded(
    objects: &impl ReadableTable<[u8; 16], &'static [u8]>,
    source: &SourceRecord,
) -> Result<bool, redb::Error> {
    let row = objects.get(source.object)?.map(|row| row.value().to_vec());
    let row = row.and_then(|row| ObjectRow::decode(Id(source.object), &row).ok());
    Ok(row.is_some_and(|row| {
        row.state != ObjectState::Pending && row.version.location.container.0 == source.container
    }))
}

impl Catalogue {
    /// Writes a row durably, if there is a row for each of its sources. Returns whether the row was
    /// written. From then on, its sources are not deleted.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn put_with_sources(&self, row: &ObjectRow, sources: &[SourceRecord]) -> Result<bool> {
        self.change(|transaction| {
            {
                let objects = transaction.open_table(OBJECTS)?;
                for source in sources {
                    if !is_recorded(&objects, source)? {
                        return Ok(false);
                    }
                }
            }
            let row = row.clone().said_after(last_scan(transaction)?);
            insert(transaction, &[row]).map(|()| true)
        })
    }

    /// Records that a version is no longer kept, although other objects need blocks of its object.
    /// Does nothing if the object has no row.
    ///
    /// # Errors
    /// Errors of the database, or if the row is damaged.
    pub fn keep_as_source(&self, object: Id) -> Result<()> {
        self.rewrite(|row_of, _| {
            let row = row_of(object)?.filter(|row| row.state != ObjectState::Source);
            let kept = row.map(|row| ObjectRow {
                state: ObjectState::Source,
                sources: Some(Vec::new()),
                ..row
            });
            Ok(kept.into_iter().collect())
        })
    }

    /// Records whether an object has no intact copy in any archive.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn note_damaged(&self, object: Id, is_damaged: bool) -> Result<()> {
        if self.is_damaged(object)? == is_damaged {
            return Ok(());
        }
        self.change(|transaction| {
            let mut damaged = transaction.open_table(DAMAGED)?;
            match is_damaged {
                true => damaged.insert(object.0, ()).map(drop)?,
                false => damaged.remove(object.0).map(drop)?,
            }
            Ok(())
        })
    }

    /// Returns whether an object was found to have no intact copy in any archive.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_damaged(&self, object: Id) -> Result<bool> {
        self.ask(|transaction| Ok(transaction.open_table(DAMAGED)?.get(object.0)?.is_some()))
    }

    /// Returns whether a container has blocks of other objects than its own.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_source(&self, container: Id) -> Result<bool> {
        self.ask(|transaction| is_needed(&transaction.open_table(NEEDED)?, container))
    }

    /// Returns the versions in all sources, by their containers.
    ///
    /// # Errors
    /// Errors of the database, or if a row is damaged.
    pub fn source_versions(&self) -> Result<HashMap<Id, Version>> {
        let needed: HashSet<Id> = self.ask(|transaction| {
            let needed = transaction.open_table(NEEDED)?;
            needed.iter()?.map(|entry| Ok(Id(entry?.0.value().0))).collect()
        })?;
        let mut versions = HashMap::new();
        if needed.is_empty() {
            return Ok(versions);
        }
        self.for_each(&mut |ObjectRow { version, .. }| {
            if needed.contains(&version.location.container) {
                versions.insert(version.location.container, version);
            }
            Ok(())
        })?;
        Ok(versions)
    }

    /// Returns the rows of objects whose sources are unknown, at most `limit`, after the object
    /// `behind`.
    ///
    /// # Errors
    /// Errors of the database, or if a row is damaged.
    pub fn with_unknown_sources(&self, behind: Option<Id>, limit: usize) -> Result<Vec<ObjectRow>> {
        let from = behind.map_or(Bound::Unbounded, |object| Bound::Excluded(object.0));
        let rows = self.ask(|transaction| {
            let objects = transaction.open_table(OBJECTS)?;
            let mut rows = Vec::new();
            let unknown = transaction.open_table(UNKNOWN)?;
            for entry in unknown.range::<[u8; 16]>((from, Bound::Unbounded))? {
                let object = entry?.0.value();
                rows.extend(objects.get(object)?.map(|row| (Id(object), row.value().to_vec())));
                if rows.len() >= limit {
                    break;
                }
            }
            Ok(rows)
        })?;
        rows.into_iter().map(|(object, row)| self.decode(object, &row)).collect()
    }

    /// Records the sources of objects that have rows.
    ///
    /// # Errors
    /// Errors of the database, or if a row is damaged.
    pub fn resolve_sources(&self, found: &[(Id, Vec<Id>)]) -> Result<()> {
        self.rewrite(|row_of, _| {
            let mut rows = Vec::new();
            for (object, sources) in found {
                let sources = Some(sources.clone());
                rows.extend(row_of(*object)?.map(|row| ObjectRow { sources, ..row }));
            }
            Ok(rows)
        })
    }
}
