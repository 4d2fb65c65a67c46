//! A failing store: acknowledged data exists, read data is correct, and no unneeded objects remain.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use fslab_s3::testing::{Fault, Hashing};
use fslab_tier::archive::Archive;
use fslab_tier::archive::conformance::broken_promises;

use crate::support::{TIER, World, contents, delete, files, listed, noise, write};

/// The requests that can fail. For each: the method, a part of the target, and whether the request
/// is sent while the archive is opened.
const CALLS: &[(&str, &str, bool)] = &[
    ("GET", "/archive.toml", true),
    ("PUT", "/probe/", true),
    ("GET", "/lease", true),
    ("GET", "prefix", true),
    ("PUT", "/epochs/", true),
    ("PUT", "/lease", true),
    ("PUT", "/lease", false),
    ("GET", "prefix", false),
    ("PUT", "/files/", false),
    ("GET", "/files/", false),
    ("PUT", "/deleted/", false),
    ("DELETE", "/files/", false),
    ("DELETE", "/deleted/", false),
    ("POST", "uploads", false),
    ("PUT", "partNumber", false),
    ("POST", "uploadId", false),
];

fn faults() -> Vec<Fault> {
    vec![
        Fault::Status(500, None),
        Fault::Status(503, None),
        Fault::Status(503, Some(1)),
        Fault::Status(412, None),
        Fault::Status(403, None),
        Fault::Told(403, told("ExpiredToken")),
        Fault::Told(404, String::new()),
        Fault::Told(400, told("Odd")),
        Fault::Told(200, told("InternalError")),
        Fault::DoneBut(500),
        Fault::Reset,
        Fault::DoneAndReset,
        Fault::Short,
        Fault::Long,
        Fault::OtherRange,
        Fault::Flip,
        Fault::FlipSent,
        Fault::OtherTag,
        Fault::Delay(Duration::from_millis(20)),
    ]
}

fn told(code: &str) -> String {
    format!("<Error><Code>{code}</Code><Message>no</Message></Error>")
}

/// Writes a small and a large container, replaces one, reads all and deletes one. Checks the
/// results of the successful calls. Returns the containers that must exist afterwards.
fn exercise(archive: &dyn Archive, large: usize) -> Vec<(u8, Vec<u8>)> {
    let mut held = Vec::new();
    for (number, length) in [(1, 100), (2, large), (3, 50)] {
        let bytes = noise(number, length);
        if write(archive, files(number), &bytes).is_ok() {
            held.push((number, bytes));
        }
    }
    if write(archive, files(3), &noise(4, 60)).is_ok() {
        held.retain(|(number, _)| *number != 3);
        held.push((3, noise(4, 60)));
    }
    for (number, bytes) in &held {
        match contents(archive, files(*number)) {
            // One flipped bit is accepted here, because readers detect it by the hash of the block.
            Ok(found) => {
                let wrong = found.iter().zip(bytes).filter(|(one, other)| one != other).count();
                assert!(found.len() == bytes.len() && wrong <= 1, "{number}: {wrong} wrong");
            }
            Err(error) => assert_ne!(error.kind(), ErrorKind::NotFound, "{number}: {error}"),
        }
    }
    if archive.delete(files(1)).is_ok() {
        held.retain(|(number, _)| *number != 1);
    } else if !listed(archive).is_ok_and(|found| found.iter().any(|(id, _)| id.0[0] == 1)) {
        // The store may have deleted the container although the call failed.
        held.retain(|(number, _)| *number != 1);
    }
    held
}

#[test]
fn archive_over_an_in_memory_store_conforms() {
    let world = World::new();
    assert_eq!(broken_promises(&*world.open()), Vec::<String>::new());
}

