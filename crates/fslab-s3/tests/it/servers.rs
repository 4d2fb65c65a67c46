//! Real servers: one that honours conditions, and one that ignores them.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use fslab_s3::testing::{Fault, Keeping, Place, Proxy, Server};
use fslab_tier::archive::conformance::broken_promises;
use fslab_tier::archive::{Archive, Deletion, EncryptedArchive, Key, Proof, Staged, is_cold};
use fslab_vfs_testing::skip::skip;

use crate::cold::wait_until_ready;
use crate::support::{ARCHIVE, SHORT, Same, TIER, contents, delete, files, listed, noise, write};

/// Starts a server, or reports why the test is skipped.
fn started(server: std::io::Result<Server>, test: &str) -> Option<Server> {
    match server {
        Ok(server) => Some(server),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip(test, &format!("{error}; `cargo xtask setup` installs it"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// All checks are in one test, since starting the server takes longest.
#[test]
fn seaweedfs_conforms_and_survives_a_split_brain() {
    let Some(server) = started(Server::seaweedfs(), "servers::seaweedfs") else { return };
    let proxy = Proxy::before(server.port()).unwrap();
    let [place, direct] =
        [proxy.port(), server.port()].map(|port| Place::new(port, SHORT).unwrap());
    direct.make(ARCHIVE, TIER).unwrap();
    let archive = place.open(TIER, None).unwrap();
    assert_eq!(broken_promises(&*archive), Vec::<String>::new());
    let encrypted = EncryptedArchive::new(Arc::clone(&archive), Key::new([5; 32]), Arc::new(Same));
    assert_eq!(broken_promises(&encrypted), Vec::<String>::new());
    drop(encrypted);
    drop(archive);
    split_brain(&proxy, &place, &direct);
    unfinished_upload(&proxy, &place, server.port());
    assert!(!direct.verifies_signed_hash().unwrap(), "SeaweedFS verifies signed hashes now");
    assert_eq!(direct.proof().unwrap(), Proof::Checksum);
    flips_and_reads(&proxy, &place);
    retained(server.port(), Proof::Checksum);
    killed(server.port());
}

/// Flips bits in transit to a real server, and counts the bytes that are read back.
fn flips_and_reads(proxy: &Proxy, place: &Place) {
    proxy.clear();
    let archive = place.open(TIER, None).unwrap();
    let mut before = proxy.sent_bytes("GET", "/files/");
    for (target, length) in [("/files/", 5000), ("partNumber", (17 << 20) + 3)] {
        proxy.add("PUT", target, Fault::FlipSent, 1);
        let requests = proxy.count("PUT", target);
        let mut upload = archive.begin(files(9)).unwrap();
        upload.write(&noise(9, length)).unwrap();
        assert_eq!(upload.finish().unwrap(), Proof::Checksum);
        // A busy machine may cause more repetitions.
        let least = if target == "partNumber" { 4 } else { 2 };
        assert!(proxy.count("PUT", target) - requests >= least, "{target}: nothing is repeated");
        assert_eq!(proxy.sent_bytes("GET", "/files/"), before, "no byte is read back");
        archive.forget(files(9));
        let mut found = vec![0; length];
        archive.read(files(9), 0, &mut found).unwrap();
        assert!(found == noise(9, length), "{target}");
        delete(&*archive, files(9)).unwrap();
        before += length;
    }
}

/// Deletes containers in buckets with versioning and with object lock, and opens the archive again.
fn retained(port: u16, proof: Proof) {
    for (bucket, keeping, expected) in [
        ("versions-test", Keeping::Versions, "has versioning, so"),
        ("locked-test", Keeping::Locked, "object lock (new objects: COMPLIANCE, 1 days)"),
    ] {
        let place = Place::in_bucket(port, bucket, SHORT).unwrap();
        place.make_bucket(keeping).unwrap();
        place.make(ARCHIVE, TIER).unwrap();
        for round in 0..3_u8 {
            let archive = place.open(TIER, None).unwrap();
            assert_eq!(archive.proof(), proof);
            let counted = |archive: &dyn Archive| {
                let found = archive.retained().unwrap();
                assert!(found.reason.contains(expected), "{}", found.reason);
                (found.objects, found.bytes)
            };
            // In later rounds, the container 3 is replaced.
            let replaced = u64::from(round.saturating_sub(1));
            let objects = u64::from(round) * 2 + replaced;
            let bytes = u64::from(round) * 9_000_005 + replaced * 5;
            assert_eq!(counted(&*archive), (objects, bytes), "{bucket}, after opening");
            for (number, length) in [(1, 5), (2, 9_000_000)] {
                write(&*archive, files(number), &noise(number, length)).unwrap();
                assert_eq!(archive.delete(files(number)).unwrap(), Deletion::Retained);
                assert_eq!(archive.delete(files(number)).unwrap(), Deletion::Done, "is hidden");
            }
            write(&*archive, files(3), b"stays").unwrap();
            assert_eq!(listed(&*archive).unwrap(), [(files(3).1, 5)]);
            assert_eq!(counted(&*archive).0, objects + 2 + u64::from(round > 0));
        }
    }
}

/// Disconnects a writer until its lease has ended and another writer takes over. Then the first
/// writer resumes, and its delayed deletes arrive.
fn split_brain(proxy: &Proxy, place: &Place, direct: &Place) {
    let first = place.open(TIER, None).unwrap();
    write(&*first, files(1), b"old").unwrap();
    write(&*first, files(2), b"kept").unwrap();
    proxy.add("DELETE", "/files/", Fault::HeldUp, 5);
    first.delete(files(1)).unwrap_err();
    proxy.add("", "", Fault::Reset, u32::MAX);
    let second = direct.open(TIER, None).unwrap();
    assert_eq!(listed(&*second).unwrap(), [(files(2).1, 4)]);
    write(&*second, files(1), b"new").unwrap();
    proxy.clear();
    assert!(first.delete(files(2)).is_err());
    assert!(first.begin(files(3)).is_err());
    assert!(proxy.deliver().unwrap() > 0);
    second.forget(files(1));
    for (container, expected) in [(files(1), b"new".as_slice()), (files(2), b"kept")] {
        assert_eq!(contents(&*second, container).unwrap(), expected);
    }
    drop(first);
    [1, 2].iter().for_each(|number| delete(&*second, files(*number)).unwrap());
}

/// Checks that the next start aborts an unfinished upload, once. `port` is the server's port.
fn unfinished_upload(proxy: &Proxy, place: &Place, port: u16) {
    let archive = place.open(TIER, None).unwrap();
    let mut upload = archive.begin(files(1)).unwrap();
    upload.write(&noise(1, 9 << 20)).unwrap();
    // As if the process were killed.
    std::mem::forget(upload);
    std::mem::forget(archive);
    proxy.add("", "", Fault::Reset, u32::MAX);
    let watch = Proxy::before(port).unwrap();
    let after = Place::new(watch.port(), SHORT).unwrap();
    for _ in 0..2 {
        drop(after.open(TIER, None).unwrap());
        assert_eq!(watch.count("DELETE", "uploadId"), 1, "dropped at the next start, and once");
    }
    proxy.clear();
}

/// moto honours conditions but verifies no checksum.
#[test]
fn moto_proves_nothing_and_retains_objects() {
    let Some(server) = started(Server::moto(), "servers::moto") else { return };
    let place = Place::new(server.port(), SHORT).unwrap();
    place.make_bucket(Keeping::Nothing).unwrap();
    assert_eq!(place.proof().unwrap(), Proof::ReadBack);
    assert!(!place.verifies_signed_hash().unwrap(), "moto verifies signed hashes now");
    place.make(ARCHIVE, TIER).unwrap();
    let archive = place.open(TIER, None).unwrap();
    assert_eq!(archive.retained(), None);
    assert_eq!(broken_promises(&*archive), Vec::<String>::new());
    restores_cold_objects(&place, &*archive);
    retained(server.port(), Proof::ReadBack);
}

/// moto restores an object as soon as it is asked.
fn restores_cold_objects(place: &Place, archive: &dyn Archive) {
    for class in ["GLACIER", "DEEP_ARCHIVE"] {
        write(archive, files(1), &noise(1, 5000)).unwrap();
        place.set_class("files/01/", class).unwrap();
        let error = contents(archive, files(1)).unwrap_err();
        assert!(is_cold(&error), "{class}: {error}");
        assert!(matches!(archive.stage(files(1)).unwrap(), Staged::Later(_)), "{class}");
        wait_until_ready(archive);
        assert!(contents(archive, files(1)).unwrap() == noise(1, 5000), "{class}");
        delete(archive, files(1)).unwrap();
    }
}

#[test]
fn store_that_ignores_conditions_is_refused_for_writing() {
    let Some(server) = started(Server::rclone(), "servers::rclone") else { return };
    let place = Place::new(server.port(), SHORT).unwrap();
    let error = place.make(ARCHIVE, TIER).unwrap_err().to_string();
    let expected = "its store ignores the condition If-None-Match";
    assert!(error.contains(expected), "{error}");
    assert_eq!(place.proof().unwrap(), Proof::ReadBack);
    assert!(!place.verifies_signed_hash().unwrap(), "rclone verifies signed hashes now");
}

/// Set in the process that [`killed`] kills: the port of the server.
const KILLED: &str = "FSLAB_S3_KILLED_PORT";

/// Kills a process with SIGKILL while it sends parts. The next start removes them.
fn killed(port: u16) {
    let name = "killed-process/archive;lease=2;stall=5";
    let place = Place::new(port, name).unwrap();
    place.make(ARCHIVE, TIER).unwrap();
    for _ in 0..2 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "servers::process_to_be_killed", "--nocapture", "--ignored"])
            .env(KILLED, port.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = lines.map_while(Result::ok).any(|line| line.contains("parts are sent"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_ready);
        assert_eq!(place.unfinished_uploads().unwrap(), 1, "the killed process left an upload");
        let archive = place.open(TIER, None).unwrap();
        assert_eq!(place.unfinished_uploads().unwrap(), 0);
        assert!(listed(&*archive).unwrap().is_empty());
        write(&*archive, files(1), &noise(1, 9 << 20)).unwrap();
        assert!(contents(&*archive, files(1)).unwrap() == noise(1, 9 << 20));
        delete(&*archive, files(1)).unwrap();
    }
}

/// The process that [`killed`] kills.
#[test]
#[ignore = "a part of the test with SeaweedFS, which runs it as a process"]
fn process_to_be_killed() {
    let port = std::env::var(KILLED).unwrap();
    let name = "killed-process/archive;lease=2;stall=5";
    let place = Place::new(port.parse().unwrap(), name).unwrap();
    let archive = place.open(TIER, None).unwrap();
    let mut upload = archive.begin(files(1)).unwrap();
    upload.write(&noise(1, 50 << 20)).unwrap();
    println!("parts are sent");
    loop {
        std::thread::park();
    }
}
