//! Real servers: one that honours conditions, and one that ignores them.

use std::sync::Arc;

use fslab_s3::testing::{Fault, Place, Proxy, Server};
use fslab_tier::Id;
use fslab_tier::Identities;
use fslab_tier::archive::conformance::broken_promises;
use fslab_tier::archive::{EncryptedArchive, Key};
use fslab_vfs_testing::skip::skip;

use crate::support::{ARCHIVE, SHORT, TIER, contents, files, listed, noise, write};

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

struct Same;

impl Identities for Same {
    fn make(&self) -> Id {
        Id([3; 16])
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
    [1, 2].iter().for_each(|number| second.delete(files(*number)).unwrap());
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

#[test]
fn store_that_ignores_conditions_is_refused_for_writing() {
    let Some(server) = started(Server::rclone(), "servers::rclone") else { return };
    let place = Place::new(server.port(), SHORT).unwrap();
    let error = place.make(ARCHIVE, TIER).unwrap_err().to_string();
    let expected = "its store ignores the condition If-None-Match";
    assert!(error.contains(expected), "{error}");
}
