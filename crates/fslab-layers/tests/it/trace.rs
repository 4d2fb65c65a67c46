//! Tests that `trace` records every operation, and that its records can be replayed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fslab_trace::{DataMode, Reader, Record, Replayed, Replayer, Settings, noise};
use fslab_vfs::{FileSystem, Ino, MemFs, OpenMode, Operation};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::conformance::run_all;
use tempfile::TempDir;

fn traced(scratch: &TempDir, options: &str) -> (Arc<dyn FileSystem>, PathBuf) {
    let place = scratch.path().join("trace");
    let stack = format!("trace:to={}{options} / mem:", place.display());
    (crate::stack(&stack).build().unwrap(), place)
}

fn records(place: &Path) -> Vec<Record> {
    let mut reader = Reader::open(place).unwrap();
    let records: Vec<_> = reader.by_ref().map(|record| record.unwrap()).collect();
    let last = reader.last_segment().unwrap();
    assert!(last.metadata.closed && last.metadata.lost == 0 && reader.missing() == 0, "{last:?}");
    let sequences = records.iter().map(|record| record.sequence);
    assert!(sequences.eq(1..=records.len() as u64), "sequence numbers have gaps");
    records
}

fn replay(records: &[Record], target: &dyn FileSystem) -> Replayed {
    let mut fill = |record: &Record, buffer: &mut [u8]| noise(record.sequence, buffer);
    let mut replayer = Replayer::new(target, Settings { owner: None, fill: &mut fill });
    records.iter().for_each(|record| replayer.step(record));
    replayer.finish()
}

/// Returns all paths of a tree with the attributes of `stat` except times, and with their contents
/// or targets.
fn tree(file_system: &dyn FileSystem) -> BTreeMap<String, String> {
    fn walk(client: &Client<'_>, at: Ino, path: &str, found: &mut BTreeMap<String, String>) {
        for name in client.names(at).unwrap() {
            let attr = client.lookup(at, &name).unwrap();
            let path = format!("{path}/{name}");
            let contents = match attr.kind {
                fslab_vfs::FileKind::Regular => {
                    format!("{:x?}", client.contents(attr.ino).unwrap())
                }
                fslab_vfs::FileKind::Symlink => format!("{:?}", client.readlink(attr.ino).unwrap()),
                _ => String::new(),
            };
            if attr.kind == fslab_vfs::FileKind::Directory {
                walk(client, attr.ino, &path, found);
            }
            let shown = (attr.kind, attr.permissions, attr.links, attr.size, attr.uid, attr.gid);
            found.insert(path, format!("{shown:?} {contents}"));
        }
    }
    let mut found = BTreeMap::new();
    walk(&Client::new(file_system), Ino::ROOT, "", &mut found);
    found
}

#[test]
fn every_operation_is_recorded_with_its_arguments() {
    let scratch = TempDir::new().unwrap();
    let (file_system, place) = traced(&scratch, "");
    let client = Client::new(&*file_system);
    let directory = client.mkdir(Ino::ROOT, "directory").unwrap();
    let (_, file) = client.create(directory, "file\\\u{fc}", 0o640, OpenMode::READ_WRITE).unwrap();
    file.write_all(4096, b"twelve bytes").unwrap();
    assert!(client.unlink(directory, "none").is_err());
    file_system.shutdown().unwrap();
    let records = records(&place);
    let of = |operation| records.iter().find(|record| record.operation == operation).unwrap();
    let created = of(Operation::Create);
    assert_eq!(created.name.as_deref(), Some("file\\\u{fc}".as_bytes()));
    assert_eq!((created.parent, created.errno), (Some(directory.0), 0));
    assert_eq!(created.result_mode.map(|mode| mode & 0o170_000), Some(0o100_000));
    let write = of(Operation::Write);
    assert_eq!((write.offset, write.size, write.result), (Some(4096), Some(12), Some(12)));
    assert_eq!(write.checksum, Some(crc32c::crc32c(b"twelve bytes").into()));
    assert_eq!((write.data.as_ref(), write.handle), (None, created.result_handle));
    assert_eq!(of(Operation::Unlink).errno, 2);
    assert!(write.time_ns.is_some() && write.thread > 0 && write.start_ns >= created.start_ns);
}

/// Records the whole conformance suite with its data and replays it on a new memory file system.
/// Less than 0.5 % of the results may differ: those that depend on time or on the calling process.
#[test]
fn the_conformance_suite_can_be_replayed() {
    let scratch = TempDir::new().unwrap();
    let (file_system, place) = traced(&scratch, ",data=full");
    let make = || Box::new(Arc::clone(&file_system)) as Box<dyn FileSystem>;
    // The order of operations in cases with threads can't be repeated.
    let report = run_all(&make, &[("concurrency/*", "is about the order of threads")]);
    assert!(report.is_success(), "{report}");
    let client = Client::new(&*file_system);
    client.file(Ino::ROOT, "left", &[7; 100_000]).unwrap();
    client.symlink(Ino::ROOT, "link", "left").unwrap();
    let made = tree(&*file_system);
    file_system.shutdown().unwrap();
    let records = records(&place);
    let occurred =
        |operation: &&Operation| records.iter().any(|record| record.operation == **operation);
    let missing: Vec<_> = Operation::ALL.iter().filter(|each| !occurred(each)).collect();
    assert!(missing.is_empty(), "never recorded: {missing:?}");
    let target = MemFs::default();
    let replayed = replay(&records, &target);
    assert_eq!((target.open_handles(), target.remembered()), (0, 0), "left open by the replay");
    assert_eq!(tree(&target), made);
    assert!(replayed.diverged * 200 < replayed.operations, "{replayed:#?}");
}

