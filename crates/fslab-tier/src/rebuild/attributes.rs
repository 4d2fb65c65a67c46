//! Applies archived attributes to an inode: owner, xattrs, permissions and times.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::rules::{CAPABILITY, acl};
use fslab_vfs::{Errno, FileKind, Ino, Permissions, SetAttr, SetTime, XattrMode};

use super::Rebuilder;
use crate::closed_root::ClosedRoot;
use crate::error::{Error, Result, shown};
use crate::lower::xattr_names;
use crate::stored::{Attributes, marks};

/// The bits that make a program run as the owner or the group of its file.
const SET_ID: u32 = 0o6000;

impl Rebuilder<'_> {
    /// Sets owner, xattrs, permissions and times, in an order in which no step undoes another.
    pub(super) fn apply_attributes(&mut self, attributes: &Attributes, ino: Ino) -> Result<()> {
        let attributes = &*self.believed(attributes);
        let request = self.request();
        let owner =
            SetAttr { uid: Some(attributes.uid), gid: Some(attributes.gid), ..SetAttr::default() };
        if let Err(error) = self.lower.setattr(&request, ino, None, &owner) {
            let path = shown(&attributes.path);
            self.rebuilt.problems.push(format!("{path}: can't set its owner: {error}"));
        }
        // ACLs inherited from the directory are removed first, because setting the permissions
        // would make them effective.
        self.remove_extra_xattrs(attributes, ino, is_list)?;
        self.give_xattrs(attributes, ino);
        let is_link = attributes.kind() == Some(FileKind::Symlink);
        let permissions = (!is_link).then(|| Permissions::new(attributes.mode));
        let rest = SetAttr { permissions, ..times_of(attributes) };
        let set = match ino {
            // A closed root directory remains closed.
            Ino::ROOT => ClosedRoot::of(&**self.lower, self.around.marks)
                .and_then(|root| root.set_attributes(&**self.lower, &request, None, &rest)),
            _ => self.lower.setattr(&request, ino, None, &rest),
        };
        set.map(drop).map_err(Error::below(&attributes.path))
    }

    /// Returns the attributes that are trusted. Set-id bits and capabilities are skipped if anybody
    /// could have planted them.
    fn believed<'a>(&mut self, attributes: &'a Attributes) -> Cow<'a, Attributes> {
        let is_file = attributes.kind() == Some(FileKind::Regular);
        let has_set_id = attributes.mode & SET_ID != 0;
        let is_capability = |(name, _): &(Vec<u8>, Vec<u8>)| name == CAPABILITY.as_bytes();
        let has_capability = attributes.xattrs.iter().any(is_capability);
        if self.is_trusting || !is_file || !(has_set_id || has_capability) {
            return Cow::Borrowed(attributes);
        }
        let path = shown(&attributes.path);
        self.rebuilt
            .left_out
            .push(format!("{path}: set-id bits or capabilities were not restored"));
        let mut believed = attributes.clone();
        believed.mode &= !SET_ID;
        believed.xattrs.retain(|xattr| !is_capability(xattr));
        Cow::Owned(believed)
    }

    /// Sets the xattrs. Xattrs that fslab itself uses are refused, because an archive contains them
    /// only if somebody planted them.
    fn give_xattrs(&mut self, attributes: &Attributes, ino: Ino) {
        let (request, lower, how) = (self.request(), &**self.lower, XattrMode::empty());
        for (name, value) in &attributes.xattrs {
            let name = OsStr::from_bytes(name);
            let set = match ino {
                _ if marks::is_ours(name) => Err(Errno::PERM.into()),
                Ino::ROOT => ClosedRoot::of(lower, self.around.marks)
                    .and_then(|root| root.set_xattr(lower, &request, name, value, how)),
                _ => lower.setxattr(&request, ino, name, value, how),
            };
            if let Err(error) = set {
                let path = shown(&attributes.path);
                let name = name.display();
                self.rebuilt
                    .problems
                    .push(format!("{path}: can't restore the xattr {name}: {error}"));
            }
        }
    }

    /// Removes the xattrs that were not archived and for which `is_one` returns `true`.
    pub(super) fn remove_extra_xattrs(
        &mut self,
        attributes: &Attributes,
        ino: Ino,
        is_one: fn(&OsStr) -> bool,
    ) -> Result<()> {
        let request = self.request();
        let below = || Error::below(&attributes.path);
        let names = xattr_names(&**self.lower, &request, ino).map_err(below())?;
        let has = |name: &OsStr| attributes.xattrs.iter().any(|(own, _)| own == name.as_bytes());
        for name in names.iter().filter(|name| is_one(name) && !has(name)) {
            match self.lower.removexattr(&request, ino, name) {
                Err(error) if error.errno() != Errno::NODATA => {
                    let (path, name) = (shown(&attributes.path), name.display());
                    let what = format!(
                        "{path}: can't remove the xattr {name}, which the archived file does not \
                         have: {error}"
                    );
                    self.rebuilt.problems.push(what);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns whether an xattr is an ACL.
fn is_list(name: &OsStr) -> bool {
    name == acl::ACCESS || name == acl::DEFAULT
}

/// Returns whether archives record an xattr: user xattrs, ACLs and capabilities. Other
/// xattrs belong to the system.
pub(super) fn is_described(name: &OsStr) -> bool {
    let is_users = name.as_bytes().starts_with(b"user.") && !marks::is_ours(name);
    is_users || is_list(name) || name == CAPABILITY
}

pub(super) fn times_of(attributes: &Attributes) -> SetAttr {
    SetAttr {
        accessed: Some(SetTime::To(attributes.accessed)),
        modified: Some(SetTime::To(attributes.modified)),
        ..SetAttr::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fslab_vfs::{FileSystem, MemFs, MonotonicClock, Timestamp};
    use fslab_vfs_testing::client::Client;

    use super::*;
    use crate::catalogue::Catalogue;
    use crate::environment::{Calendar, Environment, Identities, inode_by_number_and_birth};
    use crate::id::Id;
    use crate::rebuild::ObjectRoles;
    use crate::stored::Marks;

    struct Fixed;

    impl Calendar for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }
    }

    impl Identities for Fixed {
        fn make(&self) -> Id {
            Id([1; 16])
        }
    }

    #[test]
    fn archived_tier_xattrs_are_not_applied() {
        let around = Environment {
            clock: Arc::new(MonotonicClock),
            calendar: Arc::new(Fixed),
            identities: Arc::new(Fixed),
            inode_identity: inode_by_number_and_birth,
            marks: Marks::Trusted,
        };
        let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let catalogue = Catalogue::in_memory().unwrap();
        let notes = ObjectRoles::of_no_run(&catalogue);
        let mut rebuilder = Rebuilder::new(&lower, &[], &around, Id([2; 16]), notes);
        let root = lower.getattr(&rebuilder.request(), Ino::ROOT, None).unwrap();
        let mut attributes = Attributes::of(&root);
        for name in [Marks::Trusted.tree_name(), "user.other"] {
            attributes.xattrs.push((name.into(), b"/elsewhere".to_vec()));
        }
        rebuilder.apply_attributes(&attributes, Ino::ROOT).unwrap();
        assert_eq!(Client::new(&*lower).listxattr(Ino::ROOT).unwrap(), ["user.other"]);
        assert_eq!(rebuilder.rebuilt.problems.len(), 1, "{:?}", rebuilder.rebuilt);
    }
}
