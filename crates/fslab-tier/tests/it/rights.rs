//! Permissions of rebuilt files: the same users have access as before, and nobody else.

use std::sync::Arc;

use fslab_tier::catalogue::ObjectRow;
use fslab_tier::command::{Command, Event, execute};
use fslab_tier::own_request;
use fslab_vfs::{Ino, OpenMode};
use fslab_vfs_testing::client::Client;

use crate::parts::{empty_tree, fresh_over, rebuild_in};
use crate::rebuilding::picture;
use crate::support::{Bench, MIB, noise};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// user::rwx user:1000:rwx group::r-x mask::rwx other::---
fn list() -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 7, u32::MAX),
        (0x02, 7, 1000),
        (0x04, 5, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Makes a directory with a default ACL, and files of each kind in it that are older than the ACL.
fn handing_down(bench: &Bench) -> Ino {
    let client = bench.client();
    let directory = client.mkdir_mode(Ino::ROOT, "directory", 0o750).unwrap().ino;
    client.mkdir_mode(directory, "inner", 0o770).unwrap();
    client.symlink(directory, "symlink", "file").unwrap();
    client.mknod(directory, "pipe", 0o010_660, 0).unwrap();
    client.file(directory, "empty", &[]).unwrap();
    let file = client.file(directory, "file", &noise(1, MIB)).unwrap();
    client.chmod(file, 0o660).unwrap();
    bench.archive(file, "directory/file").unwrap();
    let listed = client.file(directory, "listed", &noise(2, MIB)).unwrap();
    client.setxattr(listed, ACCESS, &list()).unwrap();
    bench.archive(listed, "directory/listed").unwrap();
    client.setxattr(directory, DEFAULT, &list()).unwrap();
    directory
}

#[test]
fn rebuilt_file_inherits_no_acl() {
    let bench = Bench::new();
    handing_down(&bench);
    bench.tier.archive_tree(&own_request()).unwrap();
    let before = picture(&*bench.fs);
    assert!(before.iter().any(|line| line.contains(ACCESS)), "{before:?}");
    let lower = empty_tree();
    // The new directory may have its own default ACL.
    Client::new(&*lower).setxattr(Ino::ROOT, DEFAULT, &list()).unwrap();
    let report = rebuild_in(&bench, &lower);
    assert_eq!(report.problems, Vec::<String>::new());
    let fresh = fresh_over(&bench, Arc::clone(&lower));
    assert_eq!(picture(&*fresh.fs), before);
    assert!(Client::new(&*lower).getxattr(Ino::ROOT, DEFAULT).is_err());
}

#[test]
fn newer_object_inherits_no_acl() {
    let bench = Bench::new();
    let directory = handing_down(&bench);
    bench.client().removexattr(directory, DEFAULT).unwrap();
    let young = bench.client().file(directory, "young", &noise(3, MIB)).unwrap();
    bench.client().setxattr(directory, DEFAULT, &list()).unwrap();
    bench.tier.archive_tree(&own_request()).unwrap();
    bench.archive(young, "directory/young").unwrap();
    let before = picture(&*bench.fs);
    let lower = empty_tree();
    assert_eq!(rebuild_in(&bench, &lower).younger, 1);
    assert_eq!(picture(&*fresh_over(&bench, lower).fs), before);
}

#[test]
fn undeleted_file_inherits_no_acl() {
    let bench = Bench::new();
    let directory = handing_down(&bench);
    let client = bench.client();
    client.unlink(directory, "file").unwrap();
    let mut objects = Vec::new();
    let mut keep = |row: ObjectRow| {
        objects.extend((row.path == b"directory/file").then_some(row.version.object));
        Ok(())
    };
    bench.tier.catalogue().for_each(&mut keep).unwrap();
    let command = Command::Undelete { object: objects[0], path: b"directory/again".to_vec() };
    let mut told = Vec::new();
    let mut tell = |event| {
        told.push(event);
        true
    };
    execute(&bench.tier, &command, &own_request(), &mut tell).unwrap();
    assert!(matches!(&told[..], [Event::Done { .. }]), "{told:?}");
    let again = client.lookup(directory, "again").unwrap();
    assert_eq!(again.permissions.bits(), 0o660);
    assert!(client.getxattr(again.ino, ACCESS).is_err());
}

/// Both names get the later version, without the xattrs of the earlier one.
#[test]
fn xattrs_of_an_earlier_version_are_replaced_by_the_later() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "f", &noise(4, 2 * MIB)).unwrap();
    client.link(ino, Ino::ROOT, "g").unwrap();
    client.setxattr(ino, ACCESS, &list()).unwrap();
    client.setxattr(ino, "user.former", b"1").unwrap();
    bench.archive(ino, "f").unwrap();
    bench.tier.archive_tree(&own_request()).unwrap();
    client.removexattr(ino, ACCESS).unwrap();
    client.removexattr(ino, "user.former").unwrap();
    client.setxattr(ino, "user.latter", b"2").unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"later").unwrap();
    file.close().unwrap();
    bench.archive(ino, "f").unwrap();
    let before = picture(&*bench.fs);
    let lower = empty_tree();
    let report = rebuild_in(&bench, &lower);
    assert_eq!((report.younger, report.problems.len()), (1, 0), "{report:?}");
    assert_eq!(picture(&*fresh_over(&bench, lower).fs), before);
}
