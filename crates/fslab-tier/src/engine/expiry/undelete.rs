//! Undelete: makes a new file from a replaced or removed version, within its retention time.

use std::sync::Arc;

use fslab_vfs::Request;

use crate::catalogue::{ObjectRow, ObjectState, RowChange};
use crate::engine::Tier;
use crate::engine::copies::combined::CombinedCopies;
use crate::error::{Error, shown};
use crate::id::Id;
use crate::lower::Found;
use crate::rebuild::Options;
use crate::stored::{Attributes, Version};

impl Tier {
    /// Makes a new file from a replaced or removed version. Returns its size in bytes, and the
    /// attributes that could not be restored.
    pub(crate) fn undelete(
        self: &Arc<Self>,
        object: Id,
        path: &[u8],
        request: &Request,
    ) -> crate::Result<(u64, Vec<String>)> {
        let _stays = self.nobody_else(request)?;
        let row = self.catalogue.get(object)?;
        let row =
            row.filter(|row| matches!(row.state, ObjectState::Replaced | ObjectState::Removed));
        let row = row.ok_or_else(|| Error::Refused {
            what: format!(
                "version {object} is not a replaced or removed version; see `fslab tier versions`"
            ),
        })?;
        if Found::at(&self.lower, path).is_ok() {
            return Err(Error::Refused { what: format!("{}: exists", shown(path)) });
        }
        // The version is made live first, so that it does not expire while the file is created. If
        // a crash happens before the file exists, a scan corrects the row. The file gets a new file
        // identity; with the old one it would share the versions of the original file.
        let (since, file) = (self.around.calendar.now(), self.around.identities.make());
        let path = path.to_vec();
        let live = ObjectRow { state: ObjectState::Live, since, file, path, ..row.clone() };
        self.catalogue.put(std::slice::from_ref(&live))?;
        let before = self.catalogue.get(object)?;
        let made = self.make_undeleted(&live);
        if made.is_err() {
            self.catalogue.put(std::slice::from_ref(&row))?;
        }
        let (after, problems) = made?;
        // The new inode is stored in the row, unless the file was recorded as removed since
        // `before` was read.
        let change = after.map(|after| RowChange { before, after });
        self.catalogue.put_where_still(&change)?;
        Ok((row.version.size, problems))
    }

    /// Creates the new file of an undelete. Returns its row, and the attributes that could not be
    /// restored.
    fn make_undeleted(&self, row: &ObjectRow) -> crate::Result<(Option<ObjectRow>, Vec<String>)> {
        let attributes = self.attributes_in_archives(&row.version)?;
        let attributes = Attributes { path: row.path.clone(), ..attributes };
        // The attributes are trusted if this tree archived the version. Otherwise a scan found the
        // version in an archive to which others may write, so each archive with a copy must be
        // authenticated.
        let is_trusting = row.inode != Id::default()
            || self.holders(&row.version).iter().all(|archive| archive.is_authentic());
        // Records that the tree was changed, so that the shutdown of the engine also makes the
        // file's directory durable.
        self.lifecycle.note_change();
        let poison = self.settings.poison;
        let options = Options { trust: is_trusting, poison, ..Options::default() };
        crate::rebuild::make_one_stub(
            &self.lower,
            &self.around,
            self.settings.tier,
            (&attributes, options),
            (row.file, row.version.clone()),
        )
    }

    fn attributes_in_archives(&self, version: &Version) -> crate::Result<Attributes> {
        let kept = self.ask_holders(version, |archive| {
            let reader = self.reader(archive, version)?;
            reader.check_sources()?;
            Ok(reader.attributes().clone())
        });
        match kept {
            // No copy is intact, but the intact parts of several copies may suffice.
            Err(_) if self.holders(version).len() > 1 => {
                CombinedCopies::attributes(self.holders(version), version)
            }
            kept => kept,
        }
    }
}
