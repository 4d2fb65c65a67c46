//! Tests failures of the connection. If the kernel refuses a reply, the references in the reply are
//! released. A mount works even if no further descriptors can be opened.

use std::sync::Arc;

use fslab_vfs::{Errno, FileSystem, Ino, MemFs};

use super::subject::Subject;
use crate::options::MountOptions;
use crate::protocol::opcode::Opcode;

/// Requests whose replies give references to the kernel.
fn giving() -> Vec<(Opcode, Vec<u8>)> {
    let words = |count: usize| vec![0; count * 8];
    let named = |count: usize, name: &str| [&words(count), name.as_bytes(), b"\0"].concat();
    let mut listing = words(5);
    // The listing uses the handle of the root, and a buffer that is large enough for all entries.
    listing[0] = 2;
    listing[17] = 0x40;
    vec![
        (Opcode::Lookup, named(0, "a")),
        (Opcode::Mkdir, named(1, "new-directory")),
        (Opcode::Mknod, named(2, "new-node")),
        (Opcode::Symlink, [named(0, "new-link"), b"target\0".to_vec()].concat()),
        (Opcode::Create, named(2, "new-file")),
        (Opcode::Tmpfile, named(2, "")),
        (Opcode::Opendir, words(1)),
        (Opcode::Readdirplus, listing),
    ]
}

/// Counts lookups and open handles before and after all requests of [`giving`], whose replies are
/// refused with this error.
fn counts(refusal: Option<Errno>) -> [(usize, usize); 2] {
    let mut subject = Subject::new(&MountOptions::default());
    let count = |subject: &Subject| (subject.memory.remembered(), subject.memory.open_handles());
    let before = count(&subject);
    *subject.script.refusal.lock() = refusal;
    for (opcode, rest) in giving() {
        subject.ask(opcode, 1, &rest);
        let replied = subject.script.replies.lock().last().copied();
        assert!(matches!(replied, Some(Ok(1..))), "{opcode:?}: {replied:?}");
    }
    [before, count(&subject)]
}

#[test]
fn refused_reply_releases_its_lookups_and_handles() {
    for refusal in [Errno::NOENT, Errno::INVAL] {
        let [before, after] = counts(Some(refusal));
        assert_eq!(before, after, "{refusal}");
    }
    let [before, after] = counts(None);
    assert!(after.0 > before.0 && after.1 > before.1, "else nothing was tried: {after:?}");
}

#[test]
fn thread_without_its_own_descriptor_still_reads_requests() {
    let subject = Subject::new(&MountOptions::default());
    *subject.script.refusal.lock() = Some(Errno::MFILE);
    subject.server.start().unwrap();
    // The test's transport ends the mount at the first read.
    subject.server.wait().unwrap();
}

/// A file system that panics at every forget.
struct Panicking(Arc<MemFs>);

impl FileSystem for Panicking {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.0)
    }

    fn forget(&self, _: Ino, _: u64) {
        panic!("planted")
    }
}

#[test]
fn panic_while_releasing_a_refused_reply_ends_no_thread() {
    let options = MountOptions::default();
    let mut subject = Subject::over(&options, |memory| Arc::new(Panicking(memory)));
    *subject.script.refusal.lock() = Some(Errno::NOENT);
    for _ in 0..2 {
        subject.ask(Opcode::Lookup, 1, b"a\0");
    }
    assert_eq!(*subject.script.replies.lock(), [Ok(128); 2]);
}
