//! Tests interrupts that arrive before their request, or without one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fslab_vfs::{Attr, FileSystem, Handle, Ino, MemFs, Request, Result};

use super::subject::Subject;
use crate::options::MountOptions;
use crate::protocol::opcode::Opcode;

/// A file system that records whether the last getattr request was cancelled.
struct Noting {
    inner: Arc<MemFs>,
    was_cancelled: Arc<AtomicBool>,
}

impl FileSystem for Noting {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn getattr(&self, request: &Request, ino: Ino, handle: Option<Handle>) -> Result<Attr> {
        self.was_cancelled.store(request.cancellation.is_cancelled(), Ordering::SeqCst);
        self.inner.getattr(request, ino, handle)
    }
}

/// The number that every request of these tests has.
const UNIQUE: [u8; 8] = 2_u64.to_ne_bytes();

#[test]
fn an_interrupt_before_its_request_is_not_lost() {
    let was_cancelled = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&was_cancelled);
    let mut subject = Subject::over(&MountOptions::default(), |inner| {
        Arc::new(Noting { inner, was_cancelled: noted })
    });
    for expected in [true, false] {
        if expected {
            subject.ask(Opcode::Interrupt, 0, &UNIQUE);
        }
        subject.ask(Opcode::Getattr, 1, &[0; 16]);
        assert_eq!(was_cancelled.load(Ordering::SeqCst), expected);
    }
}

/// If the interrupt got a reply, the kernel would resend it before all other requests, even if the
/// interrupted request waits for one of them.
#[test]
fn interrupt_without_its_request_is_not_requested_again() {
    let mut subject = Subject::new(&MountOptions::default());
    subject.ask(Opcode::Interrupt, 0, &UNIQUE);
    assert_eq!(*subject.script.replies.lock(), []);
}
