//! Updates of rows. Each one reads the present rows and writes the new ones in one transaction.

use fslab_vfs::Timestamp;
use redb::ReadableTable;

use super::row::{ObjectRow, ObjectState, RowChange};
use super::{Catalogue, OBJECTS, failed, insert, last_scan};
use crate::error::Result;
use crate::id::Id;
use crate::stored::Version;

/// Returns the present row of an object within the transaction.
type RowOf<'a> = dyn Fn(Id) -> Result<Option<ObjectRow>> + 'a;

impl Catalogue {
    /// Changes the state of an object; does nothing if it has no row.
    ///
    /// # Errors
    /// Errors of the database, or if the row is damaged.
    pub fn turn(&self, object: Id, state: ObjectState, since: Timestamp) -> Result<()> {
        self.rewrite(|row_of, scan| {
            let row = row_of(object)?;
            let turned = row.map(|row| row.turned(state, since, scan));
            Ok(turned.into_iter().collect())
        })
    }

    /// Marks pending rows as live, and the previous objects of their files as replaced. If a row is
    /// no longer pending, because its file was removed or a scan found it, only its version is
    /// written. Writes all or none, durably.
    ///
    /// # Errors
    /// Errors of the database, or if a row is damaged.
    pub fn settle(&self, archived: &[(ObjectRow, Option<Id>)], now: Timestamp) -> Result<()> {
        self.rewrite(|row_of, scan| {
            let mut rows = Vec::new();
            for (row, before) in archived {
                let (version, sources) = (row.version.clone(), row.sources.clone());
                rows.push(match row_of(version.object)?.filter(is_turned) {
                    Some(turned) => ObjectRow { version, sources, ..turned },
                    None => row.clone().turned(ObjectState::Live, now, scan),
                });
                let old = before.map(row_of).transpose()?.flatten();
                rows.extend(old.map(|old| old.turned(ObjectState::Replaced, now, scan)));
            }
            Ok(rows)
        })
    }

    /// Copies the rows of old objects to the new objects that replace them, and sets the new
    /// versions. The row of a new object that is no longer pending is left unchanged, because a
    /// later change has updated it. Writes all or none, durably.
    ///
    /// # Errors
    /// Errors of the database, or if a row is damaged.
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

    /// Records new copies of objects, unless an object's location has changed. Writes all or none,
    /// durably.
    ///
    /// # Errors
    /// Errors of the database, or if a row is damaged.
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

    /// Writes each new row if the present row of its object still equals [`RowChange::before`].
    /// Otherwise another writer has stored newer information, so only the scan number is updated.
    /// Writes all or none, durably.
    ///
    /// # Errors
    /// Errors of the database, or if a row is damaged.
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

    /// Calls `make` and writes the rows that it returns, in one transaction. `make` receives the
    /// present rows and the number of the last scan that has begun.
    pub(super) fn rewrite(
        &self,
        make: impl FnOnce(&RowOf<'_>, u64) -> Result<Vec<ObjectRow>>,
    ) -> Result<()> {
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

/// Returns whether a row is no longer pending, which means that the result of the upload is
/// recorded.
fn is_turned(row: &ObjectRow) -> bool {
    row.state != ObjectState::Pending
}
