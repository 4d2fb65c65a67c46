//! Removing names of files: with the last name, the object of a file is kept until it expires.

use std::sync::Arc;

use fslab_vfs::{FileKind, FileSystem, Ino, Name};

use crate::catalogue::ObjectState;
use crate::engine::Tier;
use crate::id::Id;
use crate::lower::Found;

impl Tier {
    /// Takes a name of a file away, and with the last one says of its object that nobody needs it.
    ///
    /// Nobody marks the file meanwhile: who archives or moves it has done so, and that is the
    /// object which goes, or finds that the file has no name any more.
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

    /// The object that a file names which is at rest, if it has one name left. What can't be told
    /// is left to a scan.
    fn last_to_name(&self, ino: Ino) -> Option<Id> {
        let residency = self.residency_at_rest(ino).ok()??;
        let attr = self.lower.getattr(&self.request(), ino, None).ok()?;
        let is_own = self.around.is_of(residency.inode, &attr);
        (is_own && attr.links == 1).then_some(residency.version.object)
    }

    /// The last name of a file is gone: its object is kept for as long as such are.
    fn removed(&self, object: Id) {
        self.lifecycle.note_change();
        let since = self.around.calendar.now();
        if let Err(error) = self.catalogue.turn(object, ObjectState::Removed, since) {
            tracing::warn!(%error, "the next scan will find that a file was removed");
        }
    }
}
