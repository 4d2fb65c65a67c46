//! Attributes as a mount shows them, whatever the engine does or was doing to a file.

use fslab_vfs::{Attr, FileKind, Result};

use crate::engine::Tier;
use crate::stored::Residency;
use crate::stored::residency::Unreadable;

impl Tier {
    /// The attributes of an inode as a mount shows them: a file whose bytes are elsewhere has some,
    /// and a kill while bytes were put back has not changed it.
    ///
    /// # Errors
    /// What the file system below answers.
    pub fn shown(&self, attr: Attr) -> Result<Attr> {
        let may_seem_empty = attr.size > 0 && attr.blocks == 0;
        if attr.kind != FileKind::Regular || !(may_seem_empty || self.is_in_doubt()) {
            return Ok(self.root().shown(attr));
        }
        match self.residency_of(&attr) {
            Ok(None) => Ok(attr),
            Ok(Some(known)) => Ok(with_residency(attr, &known)),
            // Archivers take a file without a block for one hole.
            Err(Unreadable::Corrupt(_)) => Ok(Attr { blocks: attr.blocks.max(1), ..attr }),
            Err(Unreadable::Below(error)) => Err(error),
        }
    }

    /// Where the bytes of an inode are now. A mark that came along with the bytes of another file,
    /// as `rsync -X` and `cp -a` by root bring it, tells nothing of this one.
    pub(crate) fn residency_of(
        &self,
        attr: &Attr,
    ) -> std::result::Result<Option<Residency>, Unreadable> {
        let known = match self.in_use(attr.ino) {
            Some(file) => self.present_residency(&file),
            None => self.residency_below(attr.ino),
        };
        Ok(known?.filter(|known| self.means_something(known, attr)))
    }
}

fn with_residency(attr: Attr, known: &Residency) -> Attr {
    let is_away = !known.offline.is_empty() && attr.size > 0;
    let was_moving = known.moving && attr.size == known.version.size;
    let blocks = if is_away { attr.blocks.max(1) } else { attr.blocks };
    let modified = if was_moving { known.version.modified } else { attr.modified };
    Attr { blocks, modified, ..attr }
}
