//! The role of each object in a rebuild. To save memory, roles are stored in the catalogue's rows,
//! in the field for the number of a scan. Rows of an earlier run are ignored, because they describe
//! another tree.

use std::collections::HashMap;

use crate::catalogue::{Catalogue, ObjectRow, ObjectState};
use crate::error::Result;
use crate::id::Id;
use crate::stored::Version;

/// The role of an object in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// An existing file refers to the object.
    Kept,
    /// A file that this run made refers to the object.
    Made,
    /// The object is in an archive, and no file refers to it.
    Unneeded,
}

/// The roles in one run.
pub(super) struct ObjectRoles<'a> {
    catalogue: &'a Catalogue,
    /// The scan number in rows of existing files.
    kept: u64,
    /// The scan number in all other rows.
    made: u64,
    /// Rows that are not written yet, by object.
    rows: HashMap<Id, ObjectRow>,
}

impl<'a> ObjectRoles<'a> {
    /// Begins a run with the survey of existing files.
    pub(super) fn begin(catalogue: &'a Catalogue) -> Result<Self> {
        Ok(Self { kept: catalogue.begin_scan()?, ..Self::of_no_run(catalogue) })
    }

    /// Ends the survey. Objects recorded from now on belong to files that this run makes, or to no
    /// file.
    pub(super) fn begin_making(&mut self) -> Result<()> {
        self.write(0)?;
        self.made = self.catalogue.begin_scan()?;
        Ok(())
    }

    /// Makes roles for a single new file, outside of a rebuild.
    pub(super) fn of_no_run(catalogue: &'a Catalogue) -> Self {
        Self { catalogue, kept: 0, made: 0, rows: HashMap::new() }
    }

    /// Records the role of an object.
    pub(super) fn put(&mut self, row: ObjectRow) {
        let seen = self.kept.max(self.made);
        self.rows.insert(row.version.object, ObjectRow { seen, ..row });
    }

    /// Returns the recorded role and row of an object.
    pub(super) fn get(&self, object: Id) -> Result<Option<(Role, ObjectRow)>> {
        let row = self.row(object)?;
        Ok(row.and_then(|row| Some((self.role(&row)?, row))))
    }

    /// Returns the file and the version of an object, even if only an earlier run recorded them.
    pub(super) fn version(&self, object: Id) -> Result<Option<(Id, Version)>> {
        Ok(self.row(object)?.map(|row| (row.file, row.version)))
    }

    fn row(&self, object: Id) -> Result<Option<ObjectRow>> {
        match self.rows.get(&object) {
            Some(row) => Ok(Some(row.clone())),
            None => self.catalogue.get(object),
        }
    }

    fn role(&self, row: &ObjectRow) -> Option<Role> {
        match row.state {
            _ if row.seen == self.kept => Some(Role::Kept),
            _ if row.seen != self.made => None,
            ObjectState::Live | ObjectState::Pending => Some(Role::Made),
            ObjectState::Replaced | ObjectState::Removed | ObjectState::Source => {
                Some(Role::Unneeded)
            }
        }
    }

    /// Writes the rows if there are more than `least`.
    pub(super) fn write(&mut self, least: usize) -> Result<()> {
        if self.rows.len() > least {
            let rows: Vec<_> = std::mem::take(&mut self.rows).into_values().collect();
            self.catalogue.put(&rows)?;
        }
        Ok(())
    }

    /// Calls `visit` with each row of this run.
    pub(super) fn for_each(&mut self, visit: &mut dyn FnMut(Role, &ObjectRow)) -> Result<()> {
        self.write(0)?;
        self.catalogue.for_each(&mut |row| {
            if let Some(role) = self.role(&row) {
                visit(role, &row);
            }
            Ok(())
        })
    }

    /// Returns the number of objects that no file refers to and that can be restored.
    pub(super) fn unneeded(&mut self) -> Result<u64> {
        let mut count = 0;
        self.for_each(&mut |role, _| count += u64::from(role == Role::Unneeded))?;
        Ok(count)
    }

    /// Returns the rows that are not written yet.
    pub(super) fn into_rows(self) -> impl Iterator<Item = ObjectRow> {
        self.rows.into_values()
    }
}
