//! Objects in cold storage classes, which the store must restore before they can be read.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fslab_s3::testing::Place;
use fslab_tier::archive::{Archive, EncryptedArchive, Key, Later, Staged, is_cold};

use crate::support::{Same, TIER, World, contents, delete, files, noise, write};

const GLACIER: &[(&str, &str)] = &[("x-amz-storage-class", "GLACIER")];
const TIERED: &[(&str, &str)] = &[
    ("x-amz-storage-class", "INTELLIGENT_TIERING"),
    ("x-amz-archive-status", "DEEP_ARCHIVE_ACCESS"),
];

fn later(staged: Staged) -> Later {
    match staged {
        Staged::Later(later) => later,
        Staged::Ready => panic!("the object is not restored"),
    }
}

/// Waits until a container can be read.
pub fn wait_until_ready(archive: &dyn Archive) {
    let begun = Instant::now();
    while archive.stage(files(1)).unwrap() != Staged::Ready {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the number of requests for containers of files that the proxy has seen.
fn requests(world: &World) -> usize {
    let methods = ["GET", "HEAD", "POST"];
    methods.iter().map(|method| world.proxy.count(method, "/files/01/")).sum()
}

#[test]
fn cold_object_is_restored_once_and_then_read() {
    for (headers, hours, days) in [(GLACIER, 5, "<Days>2</Days>"), (TIERED, 12, "")] {
        let world = World::new();
        let archive = world.open();
        write(&*archive, files(1), &noise(1, 5000)).unwrap();
        world.store.set_cold(headers);
        let error = contents(&*archive, files(1)).unwrap_err();
        assert!(is_cold(&error) && error.to_string().contains("cold storage class"), "{error}");
        assert!(world.store.restores().is_empty(), "a read alone restores nothing");
        let told = later(archive.stage(files(1)).unwrap());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let expected = told.expected.unwrap() - now as i64;
        assert!((hours * 3600 - 60..=hours * 3600).contains(&expected), "{expected} s");
        let [body] = &world.store.restores()[..] else { panic!("not one restore") };
        assert!(body.contains("<Tier>Standard</Tier>"), "{body}");
        assert!(body.contains("<Days>") != days.is_empty() && body.contains(days), "{body}");

        // While the restore is running, a read causes no request, and a check at most one.
        let before = requests(&world);
        assert!(is_cold(&contents(&*archive, files(1)).unwrap_err()));
        assert_eq!(requests(&world), before);
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(later(archive.stage(files(1)).unwrap()), told, "the time remains known");
        assert_eq!(requests(&world), before + 1);
        assert_eq!(world.store.restores().len(), 1);

        world.store.end_restores();
        wait_until_ready(&*archive);
        assert!(contents(&*archive, files(1)).unwrap() == noise(1, 5000));
        delete(&*archive, files(1)).unwrap();
    }
}

#[test]
fn running_restore_of_an_earlier_process_is_not_started_again() {
    let world = World::new();
    let archive = world.open();
    write(&*archive, files(1), &noise(1, 5000)).unwrap();
    world.store.set_cold(GLACIER);
    later(archive.stage(files(1)).unwrap());
    drop(archive);
    let archive = world.open();
    assert_eq!(later(archive.stage(files(1)).unwrap()).expected, None);
    assert_eq!(world.store.restores().len(), 1);
    world.store.end_restores();
    wait_until_ready(&*archive);
    assert!(contents(&*archive, files(1)).unwrap() == noise(1, 5000));
}

#[test]
fn refused_restore_is_an_error() {
    let world = World::new();
    let archive = world.open();
    write(&*archive, files(1), b"hello").unwrap();
    world.store.set_cold(GLACIER);
    world.store.refuse_restores(Some((403, "AccessDenied", "")));
    let error = archive.stage(files(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(archive.stage(files(2)).unwrap_err().kind(), ErrorKind::NotFound);
    world.store.refuse_restores(None);
    later(archive.stage(files(1)).unwrap());
}

/// A store may lack the capacity for expedited restores. This must not make the archive
/// unavailable.
#[test]
fn refused_expedited_restore_is_replaced_by_a_standard_one() {
    let world = World::new();
    let archive = world.open();
    write(&*archive, files(1), b"hello").unwrap();
    drop(archive);
    world.store.set_cold(GLACIER);
    let refusal = (503, "GlacierExpeditedRetrievalNotAvailable", "Expedited");
    world.store.refuse_restores(Some(refusal));
    let options = "a/b;retrieval=expedited";
    let archive = Place::new(world.store.port(), options).unwrap().open_to_read(TIER).unwrap();
    later(archive.stage(files(1)).unwrap());
    let [body] = &world.store.restores()[..] else { panic!("not one restore") };
    assert!(body.contains("<Tier>Standard</Tier>"), "{body}");
}

/// A store may still report a restored copy that it has deleted. Without a second restore, a reader
/// would wait forever.
#[test]
fn object_whose_restored_copy_expired_is_restored_again() {
    let world = World::new();
    let archive = world.open();
    write(&*archive, files(1), &noise(1, 5000)).unwrap();
    world.store.set_cold(GLACIER);
    later(archive.stage(files(1)).unwrap());
    world.store.end_restores();
    wait_until_ready(&*archive);
    assert!(contents(&*archive, files(1)).unwrap() == noise(1, 5000));
    world.store.expire_restored();
    assert!(is_cold(&contents(&*archive, files(1)).unwrap_err()));
    let begun = Instant::now();
    while world.store.restores().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        archive.stage(files(1)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    world.store.end_restores();
    wait_until_ready(&*archive);
    assert!(contents(&*archive, files(1)).unwrap() == noise(1, 5000));
}

#[test]
fn options_choose_the_days_and_the_speed_of_a_restore() {
    let world = World::new();
    let archive = world.open();
    write(&*archive, files(1), b"hello").unwrap();
    drop(archive);
    world.store.set_cold(GLACIER);
    let options = "a/b;restore-days=30;retrieval=bulk";
    let archive = Place::new(world.store.port(), options).unwrap().open_to_read(TIER).unwrap();
    later(archive.stage(files(1)).unwrap());
    let [body] = &world.store.restores()[..] else { panic!("not one restore") };
    assert!(body.contains("<Days>30</Days>") && body.contains("<Tier>Bulk</Tier>"), "{body}");
}

#[test]
fn encrypted_object_is_restored() {
    let world = World::new();
    let inner = world.open();
    let archive = EncryptedArchive::new(Arc::clone(&inner), Key::new([5; 32]), Arc::new(Same));
    write(&archive, files(1), &noise(1, 5000)).unwrap();
    drop(archive);
    let archive = EncryptedArchive::new(inner, Key::new([5; 32]), Arc::new(Same));
    world.store.set_cold(GLACIER);
    assert!(is_cold(&contents(&archive, files(1)).unwrap_err()));
    later(archive.stage(files(1)).unwrap());
    world.store.end_restores();
    wait_until_ready(&archive);
    assert!(contents(&archive, files(1)).unwrap() == noise(1, 5000));
}
