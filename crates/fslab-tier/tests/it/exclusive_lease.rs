//! Releases when a lease is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_tier::Error;
use fslab_vfs::{Entry, Errno, FileSystem, Handle, Ino, MemFs, OpenMode, Opened, Request, Result};

use crate::support::{Bench, MIB, noise};

/// A file system that refuses leases.
struct Refusing {
    memory: MemFs,
    /// The error for a lease of the file `first`, or of any file if `refuses_all` is set.
    answer: Errno,
    first: AtomicU64,
    refuses_all: bool,
    /// The error for making an unnamed temporary file, if any.
    makes_none: Option<Errno>,
    asked: AtomicU64,
}

impl FileSystem for Refusing {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn take_lease(&self, ino: Ino, _: Handle) -> Result<()> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let is_first = ino.0 == self.first.load(Ordering::SeqCst);
        if is_first || self.refuses_all { Err(self.answer.into()) } else { Ok(()) }
    }

    fn tmpfile(
        &self,
        request: &Request,
        parent: Ino,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        match self.makes_none {
            Some(answer) => Err(answer.into()),
            None => self.memory.tmpfile(request, parent, mode, flags),
        }
    }

    fn end_lease(&self, _: Ino, _: Handle) {}
}

/// Archives a file; returns the result of its release, and the number of lease requests.
fn released(
    answer: Errno,
    refuses_all: bool,
    makes_none: Option<Errno>,
) -> (std::result::Result<u64, Error>, u64) {
    let refusing = Refusing {
        memory: MemFs::default(),
        answer,
        first: AtomicU64::new(0),
        refuses_all,
        makes_none,
        asked: AtomicU64::new(0),
    };
    let lower = Arc::new(refusing);
    let bench = Bench::over(Arc::clone(&lower) as Arc<dyn FileSystem>);
    let data = noise(320, MIB);
    let ino = bench.client().file(Ino::ROOT, "file", &data).unwrap();
    bench.archive(ino, "file").unwrap();
    lower.first.store(ino.0, Ordering::SeqCst);
    let answer = bench.release(ino, "file").map(|released| released.bytes);
    assert!(bench.client().contents(ino).unwrap() == data);
    (answer, lower.asked.load(Ordering::SeqCst))
}

#[test]
fn release_retries_and_then_reports_an_open_file_as_busy() {
    let (answer, asked) = released(Errno::AGAIN, false, None);
    assert!(matches!(answer, Err(Error::Busy { .. })), "{answer:?}");
    assert!(asked > 3, "{asked}");
}

/// If a lease were required, no file could be released on a file system without leases.
#[test]
fn files_are_released_without_lease_support() {
    for answer in [Errno::AGAIN, Errno::NOLCK, Errno::INVAL, Errno::ACCESS] {
        assert_eq!(released(answer, true, None).0.unwrap(), MIB, "{answer}");
    }
}

/// On a full disk, the engine can't test whether leases are supported, and assumes that they are.
#[test]
fn file_with_a_refused_lease_is_busy_on_a_full_disk() {
    let (answer, _) = released(Errno::AGAIN, true, Some(Errno::NOSPC));
    assert!(matches!(answer, Err(Error::Busy { .. })), "{answer:?}");
    assert_eq!(released(Errno::AGAIN, true, Some(Errno::OPNOTSUPP)).0.unwrap(), MIB);
}

#[test]
fn running_program_is_busy() {
    let (answer, _) = released(Errno::TXTBSY, false, None);
    assert!(matches!(answer, Err(Error::Busy { .. })), "{answer:?}");
}
