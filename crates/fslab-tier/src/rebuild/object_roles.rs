//! The role of each object in a rebuild, kept in the catalogue's rows in place of the number of a
//! scan. So objects take no memory, however many there are; rows of an earlier run are ignored,
//! since they are about another tree.

use std::collections::HashMap;

use crate::catalogue::{Catalogue, ObjectRow, ObjectState};
use crate::error::Result;
use crate::id::Id;

/// What a run has to do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A file that was there names it.
    Kept,
    /// A file that the run made names it.
    Cleanup,
    /// It is in an archive, and no file names it.
    Unneeded,
}

/// Rows of a run.
pub(super) struct ObjectRoles<'a> {
    catalogue: &'a Catalogue,
    /// What rows of files that were there say.
    kept: u64,
    /// What all others say.
    made: u64,
    /// Those that are not written yet, by object.
    rows: HashMap<Id, ObjectRow>,
}

impl<'a> ObjectRoles<'a> {
    /// Begins a run, which looks at what is there.
    pub(super) fn begin(catalogue: &'a Catalogue) -> Result<Self> {
        Ok(Self { kept: catalogue.begin_scan()?, ..Self::of_no_run(catalogue) })
    }

    /// Everything was looked at: what is noted from here on, the run makes or finds.
    pub(super) fn begin_making(&mut self) -> Result<()> {
        self.write(0)?;
        self.made = self.catalogue.begin_scan()?;
        Ok(())
    }

    /// Of who makes a file, and no tree.
    pub(super) fn of_no_run(catalogue: &'a Catalogue) -> Self {
        Self { catalogue, kept: 0, made: 0, rows: HashMap::new() }
    }

    /// Notes what an object is to the tree.
    pub(super) fn put(&mut self, row: ObjectRow) {
        let seen = self.kept.max(self.made);
        self.rows.insert(row.version.object, ObjectRow { seen, ..row });
    }

    /// What this run has noted of an object.
    pub(super) fn get(&self, object: Id) -> Result<Option<(Role, ObjectRow)>> {
        let row = match self.rows.get(&object) {
            Some(row) => Some(row.clone()),
            None => self.catalogue.get(object)?,
        };
        Ok(row.and_then(|row| Some((self.role(&row)?, row))))
    }

    fn role(&self, row: &ObjectRow) -> Option<Role> {
        match row.state {
            _ if row.seen == self.kept => Some(Role::Kept),
            _ if row.seen != self.made => None,
            ObjectState::Live | ObjectState::Pending => Some(Role::Cleanup),
            ObjectState::Replaced | ObjectState::Removed => Some(Role::Unneeded),
        }
    }

    /// Writes rows if there are more than some.
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

    /// Objects that no file names and that can come back.
    pub(super) fn unneeded(&mut self) -> Result<u64> {
        let mut count = 0;
        self.for_each(&mut |role, _| count += u64::from(role == Role::Unneeded))?;
        Ok(count)
    }

    /// The rows that are not written yet.
    pub(super) fn into_rows(self) -> impl Iterator<Item = ObjectRow> {
        self.rows.into_values()
    }
}
