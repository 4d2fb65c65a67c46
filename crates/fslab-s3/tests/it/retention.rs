//! Stores that retain deleted objects: because of a lock, or as old versions.

use std::io::ErrorKind;
use std::sync::Arc;

use fslab_s3::testing::{Fault, Hashing};
use fslab_tier::archive::{Archive, Deletion, Retained};

use crate::support::{TIER, World, contents, files, listed, write};

/// Returns the number and the bytes of the retained objects, and the reason.
fn retained(archive: &Arc<dyn Archive>) -> (u64, u64, String) {
    let Retained { objects, bytes, is_partial, reason } = archive.retained().unwrap_or_default();
    assert!(!is_partial, "{objects} {bytes} {reason}");
    (objects, bytes, reason)
}

/// A refused deletion is neither an error nor a success. The object is hidden, counted and
/// reported, and deleted when its lock has ended.
#[test]
fn locked_object_is_retained_and_deleted_later() {
    for (lock, expected) in [
        ("ON", "legal hold"),
        ("2031-01-01T00:00:00Z", "retained until 2031-01-01T00:00:00Z (COMPLIANCE)"),
    ] {
        let world = World::new();
        let archive = world.open();
        assert_eq!(archive.retained(), None);
        write(&*archive, files(1), b"locked").unwrap();
        write(&*archive, files(2), b"other").unwrap();
        world.store.set_lock(Some(lock));
        // The second deletion finds the object no longer, but it still exists.
        for _ in 0..2 {
            assert_eq!(archive.delete(files(1)).unwrap(), Deletion::Retained);
            let (objects, bytes, reason) = retained(&archive);
            assert_eq!((objects, bytes), (1, 6), "{reason}");
            assert!(reason.contains(expected), "{reason}");
            assert_eq!(listed(&*archive).unwrap(), [(files(2).1, 5)]);
            archive.retry_deletions().unwrap();
        }
        assert_eq!(world.store.keys("/files/01/").len(), 2, "the object and its mark");
        world.store.set_lock(None);
        archive.retry_deletions().unwrap();
        assert_eq!(archive.retained(), None);
        assert_eq!(world.store.keys("/files/01/"), Vec::<String>::new());
        assert_eq!(archive.delete(files(1)).unwrap(), Deletion::Done);
    }
}

/// The next writers find the retained objects, and try again to delete them. The number of marks
/// does not grow.
#[test]
fn locked_objects_are_still_retained_after_a_restart() {
    let world = World::new();
    let archive = world.open();
    write(&*archive, files(1), b"locked").unwrap();
    world.store.set_lock(Some("ON"));
    assert_eq!(archive.delete(files(1)).unwrap(), Deletion::Retained);
    drop(archive);
    for _ in 0..3 {
        let archive = world.open();
        let (objects, bytes, reason) = retained(&archive);
        assert_eq!((objects, bytes), (1, 6), "{reason}");
        assert!(listed(&*archive).unwrap().is_empty());
        // The container can be written again.
        assert_eq!(contents(&*archive, files(1)).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(world.store.keys("/deleted/").len() <= 2, "{:?}", world.store.keys("/deleted/"));
    }
    world.store.set_lock(None);
    let archive = world.open();
    assert_eq!(archive.retained(), None);
    assert_eq!(world.store.keys("/files/"), Vec::<String>::new());
}

/// A store whose refusal names a lock is believed, even if it does not tell the lock of the object.
/// A mere lack of permission is an error, because somebody must repair it.
#[test]
fn only_refusals_because_of_a_lock_retain_an_object() {
    let message = "Access Denied because object protected by object lock";
    for (status, code, message, is_lock) in [
        (403, "AccessDenied", message, true),
        (403, "RetentionPolicyNotMet", "", true),
        (409, "FileImmutable", "", true),
        (403, "AccessDenied", "", false),
        (403, "AccessDenied", "Access Denied", false),
        (400, "InvalidRequest", "", false),
    ] {
        let world = World::new();
        let archive = world.open();
        write(&*archive, files(1), b"hello").unwrap();
        let told = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
        world.proxy.add("DELETE", "/b/files/", Fault::Told(status, told), 1);
        let deleted = archive.delete(files(1));
        match is_lock {
            true => assert_eq!(deleted.unwrap(), Deletion::Retained, "{code} {message}"),
            false => assert!(deleted.is_err(), "{code} {message}"),
        }
        assert_eq!(archive.retained().is_some(), is_lock, "{code} {message}");
    }
}

/// In a bucket with versioning, deletions only add delete markers. The old versions are counted
/// until a lifecycle rule deletes them, also after a restart.
#[test]
fn old_versions_are_counted_until_they_are_gone() {
    let world = World::new();
    world.store.set_versions(true);
    let archive = world.open();
    let (objects, bytes, reason) = retained(&archive);
    assert!((objects, bytes) == (0, 0) && reason.contains("has versioning"), "{reason}");
    for number in 1..=20 {
        write(&*archive, files(number), &[number; 10]).unwrap();
    }
    for number in 1..=19 {
        assert_eq!(archive.delete(files(number)).unwrap(), Deletion::Retained);
        assert_eq!(retained(&archive).0, u64::from(number));
    }
    assert_eq!(retained(&archive).1, 190);
    assert_eq!(listed(&*archive).unwrap(), [(files(20).1, 10)]);
    assert_eq!(world.store.keys("/deleted/"), Vec::<String>::new(), "no marks are needed");
    archive.retry_deletions().unwrap();
    assert_eq!(retained(&archive).0, 19);
    drop(archive);
    // At the next start only some pages are read, so the number is a lower bound.
    let archive = world.open();
    let found = archive.retained().unwrap();
    assert!(found.is_partial && found.objects > 0 && found.objects < 19, "{found:?}");
    archive.retry_deletions().unwrap();
    assert_eq!((retained(&archive).0, retained(&archive).1), (19, 190));
    world.store.drop_old_versions();
    archive.retry_deletions().unwrap();
    assert_eq!((retained(&archive).0, retained(&archive).1), (0, 0));
}

/// If versioning was suspended or can't be read, the store's answers still show old versions.
#[test]
fn delete_markers_are_noticed_without_the_rules_of_the_bucket() {
    let world = World::new();
    let archive = world.open();
    write(&*archive, files(1), b"hello").unwrap();
    world.store.set_versions(true);
    assert_eq!(archive.delete(files(1)).unwrap(), Deletion::Retained);
    let (objects, bytes, reason) = retained(&archive);
    assert!((objects, bytes) == (1, 5) && reason.contains("old versions"), "{reason}");
}

/// A replaced object may be retained, too.
#[test]
fn replaced_object_may_be_locked() {
    for hashing in [Hashing::default(), Hashing::NONE] {
        let world = World::of(hashing);
        let archive = world.open();
        write(&*archive, files(1), b"before").unwrap();
        world.store.set_lock(Some("ON"));
        write(&*archive, files(1), b"and after").unwrap();
        assert_eq!(contents(&*archive, files(1)).unwrap(), b"and after");
        assert_eq!(retained(&archive).0, 1);
        drop(archive);
        let archive = world.place().open(TIER, None).unwrap();
        assert_eq!(contents(&*archive, files(1)).unwrap(), b"and after");
    }
}
