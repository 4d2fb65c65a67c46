//! Two writers: only one writes, and delayed requests of the other destroy no data.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use fslab_s3::testing::{Fault, Place, Proxy};
use fslab_tier::Id;
use fslab_tier::archive::{Archive, Writer};
use fslab_tier::stored::WriterMark;

use crate::support::{ARCHIVE, LONG, TIER, World, contents, delete, files, listed, write};

fn writer(number: u8) -> Writer {
    let mark = WriterMark { id: Id([number; 16]), is_rebuilt: false, root: Id([9; 16]) };
    let tree = Some(format!("/tree{number}").into());
    Writer { mark, tree, since: Default::default(), openings: None }
}

/// Disconnects the first writer, and lets a second one take over after the end of the lease.
fn taken_over(world: &World) -> Arc<dyn Archive> {
    world.proxy.add("", "", Fault::Reset, u32::MAX);
    world.direct().open(TIER, None).unwrap()
}

#[test]
fn writer_that_renews_its_lease_is_not_replaced() {
    let world = World::new();
    let place = Place::new(world.store.port(), LONG).unwrap();
    let first = place.open(TIER, None).unwrap();
    let second = world.direct().open(TIER, None).err().unwrap().to_string();
    assert!(second.contains("is being written by another fslab: process "), "{second}");
    write(&*first, files(1), b"hello").unwrap();
    drop(first);
    let second = world.direct().open(TIER, None).unwrap();
    assert_eq!(contents(&*second, files(1)).unwrap(), b"hello");
}

#[test]
fn former_writer_stops_writing_and_deletes_nothing() {
    let world = World::new();
    let first = world.open();
    write(&*first, files(1), b"hello").unwrap();
    let mut upload = first.begin(files(2)).unwrap();
    upload.write(b"begun before").unwrap();
    let second = taken_over(&world);
    world.proxy.clear();
    let unfinished = upload.finish().unwrap_err();
    assert_eq!(unfinished.kind(), ErrorKind::NotConnected, "{unfinished}");
    for refused in [delete(&*first, files(1)), first.begin(files(3)).map(drop)] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
        assert!(error.to_string().contains("taken over by process "), "{error}");
    }
    assert_eq!(contents(&*second, files(1)).unwrap(), b"hello");
    drop(first);
    write(&*second, files(3), b"by the second").unwrap();
}

/// A DELETE reaches the store long after another writer has written the container again.
#[test]
fn delayed_delete_removes_nothing_that_is_needed() {
    let world = World::new();
    let first = world.open();
    write(&*first, files(1), b"old").unwrap();
    write(&*first, files(2), b"kept").unwrap();
    world.proxy.add("DELETE", "/files/", Fault::HeldUp, 5);
    first.delete(files(1)).unwrap_err();
    let second = taken_over(&world);
    let found = listed(&*second).unwrap();
    assert_eq!(found, [(files(2).1, 4)], "what was marked is never referred to again");
    write(&*second, files(1), b"new").unwrap();
    assert!(world.proxy.deliver().unwrap() > 0);
    assert_eq!(contents(&*second, files(1)).unwrap(), b"new");
    second.forget(files(1));
    drop(second);
    world.proxy.clear();
    let third = world.direct().open(TIER, None).unwrap();
    assert_eq!(contents(&*third, files(1)).unwrap(), b"new");
    assert_eq!(contents(&*third, files(2)).unwrap(), b"kept");
}

/// A mark reaches the store after a take-over. The writer that sent the mark did not renew its
/// lease afterwards, so it deletes nothing. Later writers ignore the mark.
#[test]
fn delayed_mark_deletes_nothing() {
    let world = World::new();
    let first = world.open();
    write(&*first, files(1), b"needed").unwrap();
    world.proxy.add("PUT", "/deleted/", Fault::HeldUp, 5);
    first.delete(files(1)).unwrap_err();
    let second = taken_over(&world);
    assert_eq!(contents(&*second, files(1)).unwrap(), b"needed");
    assert!(world.proxy.deliver().unwrap() > 0);
    assert!(!world.store.keys("/deleted/").is_empty());
    assert_eq!(listed(&*second).unwrap(), [(files(1).1, 6)]);
    drop(second);
    world.proxy.clear();
    for _ in 0..2 {
        let next = world.direct().open(TIER, None).unwrap();
        assert_eq!(listed(&*next).unwrap(), [(files(1).1, 6)]);
        assert_eq!(contents(&*next, files(1)).unwrap(), b"needed");
    }
}

