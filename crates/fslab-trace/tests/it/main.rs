//! Tests traces as files: records can be read as they were written, and damage is reported as an
//! error.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod datasets;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fslab_trace::{
    COLUMNS, DataMode, Error, Line, Metadata, Paths, ROWS_MAX, Reader, Record, Recorder,
    RecorderOptions, TraceWriter, VERSION, WhenFull,
};
use fslab_vfs::{Clock, MonotonicClock, Operation};
use fslab_vfs_testing::environment::cases;
use fslab_vfs_testing::flag::RaisedAtEnd;
use parking_lot::{Condvar, Mutex};
use proptest::prelude::*;
use tempfile::TempDir;

const METADATA: Metadata = Metadata {
    version: VERSION,
    segment: 1,
    data: DataMode::Full,
    anonymised: false,
    lost: 0,
    closed: false,
};

fn write(path: &Path, records: &[Record]) {
    let mut writer = TraceWriter::create(path, METADATA).unwrap();
    for record in records {
        writer.push(record);
        if writer.is_full() {
            writer.finish_segment().unwrap();
        }
    }
    writer.close().unwrap();
}

fn read(path: &Path) -> Vec<Record> {
    Reader::open(path).unwrap().map(|record| record.unwrap()).collect()
}

fn numbered(sequence: u64) -> Record {
    let mut record = Record::new(Operation::Lookup);
    (record.sequence, record.parent) = (sequence, Some(1));
    record.name = Some(format!("file-{sequence}").into_bytes());
    record
}

/// A record in which any column may have any value.
fn any_record() -> impl Strategy<Value = Record> {
    let numbers = proptest::collection::vec(proptest::option::of(any::<u64>()), COLUMNS.len());
    let texts = proptest::collection::vec(proptest::option::of(any::<Vec<u8>>()), 5);
    let operation = proptest::sample::select(Operation::ALL);
    (operation, numbers, texts).prop_map(|(operation, numbers, texts)| {
        let mut record = Record::new(operation);
        let mut numbers = numbers.into_iter();
        let mut next = || numbers.next().flatten();
        (record.sequence, record.start_ns) = (next().unwrap_or(1), next().unwrap_or(2));
        record.duration_ns = next().unwrap_or(3);
        record.time_ns = next().map(u64::cast_signed);
        (record.pid, record.uid) = (next().map(|one| one as u32), next().map(|one| one as u32));
        (record.inode, record.parent, record.handle) = (next(), next(), next());
        (record.offset, record.size, record.result) = (next(), next(), next());
        record.accessed_s = next().map(u64::cast_signed);
        record.flags = next().map(|flags| flags as u32);
        record.checksum = next();
        record.errno = next().unwrap_or_default() as u32;
        let [program, name, new_name, text, data] = texts.try_into().unwrap();
        record.program = program;
        (record.name, record.new_name, record.text, record.data) = (name, new_name, text, data);
        record
    })
}

proptest! {
    #![proptest_config(cases(32))]
    #[test]
    fn written_records_are_read_back(records in proptest::collection::vec(any_record(), 0..50)) {
        let scratch = TempDir::new().unwrap();
        write(scratch.path(), &records);
        prop_assert_eq!(read(scratch.path()), records);
    }
}

#[test]
fn long_traces_are_split_into_segments() {
    let scratch = TempDir::new().unwrap();
    let count = 2 * ROWS_MAX as u64 + 7;
    let records: Vec<_> = (1..=count).map(numbered).collect();
    write(scratch.path(), &records);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 3);
    assert_eq!(read(scratch.path()), records);
    let second = scratch.path().join("000002.parquet");
    assert_eq!(read(&second).len(), ROWS_MAX);
    fs::remove_file(second).unwrap();
    let mut reader = Reader::open(scratch.path()).unwrap();
    assert_eq!(reader.by_ref().count(), ROWS_MAX + 7);
    assert_eq!(reader.missing(), ROWS_MAX as u64, "the gap is reported");
}

#[test]
fn trace_is_readable_after_every_save() {
    let scratch = TempDir::new().unwrap();
    let mut writer = TraceWriter::create(scratch.path(), METADATA).unwrap();
    assert_eq!(read(scratch.path()), []);
    for sequence in 1..=100 {
        writer.push(&numbered(sequence));
        if sequence % 10 == 0 {
            writer.save().unwrap();
            assert_eq!(read(scratch.path()).len() as u64, sequence);
        }
    }
    assert_eq!((writer.unsaved(), fs::read_dir(scratch.path()).unwrap().count()), (0, 1));
    drop(writer);
    let mut reader = Reader::open(scratch.path()).unwrap();
    assert_eq!(reader.by_ref().count(), 100);
    assert!(!reader.last_segment().unwrap().metadata.closed, "dropped, as by a kill");
}