/// Injects each fault once into each kind of request. No acknowledged data is lost, no wrong data
/// is read, and the next start removes unfinished parts.
#[test]
fn no_fault_loses_or_changes_acknowledged_data() {
    for fault in faults() {
        let world = World::new();
        for (method, target, is_at_open) in CALLS {
            // A multipart upload needs more than one part.
            let is_in_parts = target.contains("upload") || target.contains("part");
            let large = if is_in_parts { (8 << 20) + 5 } else { 1000 };
            let meet = || world.proxy.add(method, target, fault.clone(), 1);
            is_at_open.then(meet);
            let opened = world.place().open(TIER, None);
            assert!(opened.is_ok() || *is_at_open, "{:?}", opened.err());
            (!is_at_open).then(meet);
            let held = opened.map_or_else(|_| Vec::new(), |archive| exercise(&*archive, large));
            world.proxy.clear();
            let what = format!("{fault:?} at {method} {target}");
            let after = match world.direct().open(TIER, None) {
                Ok(after) => after,
                Err(error) => panic!("{what}: {error}"),
            };
            assert_eq!(world.store.uploads(), Vec::<String>::new(), "{what}");
            for (number, bytes) in held {
                let found = contents(&*after, files(number));
                let found = found.unwrap_or_else(|error| panic!("{what}: {number}: {error}"));
                assert!(found == bytes, "{what}: {number} holds something else");
            }
            (1..=3).for_each(|number| delete(&*after, files(number)).unwrap());
            assert!(listed(&*after).unwrap().is_empty(), "{what}");
        }
        let left = world.store.keys("/files/");
        assert_eq!(left, Vec::<String>::new(), "{fault:?} leaves objects behind");
    }
}

