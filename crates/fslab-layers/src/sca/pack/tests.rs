//! What fails while a file becomes the packed one.

use std::sync::atomic::{AtomicBool, Ordering};

use fslab_vfs::{FileSystem, Handle, Ino, MemFs, Name, OpenMode, Request};

use super::*;
use crate::sca::frame::Identity;
use crate::sca::lower::LowerFile;
use crate::sca::prepared::Prepared;
use crate::sca::{codec, options, recovery, roots};

const CHUNK: u64 = 4096;
const CHUNKS: u64 = 64;
/// So often everything is written: the gaps must have room for a copy.
const ROUNDS: u64 = 5;

/// Fails the next write to where the first frame begins, once it is told to.
#[derive(Default)]
struct FailsAtFirst {
    inner: MemFs,
    fails: AtomicBool,
}

impl FileSystem for FailsAtFirst {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        if offset == HEAD_BYTES && self.fails.swap(false, Ordering::SeqCst) {
            return Err(Errno::IO.into());
        }
        self.inner.write(request, ino, handle, offset, data, options)
    }
}

/// A file below, and the contents of its chunks.
fn file_in(fs: &Arc<FailsAtFirst>) -> LowerFile {
    let (request, name) = (Request::default(), Name::new("file".as_ref()).unwrap());
    let made = fs.create(&request, Ino::ROOT, name, 0o644, OpenMode::READ_WRITE);
    let (entry, opened) = made.unwrap();
    LowerFile { fs: Arc::clone(fs) as Arc<_>, ino: entry.attr.ino, handle: opened.handle }
}

fn put(log: &mut Log, io: Io<'_>, (chunk, byte): (u64, u8)) {
    let bytes = vec![byte; CHUNK as usize];
    let whole = (chunk * CHUNK, bytes.as_slice());
    log.write(io, whole, &mut Prepared::default(), WriteOptions::default()).unwrap();
}

/// What each chunk begins with.
fn content(log: &Log, io: Io<'_>) -> Vec<u8> {
    let first = |chunk| {
        let mut bytes = vec![0; CHUNK as usize];
        log.read(io, chunk * CHUNK, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "chunk {chunk}");
        bytes[0]
    };
    (0..CHUNKS).map(first).collect()
}

fn reopened(io: Io<'_>, identity: Identity) -> Log {
    let beginning = io.lower.read(io.request, 0, roots::BEGINNING_BYTES).unwrap();
    recovery::open(io, identity, &beginning, io.lower.length(io.request).unwrap(), None).unwrap()
}

/// As a file of more than 2 GiB begins that was moved behind its end: with several gaps, of which
/// the first is shorter than what is of use.
fn with_two_gaps(log: &mut Log, io: Io<'_>) {
    let mut moving = log.begin_move();
    while log.move_some(io, &mut moving).unwrap() {}
    assert!(log.end_move(io, &moving).unwrap());
    let gap = log.leading_gaps(io).unwrap()[0];
    let (start, end) = (gap.reference.offset, gap.reference.end());
    let middle = start + CHUNKS * CHUNK / 4;
    let (first, last) = (gap.sequence, gap.last_sequence());
    for (range, sequences) in [(middle..end, first + 1..=last), (start..middle, first..=first)] {
        log.make_gap(io, &Gap { range, sequences }, log.size).unwrap();
    }
    assert_eq!(log.leading_gaps(io).unwrap().len(), 2);
}

/// The slot leads to the packed frames, which lie where there were gaps: these must never be
/// emptied again, whatever fails from then on.
#[test]
fn what_fails_once_a_file_is_packed_takes_nothing_of_it() {
    let fs = Arc::new(FailsAtFirst::default());
    let (lower, request, settings) =
        (file_in(&fs), Request::default(), options::of_tools().unwrap());
    let io = Io::new(&lower, &request, &settings);
    let identity = Identity::from_stored(codec::copy::SPEC.number, 12, 5).unwrap();
    let mut log = Log::new(identity);
    for chunk in (0..ROUNDS).flat_map(|_| 0..CHUNKS) {
        put(&mut log, io, (chunk, chunk as u8 + 1));
    }
    with_two_gaps(&mut log, io);
    let mut expected = content(&log, io);
    fs.fails.store(true, Ordering::SeqCst);
    assert_eq!(log.pack(io).unwrap_err().errno(), Errno::IO);
    assert!(!fs.fails.load(Ordering::SeqCst), "nothing was written to the first gap");
    assert_eq!(content(&log, io), expected);
    assert_eq!(content(&reopened(io, identity), io), expected);
    put(&mut log, io, (3, 200));
    expected[3] = 200;
    log.sync(io, false).unwrap();
    let mut found = reopened(io, identity);
    assert_eq!(content(&found, io), expected);
    assert_eq!(found.sequence, log.sequence);
    assert!(!found.is_superseding && found.clear_the_end(io).is_ok());
}