fn recorder(path: &Path, when_full: WhenFull, clock: Arc<dyn Clock>) -> Recorder {
    let writer = TraceWriter::create(path, METADATA).unwrap();
    let save_every = Duration::from_millis(5);
    let options = RecorderOptions { save_every, when_full, anonymiser: None };
    Recorder::start(writer, options, clock).unwrap()
}

/// A clock that blocks its readers while it is held. The writing thread is then as slow as on a
/// slow disk.
#[derive(Default)]
struct HeldClock {
    is_held: Mutex<bool>,
    let_go: Condvar,
}

impl HeldClock {
    fn hold(&self) {
        *self.is_held.lock() = true;
    }

    fn let_go(&self) {
        *self.is_held.lock() = false;
        self.let_go.notify_all();
    }
}

impl Clock for HeldClock {
    fn now_ns(&self) -> u64 {
        self.let_go.wait_while(&mut self.is_held.lock(), |is_held| *is_held);
        MonotonicClock.now_ns()
    }
}

#[test]
fn slow_records_are_saved_promptly_and_fast_ones_wait() {
    let scratch = TempDir::new().unwrap();
    let clock = Arc::new(HeldClock::default());
    let recorder = recorder(scratch.path(), WhenFull::Lose, clock.clone());
    recorder.record(numbered(1));
    while read(scratch.path()).is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut large = numbered(2);
    large.data = Some(vec![1; 1 << 20]);
    clock.hold();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while recorder.state().waits == 0 && !done.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            clock.let_go();
        });
        let _done = RaisedAtEnd(&done);
        (0..64).for_each(|_| recorder.record(large.clone()));
    });
    let state = recorder.state();
    assert!(state.waits > 0, "64 MiB did not wait for a queue of 16 MiB");
    recorder.finish().unwrap();
    let state = recorder.state();
    assert_eq!((state.taken, state.saved, state.lost), (65, 65, 0));
    assert_eq!(read(scratch.path()).len(), 65);
}

/// A single large record may fill the queue while the writing thread is idle. This record must wake
/// the thread.
#[test]
fn record_that_fills_the_queue_does_not_block_forever() {
    let scratch = TempDir::new().unwrap();
    let recorder = recorder(scratch.path(), WhenFull::Lose, Arc::new(MonotonicClock));
    let mut large = numbered(1);
    large.data = Some(vec![1; 17 << 20]);
    for _ in 0..3 {
        // Waits until the writing thread is idle.
        std::thread::sleep(Duration::from_millis(50));
        recorder.record(large.clone());
        recorder.record(numbered(2));
    }
    recorder.finish().unwrap();
    assert_eq!(recorder.state().taken, 6);
}

/// The directory is removed, so records can no longer be written. They are reported as lost, and
/// recording continues.
#[test]
fn failed_trace_writes_report_the_lost_records() {
    let scratch = TempDir::new().unwrap();
    let place = scratch.path().join("trace");
    let recorder = recorder(&place, WhenFull::Lose, Arc::new(MonotonicClock));
    recorder.record(numbered(1));
    while read(&place).is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    fs::remove_dir_all(&place).unwrap();
    let count = ROWS_MAX as u64 + 100;
    (0..count).for_each(|sequence| recorder.record(numbered(sequence)));
    let error = recorder.finish().unwrap_err();
    assert!(matches!(error, Error::Lost { records, .. } if records == count), "{error}");
    assert!(error.to_string().contains("No such file"), "{error}");
    assert_eq!(recorder.state().lost, count);
}

