//! Tests of the workload `replay`, on a target in process and in a directory.

use std::path::Path;

use fslab_compare::Error;
use fslab_report::sample::{NoteKind, Record as SampleRecord};
use fslab_sys::signals::Interrupt;
use fslab_trace::{DataMode, Metadata, Record, TraceWriter, VERSION};
use fslab_vfs::Operation;

use crate::support::{Silent, TestHost, directory_on_disk, run, samples};

/// Writes a trace in which an existing file is read, and another is created and written.
fn trace(path: &Path, read_bytes: u64) {
    let metadata = Metadata {
        version: VERSION,
        segment: 1,
        data: DataMode::None,
        anonymised: false,
        lost: 0,
        closed: false,
    };
    let mut writer = TraceWriter::create(path, metadata).unwrap();
    let mut sequence = 0;
    let mut record = |operation, fields: &dyn Fn(&mut Record)| {
        let mut record = Record::new(operation);
        sequence += 1;
        record.sequence = sequence;
        fields(&mut record);
        writer.push(&record);
    };
    record(Operation::Lookup, &|record| {
        (record.parent, record.name) = (Some(1), Some(b"found".to_vec()));
        (record.result_inode, record.result_mode) = (Some(5), Some(0o100_644));
        record.result_size = Some(10_000);
    });
    record(Operation::Open, &|record| {
        (record.inode, record.flags, record.result_handle) = (Some(5), Some(0), Some(0));
    });
    record(Operation::Read, &|record| {
        (record.inode, record.handle, record.offset) = (Some(5), Some(0), Some(0));
        (record.size, record.result) = (Some(65_536), Some(read_bytes));
    });
    record(Operation::Release, &|record| (record.inode, record.handle) = (Some(5), Some(0)));
    record(Operation::Create, &|record| {
        (record.parent, record.name) = (Some(1), Some(b"made".to_vec()));
        (record.mode, record.flags, record.umask) = (Some(0o100_666), Some(0o201), Some(0o022));
        (record.result_inode, record.result_handle) = (Some(6), Some(0));
    });
    record(Operation::Write, &|record| {
        (record.inode, record.handle, record.offset) = (Some(6), Some(0), Some(4096));
        (record.size, record.result) = (Some(5000), Some(5000));
    });
    record(Operation::Release, &|record| (record.inode, record.handle) = (Some(6), Some(0)));
    writer.close().unwrap();
}

fn plan(directory: &Path, workload: &str) -> String {
    let directory = directory.display();
    format!(
        "name = \"replay\"\nrounds = 2\nnoise_floor = false\n\
         [[target]]\nname = \"memory\"\nin_process = \"mem:\"\n\
         [[target]]\nname = \"directory\"\ndirectory = \"{directory}\"\n\
         [[workload]]\nname = \"replay\"\n{workload}"
    )
}

fn replayed(workload: &str, directory: &Path) -> fslab_compare::Result<(bool, Vec<SampleRecord>)> {
    let plan = plan(directory, workload);
    let (outcome, records) = run(&plan, directory, &TestHost, Interrupt::default(), &mut Silent)?;
    let failed = outcome.notes.iter().any(|note| note.kind != NoteKind::Remark);
    Ok((failed, records))
}

#[test]
fn trace_is_replayed_on_every_target() {
    let (work, place) = (directory_on_disk(), tempfile::tempdir().unwrap());
    let path = place.path().join("trace");
    trace(&path, 10_000);
    let workload = format!("trace = \"{}\"\n", path.display());
    let (failed, records) = replayed(&workload, work.path()).unwrap();
    assert!(!failed, "{records:?}");
    let samples = samples(&records);
    assert_eq!(samples.len(), 2 * 2);
    for sample in &samples {
        assert_eq!((sample.operations, sample.bytes), (7, 15_000), "{sample:?}");
    }
}

/// The read returns fewer bytes than recorded. The target fails, unless this is allowed.
#[test]
fn diverging_replay_fails_the_target_unless_allowed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    trace(&path, 12_345);
    for (allowed, fails) in [("fail", true), ("allow", false)] {
        let work = directory_on_disk();
        let workload = format!("trace = \"{}\"\ndiverging = \"{allowed}\"\n", path.display());
        let (failed, records) = replayed(&workload, work.path()).unwrap();
        assert_eq!((failed, samples(&records).is_empty()), (fails, fails), "{records:?}");
    }
}

#[test]
fn a_missing_trace_is_named() {
    let work = || directory_on_disk();
    let error = replayed("", work().path()).unwrap_err();
    assert!(matches!(error, Error::NoTrace), "{error}");
    let error = replayed("trace = \"/no/such\"\n", work().path()).unwrap_err();
    assert!(error.to_string().contains("/no/such: No such file"), "{error}");
}