#[test]
fn one_failure_is_retried_and_many_make_the_store_unavailable() {
    let world = World::new();
    let archive = world.open();
    write(&*archive, files(1), b"hello").unwrap();
    for fault in [Fault::Status(503, None), Fault::Reset, Fault::Short, Fault::OtherRange] {
        world.proxy.add("GET", "/files/", fault, 2);
        assert_eq!(contents(&*archive, files(1)).unwrap(), b"hello");
    }
    world.proxy.add("GET", "/files/", Fault::Status(503, None), 5);
    let error = contents(&*archive, files(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
    assert!(error.to_string().contains("HTTP status 503"), "{error}");
    world.proxy.add("GET", "/files/", Fault::OtherRange, 5);
    let error = contents(&*archive, files(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Other, "{error}");
    assert_eq!(contents(&*archive, files(1)).unwrap(), b"hello");
}

/// An object counts as lost only if the store reports that it is missing, and as damaged only if
/// its contents were read.
#[test]
fn unexpected_answers_count_as_neither_damage_nor_loss() {
    let world = World::new();
    let archive = world.open();
    write(&*archive, files(1), b"hello").unwrap();
    for (target, status, text) in [
        ("/files/", 404, String::new()),
        ("/files/", 400, told("Odd")),
        ("prefix", 404, told("NoSuchKey")),
        ("prefix", 200, told("InternalError")),
        ("prefix", 200, "<html></html>".to_owned()),
    ] {
        archive.forget(files(1));
        world.proxy.add("GET", target, Fault::Told(status, text.clone()), 5);
        let error = contents(&*archive, files(1)).unwrap_err();
        let is_told = [ErrorKind::NotFound, ErrorKind::InvalidData].contains(&error.kind());
        assert!(!is_told, "{status} {text}: {error}");
        world.proxy.clear();
        assert_eq!(contents(&*archive, files(1)).unwrap(), b"hello");
    }
    let key = world.store.keys("/files/").remove(0);
    world.store.remove(&key);
    archive.forget(files(1));
    let error = contents(&*archive, files(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[test]
fn retry_after_header_is_respected() {
    let world = World::new();
    let archive = world.open();
    write(&*archive, files(1), b"hello").unwrap();
    world.proxy.add("GET", "/files/", Fault::Status(503, Some(2)), 1);
    let begun = Instant::now();
    assert_eq!(contents(&*archive, files(1)).unwrap(), b"hello");
    assert!(begun.elapsed() >= Duration::from_secs(2));
}

#[test]
fn request_without_progress_is_retried() {
    let world = World::new();
    let archive = world.open();
    write(&*archive, files(1), b"hello").unwrap();
    world.proxy.add("GET", "/files/", Fault::Silent, 1);
    assert_eq!(contents(&*archive, files(1)).unwrap(), b"hello", "the next attempt is answered");
}

#[test]
fn errors_state_their_cause_without_secrets() {
    use fslab_s3::testing::{ACCESS_KEY, SECRET_KEY};
    let world = World::new();
    let archive = world.open();
    write(&*archive, files(1), b"hello").unwrap();
    for (status, code, expected) in [
        (403, "AccessDenied", ErrorKind::PermissionDenied),
        (403, "ExpiredToken", ErrorKind::NotConnected),
        (404, "NoSuchBucket", ErrorKind::NotConnected),
        (301, "PermanentRedirect", ErrorKind::NotConnected),
        (400, "Odd", ErrorKind::Other),
    ] {
        let text = format!(
            "<Error><Code>{code}</Code><Message>{SECRET_KEY} of {ACCESS_KEY}\n</Message></Error>"
        );
        world.proxy.add("GET", "/files/", Fault::Told(status, text), 1);
        let error = contents(&*archive, files(1)).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), expected, "{text}");
        assert!(text.contains(code), "{text}");
        assert!(!text.contains(SECRET_KEY) && !text.contains(ACCESS_KEY), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
    assert_eq!(contents(&*archive, files(1)).unwrap(), b"hello");
}

#[test]
fn full_store_fails_writes_with_storage_full() {
    let world = World::new();
    let archive = world.open();
    world.proxy.add("PUT", "/files/", Fault::Told(507, String::new()), 1);
    let error = write(&*archive, files(1), b"hello").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
}

#[test]
fn redirects_are_not_followed() {
    let world = World::new();
    let archive = world.open();
    write(&*archive, files(1), b"hello").unwrap();
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let place = format!("http://{}/", elsewhere.local_addr().unwrap());
    world.proxy.add("GET", "/files/", Fault::Redirect(307, place), 1);
    let error = contents(&*archive, files(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
    assert!(error.to_string().contains("redirects are not followed"), "{error}");
    assert_eq!(elsewhere.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// A damaged object is deleted only after its replacement was read back.
#[test]
fn replaced_object_stays_until_the_new_one_was_read_back() {
    let world = World::of(Hashing { verifies_objects: false, ..Hashing::default() });
    let archive = world.open();
    write(&*archive, files(1), b"before").unwrap();
    world.proxy.add("GET", "/files/", Fault::Flip, 1);
    let error = write(&*archive, files(1), b"and after").unwrap_err();
    assert!(error.to_string().contains("read back"), "{error}");
    assert_eq!(contents(&*archive, files(1)).unwrap(), b"before");
    assert_eq!(world.store.keys("/files/").len(), 1);
    let requests = world.proxy.seen().len();
    write(&*archive, files(1), b"and after").unwrap();
    let seen = world.proxy.seen().split_off(requests);
    let place = |method: &str| {
        let is_it = |line: &&String| line.starts_with(method) && line.contains("/files/01/");
        seen.iter().position(|line| is_it(&line)).unwrap()
    };
    assert!(place("PUT") < place("GET") && place("GET") < place("DELETE"), "{seen:?}");
    assert_eq!(contents(&*archive, files(1)).unwrap(), b"and after");
    assert_eq!(world.store.keys("/files/").len(), 1);
}

/// Uploads of other programs are kept, and so are uploads whose keys are not fslab's.
#[test]
fn next_start_aborts_only_unfinished_uploads_of_the_archive() {
    let world = World::new();
    let archive = world.open();
    let mut upload = archive.begin(files(1)).unwrap();
    upload.write(&noise(1, 9 << 20)).unwrap();
    // As if the process were killed: nothing aborts the upload or releases the lease.
    std::mem::forget(upload);
    std::mem::forget(archive);
    let foreign = ["a/b/files/x", "a/b/other", "a/bc/x"];
    foreign.iter().for_each(|key| world.store.begin_upload(key));
    assert_eq!(world.store.uploads().len(), 4);
    world.proxy.add("PUT", "/lease", Fault::Reset, u32::MAX);
    let after = world.direct().open(TIER, None).unwrap();
    let mut left = world.store.uploads();
    left.sort_unstable();
    assert_eq!(left, foreign);
    assert!(listed(&*after).unwrap().is_empty());
}
