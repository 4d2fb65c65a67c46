//! Updates of rows that depend on what the catalogue says at that moment, in one transaction.

use fslab_vfs::Timestamp;
use redb::ReadableTable;

use super::row::{ObjectRow, ObjectState, RowChange};
use super::{Catalogue, OBJECTS, failed, insert, last_scan};
use crate::error::Result;
use crate::id::Id;
use crate::stored::Version;

/// What the catalogue says of an object, while nobody says anything else.
type RowOf<'a> = dyn Fn(Id) -> Result<Option<ObjectRow>> + 'a;

impl Catalogue {
    /// Says what an object is to the tree from now on; none if it has no row any more.
    ///
    /// # Errors
    /// Errors of the database, or what is wrong with the row.
    pub fn turn(&self, object: Id, state: ObjectState, since: Timestamp) -> Result<()> {
        self.rewrite(|row_of, scan| {
            let row = row_of(object)?;
            let turned = row.map(|row| row.turned(state, since, scan));
            Ok(turned.into_iter().collect())
        })
    }

    /// Pending rows are from now on those of their files' last versions, and those of the objects
    /// beside them are replaced. Of what somebody turned meanwhile only the version is written: its
    /// file has gone, or was seen elsewhere. All or none, durably.
    ///
    /// # Errors
    /// Errors of the database, or what is wrong with a row.
    pub fn settle(&self, archived: &[(ObjectRow, Option<Id>)], now: Timestamp) -> Result<()> {
        self.rewrite(|row_of, scan| {
            let mut rows = Vec::new();
            for (row, before) in archived {
                let version = row.version.clone();
                rows.push(match row_of(version.object)?.filter(is_turned) {
                    Some(turned) => ObjectRow { version, ..turned },
                    None => row.clone().turned(ObjectState::Live, now, scan),
                });
                let old = before.map(row_of).transpose()?.flatten();
                rows.extend(old.map(|old| old.turned(ObjectState::Replaced, now, scan)));
            }
            Ok(rows)
        })
    }

    /// Versions of pending rows are from now on to the tree what the objects beside them are, by
    /// what is said of those now. What is not pending any more stays as it is: who turned it knew
    /// of it. All or none, durably.
    ///
    /// # Errors
    /// Errors of the database, or what is wrong with a row.
    pub fn take_over(&self, moved: &[(Id, ObjectRow)]) -> Result<()> {
        self.rewrite(|row_of, _| {
            let mut rows = Vec::new();
            for (old, new) in moved {
                let has_its_own = row_of(new.version.object)?.as_ref().is_some_and(is_turned);
                if let Some(old) = row_of(*old)?.filter(|_| !has_its_own) {
                    rows.push(ObjectRow { version: new.version.clone(), ..old });
                }
            }
            Ok(rows)
        })
    }

    /// Says of objects that further archives have a copy, where they still are where they were. All
    /// or none, durably.
    ///
    /// # Errors
    /// Errors of the database, or what is wrong with a row.
    pub fn add_copies(&self, copied: &[Version]) -> Result<()> {
        self.rewrite(|row_of, _| {
            let mut rows = Vec::new();
            for version in copied {
                let row = row_of(version.object)?;
                let row = row.filter(|row| row.version.location == version.location);
                rows.extend(row.map(|row| {
                    let version = row.version.clone().with_copies(&version.copies);
                    ObjectRow { version, ..row }
                }));
            }
            Ok(rows)
        })
    }

    /// Writes rows where the catalogue says the same of their objects as when they were made; who
    /// said something else since knew more, and of his row only the scan that saw it is noted. All
    /// or none, durably.
    ///
    /// # Errors
    /// Errors of the database, or what is wrong with a row.
    pub fn put_where_still<'a>(
        &self,
        changes: impl IntoIterator<Item = &'a RowChange>,
    ) -> Result<()> {
        self.rewrite(|row_of, _| {
            let mut rows = Vec::new();
            for RowChange { before, after } in changes {
                let now = row_of(after.version.object)?;
                if now == *before {
                    rows.push(after.clone());
                } else if let Some(now) = now {
                    rows.push(ObjectRow { seen: now.seen.max(after.seen), ..now });
                }
            }
            Ok(rows)
        })
    }

    /// Writes rows that are made of what rows say, and of the number of the last scan that has
    /// begun, with nobody in between.
    fn rewrite(&self, make: impl FnOnce(&RowOf<'_>, u64) -> Result<Vec<ObjectRow>>) -> Result<()> {
        let done = self.change(|transaction| {
            let scan = last_scan(transaction)?;
            let made = {
                let objects = transaction.open_table(OBJECTS)?;
                let row_of = |object: Id| {
                    let row = objects.get(object.0).map_err(|error| failed(&self.path, error))?;
                    row.map(|row| self.decode(object, row.value())).transpose()
                };
                make(&row_of, scan)
            };
            match made {
                Ok(rows) => insert(transaction, &rows).map(Ok),
                Err(error) => Ok(Err(error)),
            }
        });
        done?
    }
}

/// Whether somebody said of an object what became of it.
fn is_turned(row: &ObjectRow) -> bool {
    row.state != ObjectState::Pending
}