/// Records that the writing thread has taken but can't write yet do not count as saved.
#[test]
fn records_count_as_saved_only_once_written() {
    let scratch = TempDir::new().unwrap();
    let place = scratch.path().join("trace");
    let recorder = recorder(&place, WhenFull::Wait, Arc::new(MonotonicClock));
    recorder.record(numbered(1));
    while recorder.state().saved == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    fs::remove_dir_all(&place).unwrap();
    let count = ROWS_MAX as u64 + 10_000;
    (0..count).for_each(|sequence| recorder.record(numbered(sequence)));
    let mut most_saved = 0;
    for _ in 0..150 {
        most_saved = most_saved.max(recorder.state().saved);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(most_saved, 1);
    recorder.finish().unwrap_err();
}

#[test]
fn invalid_traces_are_refused_with_a_reason() {
    let scratch = TempDir::new().unwrap();
    let refused = |path: &Path, part: &str| {
        let error = match Reader::open(path) {
            Err(error) => error,
            Ok(mut reader) => reader.next().unwrap().unwrap_err(),
        };
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(scratch.path(), "contains no segment");
    refused(&scratch.path().join("none"), "No such file");
    let file = scratch.path().join("000001.parquet");
    fs::write(&file, "no parquet at all, but long enough to hold a footer").unwrap();
    refused(scratch.path(), "000001.parquet");
    let newer = TempDir::new().unwrap();
    let metadata = Metadata { version: VERSION + 1, ..METADATA };
    TraceWriter::create(newer.path(), metadata).unwrap();
    refused(newer.path(), "its format is 2, but this fslab supports only formats up to 1");
}

/// An earlier build wrote this trace for `echo hello > a`.
#[test]
fn trace_without_the_column_program_is_read() {
    let records = read(Path::new("tests/golden/1-without-program"));
    assert!(records.iter().all(|record| record.program.is_none()));
    let created = records.iter().find(|record| record.operation == Operation::Create).unwrap();
    assert_eq!((created.name.as_deref(), created.errno), (Some(&b"a"[..]), 0));
    let written = records.iter().find(|record| record.operation == Operation::Write).unwrap();
    assert_eq!((written.size, written.result), (Some(6), Some(6)));
    assert!(written.pid.is_some_and(|pid| pid > 0) && written.inode == created.result_inode);
}

#[test]
fn printed_line_contains_no_control_characters() {
    let mut record = numbered(1);
    (record.pid, record.uid) = (Some(7), Some(0));
    record.program = Some(b"a\x1b[2J\n\xff\\".to_vec());
    record.name = Some("line\n\u{9b}\\n".into());
    let line = Line(&record, &Paths::default()).to_string();
    assert!(!line.contains(char::is_control), "{line:?}");
    assert!(line.contains(r#" "a\x1b[2J\x0a\xff\\" "#), "{line}");
    assert!(line.ends_with(r#""line\x0a\xc2\x9b\\n")"#), "{line}");
    record.program = None;
    let line = Line(&record, &Paths::default()).to_string();
    assert!(line.contains(" u0     -                 lookup("), "{line}");
}

/// A segment with one damaged byte (at up to 1,500 positions) gives an error or other records, but
/// no panic and no hang. A truncated segment gives an error.
#[test]
fn damaged_segments_are_errors() {
    let scratch = TempDir::new().unwrap();
    let records: Vec<_> = (1..=200).map(numbered).collect();
    write(scratch.path(), &records);
    let path = scratch.path().join("000001.parquet");
    let whole = fs::read(&path).unwrap();
    let mut errors = 0;
    for position in (0..whole.len()).step_by(whole.len().div_ceil(1500)) {
        let mut damaged = whole.clone();
        damaged[position] ^= 0x41;
        fs::write(&path, &damaged).unwrap();
        errors += u64::from(Reader::open(&path).unwrap().any(|record| record.is_err()));
    }
    assert!(errors > 500, "only {errors} damaged bytes caused an error");
    for length in [0, 4, 11, 12, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(Reader::open(&path).unwrap().next().unwrap().is_err(), "cut to {length}");
    }
}

fn replay(records: &[Record]) -> (fslab_trace::Replayed, fslab_vfs::MemFs) {
    let target = fslab_vfs::MemFs::default();
    let mut fill = |record: &Record, buffer: &mut [u8]| fslab_trace::noise(record.sequence, buffer);
    let settings = fslab_trace::Settings { owner: None, fill: &mut fill };
    let mut replayer = fslab_trace::Replayer::new(&target, settings);
    records.iter().for_each(|record| replayer.step(record));
    (replayer.finish(), target)
}

/// One thread's `release` frees a handle, or its `forget` frees an inode number. Another thread
/// reuses the number, and the operation of this second thread is recorded first.
#[test]
fn regression_replay_handles_numbers_reused_before_release() {
    let create = |name: &str, ino: u64| {
        let mut record = Record::new(Operation::Create);
        (record.parent, record.name) = (Some(1), Some(name.as_bytes().to_vec()));
        (record.mode, record.flags) = (Some(0o100_644), Some(0o2));
        (record.result_inode, record.result_handle) = (Some(ino), Some(0));
        record
    };
    let release = |ino: u64| {
        let mut record = Record::new(Operation::Release);
        (record.inode, record.handle) = (Some(ino), Some(0));
        record
    };
    let forget = |ino: u64| {
        let mut record = Record::new(Operation::Forget);
        (record.inode, record.size) = (Some(ino), Some(1));
        record
    };
    let mut write = Record::new(Operation::Write);
    (write.inode, write.handle, write.offset) = (Some(7), Some(0), Some(0));
    (write.data, write.size, write.result) = (Some(b"new".to_vec()), Some(3), Some(3));
    let mut unlink = Record::new(Operation::Unlink);
    (unlink.parent, unlink.name) = (Some(1), Some(b"old".to_vec()));
    let records = [
        create("old", 7),
        unlink,
        create("new", 7),
        release(7),
        forget(7),
        write,
        release(7),
        forget(7),
    ];
    let (replayed, target) = replay(&records);
    assert_eq!((replayed.diverged, replayed.left_out), (0, 0), "{replayed:?}");
    assert_eq!((target.open_handles(), target.remembered()), (0, 0));
    let client = fslab_vfs_testing::client::Client::new(&target);
    let new = client.lookup(fslab_vfs::Ino::ROOT, "new").unwrap().ino;
    assert_eq!(client.contents(new).unwrap(), b"new");
}