/// Opens the archive through a proxy that delays the PUT of the lease by five seconds, and calls
/// `meanwhile` during the delay. Also returns the proxy, which must exist as long as the archive is
/// used.
fn open_slowly(
    world: &World,
    tree: Option<Writer>,
    meanwhile: impl FnOnce(),
) -> (Proxy, Arc<dyn Archive>) {
    let slow = Proxy::before(world.store.port()).unwrap();
    slow.add("PUT", "/lease", Fault::Delay(Duration::from_secs(5)), 1);
    let place = Place::new(slow.port(), "a/b;lease=20;stall=60").unwrap();
    let archive = std::thread::scope(|scope| {
        let opened = scope.spawn(|| place.open(TIER, tree));
        while slow.count("PUT", "/lease") == 0 && !opened.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        meanwhile();
        opened.join().unwrap().unwrap()
    });
    (slow, archive)
}

/// A mark reaches the store during a take-over. The writer that sent the mark did not renew its
/// lease afterwards, so the marked object is still needed.
#[test]
fn mark_that_arrives_during_a_take_over_deletes_nothing() {
    let world = World::new();
    let first = world.open();
    write(&*first, files(1), b"needed").unwrap();
    world.proxy.add("PUT", "/deleted/", Fault::HeldUp, 5);
    first.delete(files(1)).unwrap_err();
    world.proxy.add("", "", Fault::Reset, u32::MAX);
    let deliver = || assert!(world.proxy.deliver().unwrap() > 0);
    let (_slow, second) = open_slowly(&world, None, deliver);
    assert_eq!(contents(&*second, files(1)).unwrap(), b"needed");
    drop(second);
    for _ in 0..2 {
        let next = world.direct().open(TIER, None).unwrap();
        assert_eq!(listed(&*next).unwrap(), [(files(1).1, 6)]);
        assert_eq!(contents(&*next, files(1)).unwrap(), b"needed");
    }
}

/// A tree that asks for the lease does not become the writer again after another tree took over.
#[test]
fn tree_that_is_replaced_while_it_waits_for_the_lease_only_reads() {
    let world = World::new();
    let place = world.direct();
    drop(place.open(TIER, Some(writer(1))).unwrap());
    let take_over = || place.take_over(TIER, &writer(2)).unwrap();
    let (_slow, first) = open_slowly(&world, Some(writer(1)), take_over);
    let refusal = first.refusal().unwrap();
    assert!(refusal.starts_with("is written by another tree, /tree2 on "), "{refusal}");
    let second = place.open(TIER, Some(writer(2))).unwrap();
    assert_eq!(second.refusal(), None);
    write(&*second, files(1), b"by the second").unwrap();
}

/// A renewal that reaches the store after a take-over changes nothing.
#[test]
fn delayed_renewal_does_not_take_the_lease_back() {
    let world = World::new();
    let first = world.open();
    world.proxy.add("PUT", "/lease", Fault::HeldUp, u32::MAX);
    write(&*first, files(1), b"hello").unwrap_err();
    let second = taken_over(&world);
    let lease = world.store.get("a/b/lease").unwrap();
    assert!(world.proxy.deliver().unwrap() > 0);
    assert_eq!(world.store.get("a/b/lease").unwrap(), lease);
    write(&*second, files(2), b"by the second").unwrap();
}

