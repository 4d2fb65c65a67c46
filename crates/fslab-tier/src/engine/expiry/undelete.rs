//! Undelete: makes a new file of a version that was replaced or removed, as long as it is kept.

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
    /// Makes a new file of a version that was replaced or removed; returns its bytes, and what of
    /// it could not be made as it was.
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
            what: format!("no version {object} was replaced or removed; see `fslab tier versions`"),
        })?;
        if Found::at(&self.lower, path).is_ok() {
            return Err(Error::Refused { what: format!("{}: exists", shown(path)) });
        }
        // From now on it does not expire; a crash before the file is there leaves it to a scan. It
        // is a file of its own: versions of one that it shared its identity with would be its own.
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
        // The row is of the new inode, unless somebody has said of it meanwhile that it went.
        let change = after.map(|after| RowChange { before, after });
        self.catalogue.put_where_still(&change)?;
        Ok((row.version.size, problems))
    }

    /// Returns the row of what it made, and what could not be made as it was.
    fn make_undeleted(&self, row: &ObjectRow) -> crate::Result<(Option<ObjectRow>, Vec<String>)> {
        let attributes = self.attributes_in_archives(&row.version)?;
        let attributes = Attributes { path: row.path.clone(), ..attributes };
        // What this tree did not archive itself was found in an archive, where others may write.
        let is_trusting = row.inode != Id::default()
            || self.holders(&row.version).iter().all(|archive| archive.is_authentic());
        // The directory that it is in must be durable, too.
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
            Ok(self.reader(archive, version)?.attributes().clone())
        });
        match kept {
            // None has it whole; they may have all of it between them.
            Err(_) if self.holders(version).len() > 1 => {
                CombinedCopies::attributes(self.holders(version), version)
            }
            kept => kept,
        }
    }
}
