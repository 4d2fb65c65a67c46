//! Removing names of files. When the last name is removed, the file's object is kept until it
//! expires.

use std::sync::Arc;

use fslab_vfs::{FileKind, FileSystem, Ino, Name};

use crate::catalogue::ObjectState;
use crate::engine::Tier;
use crate::id::Id;
use crate::lower::Found;

impl Tier {
    /// Removes a name of a file. If it was the last name, the file's object is recorded as
    /// unneeded.
    ///
    /// The file's state is locked, so that its xattr can't change during the removal. A concurrent
    /// archiving or repacking is either recorded before the removal, or fails because the file has
    /// no name any more.
    pub(crate) fn removing<T>(
        self: &Arc<Self>,
        (parent, name): (Ino, Name<'_>),
        remove: impl FnOnce() -> fslab_vfs::Result<T>,
    ) -> fslab_vfs::Result<T> {
        let victim = Found::below(&self.lower, parent, name.as_os_str()).ok();
        let victim = victim.filter(|found| found.attr.kind == FileKind::Regular);
        let Some(victim) = victim else { return remove() };
        let used = self.enter(victim.ino());
        let state = used.file.lock();
        let object = self.last_to_name(victim.ino());
        let done = remove()?;
        drop(state);
        object.into_iter().for_each(|object| self.removed(object));
        Ok(done)
    }

    /// Returns the object of a file that has only one name left. The caller holds the lock of the
    /// file's state. If this can't be determined, returns `None`; a scan then finds the unneeded
    /// object.
    fn last_to_name(&self, ino: Ino) -> Option<Id> {
        let residency = self.residency_at_rest(ino).ok()??;
        let attr = self.lower.getattr(&self.request(), ino, None).ok()?;
        let is_own = self.around.is_of(residency.inode, &attr);
        (is_own && attr.links == 1).then_some(residency.version.object)
    }

    /// Records that the last name of a file was removed. Its object is kept for the retention time.
    fn removed(&self, object: Id) {
        self.lifecycle.note_change();
        let since = self.around.calendar.now();
        if let Err(error) = self.catalogue.turn(object, ObjectState::Removed, since) {
            tracing::warn!(%error, "can't record that a file was removed; the next scan will \
                record this");
        }
    }
}
