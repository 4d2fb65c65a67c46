//! Tests the extensions of creating requests: labels and groups. Only a kernel with a security
//! module sends labels, so the tests make these requests themselves.

use fslab_vfs::{FileSystem, Ino, Name, Permissions, Request, SetAttr};

use super::script::{BY_ROOT, Record};
use super::subject::Subject;
use crate::options::MountOptions;
use crate::protocol::opcode::Opcode;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn serve(subject: &mut Subject, opcode: Opcode, flags: u8, node: u8, parts: [&[u8]; 2]) {
    let [body, extensions] = parts;
    let record = Record {
        flags,
        opcode: opcode as u8,
        node,
        extensions: (extensions.len() / 8) as u8,
        rest: [body, extensions].concat(),
    };
    subject.serve(&record.to_request());
    let replied = subject.script.replies.lock().last().copied();
    assert!(matches!(replied, Some(Ok(1..))), "{opcode:?}: {replied:?}");
}

/// The creating request for each kind of file, and the number of 8-byte words in its body before
/// the name.
const KINDS: [(Opcode, usize); 4] =
    [(Opcode::Mkdir, 1), (Opcode::Mknod, 2), (Opcode::Create, 2), (Opcode::Symlink, 0)];

/// A record of one label: its header of 8 bytes, the name with its NUL (14 bytes) and the value (6
/// bytes) are padded to 32 bytes.
fn label() -> Vec<u8> {
    let mut label = words(&[8 + 32, 1, 6, 0]);
    label.extend_from_slice(b"security.test\0secret\0\0\0\0");
    label
}

/// Creates a file of each kind with a label, and checks the label. `place` puts the record of the
/// label into the body or the extensions.
fn check_labels(place: impl Fn(Vec<u8>, Vec<u8>) -> [Vec<u8>; 2]) {
    for (opcode, count) in KINDS {
        let mut subject = Subject::new(&MountOptions::default());
        let mut body = [&vec![0; count * 8][..], b"new\0"].concat();
        body.extend_from_slice(if opcode == Opcode::Symlink { b"target\0" } else { b"" });
        let [body, extensions] = place(body, label());
        serve(&mut subject, opcode, BY_ROOT, 1, [&body, &extensions]);
        let name = Name::new("new".as_ref()).unwrap();
        let ino = subject.memory.lookup(&Request::default(), Ino::ROOT, name).unwrap().attr.ino;
        let value =
            subject.memory.getxattr(&Request::default(), ino, "security.test".as_ref()).unwrap();
        assert_eq!(value, b"secret", "{opcode:?}");
    }
}

#[test]
fn labels_are_set_at_creation() {
    check_labels(|body, label| [body, label]);
}

/// Before Linux 6.3, the header of a request does not contain the length of the records.
#[test]
fn labels_of_older_kernels_are_read_after_the_names() {
    check_labels(|body, label| [[body, label].concat(), vec![]]);
    let mut subject = Subject::new(&MountOptions::default());
    let body = [&[0; 16][..], b"/\0", &label()].concat();
    serve(&mut subject, Opcode::Tmpfile, BY_ROOT, 1, [&body, &[]]);
}

#[test]
fn only_groups_named_in_the_request_keep_set_group_id() {
    const DIRECTORY: u8 = 3;
    let in_group = words(&[16, 32, 1, 4321]);
    for (groups, mode) in [(&in_group[..], 0o2775), (&[], 0o775)] {
        let mut subject = Subject::new(&MountOptions::default());
        let permissions = Some(Permissions::new(0o2777));
        let group = SetAttr { gid: Some(4321), permissions, ..SetAttr::default() };
        let directory = Ino(DIRECTORY.into());
        subject.memory.setattr(&Request::default(), directory, None, &group).unwrap();
        let body = [words(&[0, 0o102_775, 0, 0]), b"new\0".to_vec()].concat();
        serve(&mut subject, Opcode::Create, 0, DIRECTORY, [&body, groups]);
        let name = Name::new("new".as_ref()).unwrap();
        let attr = subject.memory.lookup(&Request::default(), directory, name).unwrap().attr;
        assert_eq!((attr.gid, attr.permissions.bits()), (4321, mode));
    }
}