#[test]
fn concurrent_operations_are_all_recorded() {
    const THREADS: usize = 8;
    const EACH: usize = 3000;
    let scratch = TempDir::new().unwrap();
    let (file_system, place) = traced(&scratch, ",data=full,save_every=10ms");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let file_system = &file_system;
            scope.spawn(move || {
                let client = Client::new(&**file_system);
                let name = format!("f{thread}");
                let (_, file) =
                    client.create(Ino::ROOT, &name, 0o644, OpenMode::READ_WRITE).unwrap();
                for step in 0..EACH {
                    file.write_all(step as u64 * 64, &[step as u8; 64]).unwrap();
                }
            });
        }
    });
    let made = tree(&*file_system);
    file_system.shutdown().unwrap();
    let records = records(&place);
    let writes = records.iter().filter(|record| record.operation == Operation::Write).count();
    assert_eq!(writes, THREADS * EACH);
    let target = MemFs::default();
    let replayed = replay(&records, &target);
    assert_eq!(replayed.diverged, 0, "{replayed:#?}");
    assert_eq!(tree(&target), made);
}

#[test]
fn an_anonymised_trace_holds_no_name_and_replays_to_the_same_shape() {
    const SECRETS: [&str; 5] = ["salary-of-jane", "private-notes", "to-nowhere", "jane", "s3cret"];
    let scratch = TempDir::new().unwrap();
    let key = scratch.path().join("key");
    fs::write(&key, "a key of more than sixteen bytes").unwrap();
    let (file_system, place) = traced(&scratch, &format!(",anonymise={}", key.display()));
    let client = Client::new(&*file_system);
    let directory = client.mkdir(Ino::ROOT, "private-notes").unwrap();
    let file = client.file(directory, "salary-of-jane.txt", b"s3cret").unwrap();
    client.symlink(directory, "jane", "../to-nowhere").unwrap();
    client.setxattr(file, "user.jane", b"s3cret").unwrap();
    client.link(file, Ino::ROOT, "salary-of-jane").unwrap();
    client.rename(directory, "jane", Ino::ROOT, "jane-moved").unwrap();
    assert!(client.lookup(Ino::ROOT, "jane-is-not-here").is_err());
    let shape = tree(&*file_system);
    file_system.shutdown().unwrap();
    let records = records(&place);
    let mut reader = Reader::open(&place).unwrap();
    reader.by_ref().for_each(drop);
    assert!(reader.last_segment().unwrap().metadata.anonymised);
    for record in &records {
        let shown =
            format!("{record:?}{}", fslab_trace::Line(record, &fslab_trace::Paths::default()));
        let bytes = [&record.name, &record.new_name, &record.text, &record.data];
        let text: Vec<u8> = bytes.into_iter().flatten().flatten().copied().collect();
        let text = String::from_utf8_lossy(&text).into_owned() + &shown;
        assert!(!SECRETS.iter().any(|secret| text.contains(secret)), "{text}");
        let known = crc32c::crc32c(b"s3cret");
        assert_ne!(record.checksum, Some(known.into()), "a checksum that can be guessed");
    }
    for entry in fs::read_dir(&place).unwrap() {
        let raw = fs::read(entry.unwrap().path()).unwrap();
        let holds = |secret: &str| raw.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!SECRETS.iter().any(|secret| holds(secret)));
    }
    let target = MemFs::default();
    replay(&records, &target);
    assert_eq!(tree(&target).len(), shape.len());
    let hidden = records.iter().filter_map(|record| record.name.as_deref());
    assert!(hidden.filter(|name| name.ends_with(b".txt")).count() > 0, "known extensions stay");
}

#[track_caller]
fn refused(stack: &str, part: &str) {
    let error = crate::read(stack).and_then(|stack| stack.build()).err().unwrap();
    assert!(error.to_string().contains(part), "{error}");
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
}

#[test]
fn unusable_trace_options_are_refused_with_a_reason() {
    let scratch = TempDir::new().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    refused("trace / mem:", "layer 'trace' needs to=PATH");
    fs::create_dir(path("taken")).unwrap();
    fs::write(path("taken/file"), "").unwrap();
    refused(&format!("trace:to={} / mem:", path("taken")), "is not empty");
    refused(&format!("trace:to={} / mem:", path("no/such")), "No such file or directory");
    fs::write(path("key"), "short").unwrap();
    let stack = |rest: &str| format!("trace:to={},{rest} / mem:", path("new"));
    refused(&stack(&format!("anonymise={}", path("key"))), "a key has at least 16");
    fs::write(path("key"), "long enough for a secret").unwrap();
    let both = format!("data=full,anonymise={}", path("key"));
    refused(&stack(&both), "the recorded contents may include names");
    refused(&stack("data=some"), "is one of none, checksum, full");
    assert!(!Path::new(&path("new")).exists(), "a refused trace leaves nothing");
}

#[test]
fn trace_footer_states_the_data_mode() {
    for (option, mode) in
        [("none", DataMode::None), ("checksum", DataMode::Checksum), ("full", DataMode::Full)]
    {
        let scratch = TempDir::new().unwrap();
        let (file_system, place) = traced(&scratch, &format!(",data={option}"));
        Client::new(&*file_system).file(Ino::ROOT, "f", b"data").unwrap();
        file_system.shutdown().unwrap();
        let mut reader = Reader::open(&place).unwrap();
        let kept: Vec<_> = reader
            .by_ref()
            .map(|record| record.unwrap())
            .filter(|record| record.operation == Operation::Write)
            .map(|record| (record.checksum.is_some(), record.data))
            .collect();
        let data = (mode == DataMode::Full).then(|| b"data".to_vec());
        assert_eq!(kept, [(mode != DataMode::None, data)]);
        assert_eq!(reader.last_segment().unwrap().metadata.data, mode);
    }
}
