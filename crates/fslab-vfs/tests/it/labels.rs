//! Tests the security labels of new files.

use std::ffi::OsString;

use fslab_vfs::{Creation, Errno, FileSystem, Ino, MemFs, Name, OpenMode, Request, Result};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::skip::skip;

use crate::host::{directories, make};

const NAME: &str = "new";

fn labelled(subject: &dyn FileSystem, label: &str) -> Request {
    let labels = vec![(OsString::from(label), b"secret".to_vec())];
    let creation = Creation { labels, ..Creation::default() };
    Request { creation, ..Client::new(subject).request() }
}

/// Creates an inode and returns its number. The caller releases one lookup of the inode. All ways
/// to create use the given name, except for the last one (`tmpfile`).
type Create = fn(&dyn FileSystem, &Request, Name<'_>) -> Result<Ino>;

const WAYS: [Create; 5] = [
    |subject, request, name| Ok(subject.mkdir(request, Ino::ROOT, name, 0o755)?.attr.ino),
    |subject, request, name| Ok(subject.mknod(request, Ino::ROOT, name, 0o10_644, 0)?.attr.ino),
    |subject, request, name| {
        Ok(subject.symlink(request, Ino::ROOT, name, "target".as_ref())?.attr.ino)
    },
    |subject, request, name| {
        let created = subject.create(request, Ino::ROOT, name, 0o644, OpenMode::READ_WRITE)?;
        subject.release(request, created.0.attr.ino, created.1.handle)?;
        Ok(created.0.attr.ino)
    },
    |subject, request, _| {
        let (entry, opened) = subject.tmpfile(request, Ino::ROOT, 0o644, OpenMode::READ_WRITE)?;
        let value = subject.getxattr(request, entry.attr.ino, "security.test".as_ref());
        subject.release(request, entry.attr.ino, opened.handle)?;
        assert_eq!(value?, b"secret");
        Ok(entry.attr.ino)
    },
];

fn subjects() -> Vec<(Box<dyn FileSystem>, Option<tempfile::TempDir>)> {
    let hosts = directories().into_iter().map(|directory| {
        let subject = make(directory.path());
        (subject, Some(directory))
    });
    let memory: Box<dyn FileSystem> = Box::new(MemFs::default());
    std::iter::once((memory, None)).chain(hosts).collect()
}

#[test]
fn labels_are_set_at_creation() {
    if !rustix::process::geteuid().is_root() {
        return skip("labels::labels_are_set_at_creation", "not root");
    }
    let name = Name::new(NAME.as_ref()).unwrap();
    for (subject, _directory) in subjects() {
        let request = labelled(&*subject, "security.test");
        for way in WAYS {
            let ino = way(&*subject, &request, name).unwrap();
            if subject.lookup(&request, Ino::ROOT, name).is_ok() {
                let value = subject.getxattr(&request, ino, "security.test".as_ref()).unwrap();
                assert_eq!(value, b"secret");
                subject.forget(ino, 1);
                let removed = subject.unlink(&request, Ino::ROOT, name);
                removed.or_else(|_| subject.rmdir(&request, Ino::ROOT, name)).unwrap();
            }
            subject.forget(ino, 1);
        }
    }
}

#[test]
fn file_is_not_created_if_its_labels_cannot_be_set() {
    let name = Name::new(NAME.as_ref()).unwrap();
    for (subject, directory) in subjects() {
        // No file system supports attributes with this name.
        let request = labelled(&*subject, "nowhere.test");
        for way in WAYS {
            let refused = way(&*subject, &request, name).unwrap_err().errno();
            assert_eq!(refused, Errno::OPNOTSUPP);
            let found = subject.lookup(&request, Ino::ROOT, name).map(drop);
            assert_eq!(found.unwrap_err().errno(), Errno::NOENT);
        }
        if let Some(directory) = directory {
            assert_eq!(directory.path().read_dir().unwrap().count(), 0);
        }
    }
}