#[test]
fn lost_lease_is_recreated_under_the_next_epoch() {
    let world = World::new();
    let first = world.open();
    write(&*first, files(1), b"hello").unwrap();
    world.store.remove("a/b/lease");
    let error = write(&*first, files(2), b"after").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
    assert!(error.to_string().contains("its lease was deleted"), "{error}");
    let epochs = world.store.keys("/epochs/");
    let second = world.direct().open(TIER, None).unwrap();
    assert!(world.store.keys("/epochs/").iter().all(|key| !epochs.contains(key)), "{epochs:?}");
    assert_eq!(contents(&*second, files(1)).unwrap(), b"hello");
    write(&*second, files(2), b"after").unwrap();
    assert!(first.begin(files(3)).is_err());
}

#[test]
fn damaged_lease_is_replaced() {
    let world = World::new();
    let first = world.open();
    world.store.put("a/b/lease", b"epoch = \"none\"\n\xff".to_vec());
    let second = world.direct().open(TIER, None).unwrap();
    assert!(write(&*first, files(1), b"first").is_err());
    write(&*second, files(1), b"second").unwrap();
}

#[test]
fn slow_init_changes_no_archive_that_was_made_meanwhile() {
    let world = World::new();
    let place = |port| Place::new(port, "other;lease=2").unwrap();
    world.proxy.add("PUT", "/archive.toml", Fault::HeldUp, 5);
    place(world.proxy.port()).make(Id([1; 16]), TIER).unwrap_err();
    let other = place(world.store.port());
    other.make(Id([2; 16]), TIER).unwrap();
    let archive = other.open(TIER, None).unwrap();
    assert!(world.proxy.deliver().unwrap() > 0);
    assert_eq!(other.id().unwrap(), Id([2; 16]));
    write(&*archive, files(1), b"hello").unwrap();
    let again = other.make(Id([3; 16]), TIER).unwrap_err().to_string();
    assert!(again.contains("is already an archive"), "{again}");
}

#[test]
fn only_one_tree_writes_until_another_takes_over() {
    let world = World::new();
    let place = Place::new(world.store.port(), LONG).unwrap();
    let first = place.open(TIER, Some(writer(1))).unwrap();
    write(&*first, files(1), b"hello").unwrap();
    let error = place.take_over(TIER, &writer(2)).unwrap_err().to_string();
    assert!(error.contains("is being written by another fslab"), "{error}");
    drop(first);
    for other in [None, Some(writer(2))] {
        let second = place.open(TIER, other).unwrap();
        let refusal = second.refusal().unwrap();
        assert!(refusal.starts_with("is written by another tree, /tree1 on "), "{refusal}");
        assert!(refusal.ends_with(&format!(" s3://fslab-test/{LONG}")), "{refusal}");
        for refused in [delete(&*second, files(1)), second.begin(files(2)).map(drop)] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
        }
        assert_eq!(contents(&*second, files(1)).unwrap(), b"hello");
    }
    place.take_over(TIER, &writer(2)).unwrap();
    let second = place.open(TIER, Some(writer(2))).unwrap();
    assert_eq!(second.refusal(), None);
    second.delete(files(1)).unwrap();
    drop(second);
    // The archive still identifies its writer if the lease object is lost.
    world.store.remove("a/b/lease");
    assert!(place.open(TIER, Some(writer(1))).unwrap().refusal().is_some());
}

#[test]
fn archive_of_another_tier_or_kind_is_refused() {
    let world = World::new();
    let error = world.direct().open(Id([8; 16]), None).err().unwrap().to_string();
    assert!(error.contains("belongs to tier 7777"), "{error}");
    let none = Place::new(world.store.port(), "nothing").unwrap();
    let error = none.open(TIER, None).err().unwrap().to_string();
    assert!(error.ends_with("is not an archive: it has no archive.toml"), "{error}");
    world.store.put("taken/files/x", b"theirs".to_vec());
    let taken = Place::new(world.store.port(), "taken").unwrap();
    let error = taken.make(ARCHIVE, TIER).unwrap_err().to_string();
    assert!(error.contains("is not empty"), "{error}");
}
