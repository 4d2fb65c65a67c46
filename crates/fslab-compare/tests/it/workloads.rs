//! Tests every workload in process, in a directory and on a mounted image. Its phases and counts
//! must be right, and it must detect wrong data and wrong names.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::Path;

use fslab_compare::plan::Form;
use fslab_compare::workload::WORKLOADS;
use fslab_compare::{Host, HostError, Outcome, Plan};
use fslab_report::sample::{NoteKind, Record, Sample};
use fslab_sys::signals::Interrupt;
use fslab_vfs::{Entry, FileSystem, Handle, Ino, MemFs, Name, Request};

use crate::leaks::assert_nothing_left;
use crate::support::{Silent, TestHost, can_mount, directory_on_disk, has_program, run, samples};

/// Workloads that run no other process: name, parameters of a small version, and number of samples.
const IN_PROCESS: &[(&str, &str, usize)] = &[
    // For each size: 3 writes, 2 rewrites, 2 reads, 2 overwrites, 2 seeks.
    (
        "bonnie",
        "smallest = \"56 KiB\"\nlargest = \"128 KiB\"\ncharacters = \"1 KiB\"\nseeks = 40\n\
         seek_by = \"threads\"",
        2 * 11,
    ),
    // A file that is kept open has the sizes 0, 1, 2, 4 KiB; a reopened one has 0, 1 KiB.
    (
        "file-append",
        "append = 100\nlargest = \"4 KiB\"\nlargest_reopened = \"1 KiB\"\ndata = \"binaries\"",
        4 + 2,
    ),
    ("file-attributes", "files = 30\nper_directory = 7", 3),
    ("file-copy", "largest = \"2 KiB\"\nmost_files = 2", 3 * 3),
    ("hot-files", "files = 30\nmean_size = \"2 KiB\"", 2),
    ("lookup", "files = 60\nper_directory = 7", 3),
    // Five phases, each with 1, 2 and 3 threads.
    ("metadata", "files = 30\nthreads = 3\ndirectories = \"own\"", 3 * 5),
    ("names", "files = 40\ndirectories = 3", 6),
    ("overwrite", "size = \"200 KiB\"\nwrites = [\"8 KiB\", \"64 KiB\"]\ncreations = 3", 6),
    ("random-io", "size = \"1 MiB\"\noperations = 200\ndepth = 3", 1),
    (
        "sequential-by-size",
        "total = \"256 KiB\"\nlargest = \"64 KiB\"\nmore_sizes = [\"24 KiB\", \"64 KiB\"]",
        4 * 2,
    ),
    ("small-files", "files = 20\nrounds = 10\nthreads = 2\nsize = \"2 KiB\"", 1),
    ("stream", "size = \"1 MiB\"\nrequest = \"64 KiB\"\ndata = \"all-a\"", 4),
    // One sample of `random-io`, and four of `stream`.
    (
        "together",
        "workloads = [{ name = \"random-io\", size = \"1 MiB\", operations = 200 }, \
         { name = \"stream\", label = \"beside\", size = \"1 MiB\" }]",
        5,
    ),
];

/// Workloads that run other processes: name, parameters of a small version, and number of samples.
const BY_PROCESSES: &[(&str, &str, usize)] = &[
    ("bonnie", "largest = \"1 MiB\"\ncharacters = \"1 KiB\"\nseeks = 100", 11),
    ("command", "command = [\"sh\", \"-c\", \"ls -lRF > listing\"]", 2),
    ("compile", "units = 3\nprobes = 4", 3),
    ("tool", "largest = \"4 KiB\"", 4),
];

/// Returns the kinds of operations in a sample and the number of each.
fn counts(sample: &Sample) -> Vec<(&str, u64)> {
    sample.latencies.iter().map(|latency| (&*latency.operation, latency.count)).collect()
}

fn tables(workloads: &[(&str, &str, usize)]) -> String {
    let table = |(name, keys, _): &(&str, &str, usize)| {
        format!("[[workload]]\nname = \"{name}\"\n{keys}\n")
    };
    workloads.iter().map(table).collect()
}

fn by_workload<'a>(records: &'a [Record], target: &str) -> BTreeMap<&'a str, Vec<&'a Sample>> {
    let mut found: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for sample in samples(records).into_iter().filter(|sample| sample.target == target) {
        found.entry(&sample.workload).or_default().push(sample);
    }
    found
}

#[track_caller]
fn compare(plan: &str, host: &dyn Host) -> (Outcome, Vec<Record>) {
    let directory = directory_on_disk();
    let result = run(plan, directory.path(), host, Interrupt::default(), &mut Silent).unwrap();
    assert_nothing_left(directory.path());
    result
}

/// Checks properties that every sample must have.
fn check_samples(records: &[Record], target: &str, expected: &[(&str, &str, usize)]) {
    let found = by_workload(records, target);
    for (workload, keys, count) in expected {
        let samples = found.get(workload).cloned().unwrap_or_default();
        let phases: Vec<_> = samples.iter().map(|sample| sample.phase.as_str()).collect();
        assert_eq!(samples.len(), *count, "{workload} on {target}: {phases:?}");
        let plan = tables(&[(workload, keys, 0)]);
        let plan = format!("name = \"p\"\n[[target]]\nname = \"t\"\nin_process = \"mem:\"\n{plan}");
        let planned = Plan::parse("test", &plan, Form::Full).unwrap().workloads[0].phases();
        let (known, seen): (HashSet<_>, HashSet<_>) =
            (planned.iter().map(String::as_str).collect(), phases.into_iter().collect());
        // The workload `command` has only some of its phases, depending on its parameter `cache`.
        assert!(seen == known || *workload == "command" && seen.is_subset(&known), "{workload}");
        for sample in samples {
            let what = format!("{workload}, {}, {target}", sample.phase);
            assert!(sample.elapsed_ns > 0 && sample.operations > 0, "{what}");
            for latency in &sample.latencies {
                let ordered = [latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.max_ns];
                assert!(ordered.is_sorted(), "{what}: {latency:?}");
                assert_eq!(latency.buckets.iter().map(|b| b.1).sum::<u64>(), latency.count);
            }
            assert!(sample.along.is_sorted_by_key(|milestone| milestone.operations), "{what}");
        }
    }
}

#[test]
fn every_workload_runs_in_process_and_in_a_directory() {
    let given = directory_on_disk();
    let plan = format!(
        "name = \"all\"\nrounds = 1\n[[target]]\nname = \"memory\"\nin_process = \"mem:\"\n\
         [[target]]\nname = \"directory\"\ndirectory = \"{}\"\n{}",
        given.path().display(),
        tables(IN_PROCESS)
    );
    let (outcome, records) = compare(&plan, &TestHost);
    assert!(outcome.notes.iter().all(|note| note.kind == NoteKind::Remark), "{:?}", outcome.notes);
    for target in ["memory", "directory"] {
        check_samples(&records, target, IN_PROCESS);
    }
    let names = by_workload(&records, "memory")["names"][0];
    assert_eq!((names.latencies[0].count, names.latencies[0].operation.as_str()), (40, "create"));
    assert_eq!(names.along.last().unwrap().operations, 40);
    let random = by_workload(&records, "memory")["random-io"][0];
    assert_eq!(random.workers, Some(3));
    let [("read", reads), ("write", writes)] = counts(random)[..] else { panic!("{random:?}") };
    assert_eq!(reads + writes, 200);
    assert!((30..90).contains(&writes), "{writes} of 200, of which 30 % are to be writes");
    assert!(random.data.as_ref().unwrap().starts_with("text, seed"), "{:?}", random.data);
    let copies = &by_workload(&records, "directory")["file-copy"];
    assert!(copies.iter().any(|sample| sample.stored_bytes > Some(0)), "no space was recorded");
}

/// A note states the reason for each skipped workload.
#[test]
fn workloads_that_need_processes_are_skipped_in_process() {
    let plan = format!(
        "name = \"left out\"\nrounds = 1\n[[target]]\nname = \"memory\"\nin_process = \"mem:\"\n{}",
        tables(BY_PROCESSES)
    );
    let (outcome, _) = compare(&plan, &TestHost);
    let left: Vec<_> = outcome.notes.iter().filter(|n| n.kind == NoteKind::LeftOut).collect();
    assert_eq!(left.len(), BY_PROCESSES.len(), "{:?}", outcome.notes);
    assert!(left.iter().all(|note| note.text.contains("no directory")), "{left:?}");
}

/// On a mounted image, this also checks that caches are proven cold, that worker processes are
/// used, and that the time of compilers is measured.
#[test]
fn every_workload_runs_on_an_image() {
    if !can_mount("every workload on an image")
        || !has_program("every workload on an image", "make")
        || !has_program("every workload on an image", "cc")
    {
        return;
    }
    let others = IN_PROCESS.iter().filter(|(name, ..)| *name != "bonnie");
    let workloads: Vec<_> = others.chain(BY_PROCESSES).copied().collect();
    let names: HashSet<_> = workloads.iter().map(|(name, ..)| *name).collect();
    let known: HashSet<_> = WORKLOADS.iter().map(|spec| spec.name).collect();
    assert!(names.is_subset(&known));
    for name in known.difference(&names) {
        // These have separate tests, because they need a trace, a job file or an application.
        let own = ["replay", "fio", "sqlite", "git", "untar", "rsync", "cargo-build", "pgbench"];
        assert!(own.contains(name), "{name} is tested nowhere");
    }
    let plan = format!(
        "name = \"all\"\nrounds = 1\nimage_size = \"320 MiB\"\n\
         [[target]]\nname = \"ext4\"\nfilesystem = \"ext4\"\n{}",
        tables(&workloads)
    );
    let (outcome, records) = compare(&plan, &TestHost);
    assert_eq!(outcome.notes, [], "nothing to remark");
    check_samples(&records, "ext4", &workloads);
    let found = by_workload(&records, "ext4");
    let build = found["compile"].iter().find(|sample| sample.phase == "build").unwrap();
    assert!(build.user_ns > 10_000_000, "the compilers' time is missing: {build:?}");
    assert!(build.cache.proven, "{:?}", build.cache);
    let seek = found["bonnie"].iter().find(|sample| sample.phase == "seek").unwrap();
    assert_eq!(seek.workers, Some(3));
    let [("read", reads), ("rewrite", writes)] = counts(seek)[..] else { panic!("{seek:?}") };
    assert!(reads + writes == 300 && reads > 5 * writes, "{reads} and {writes}");
    let shared = found["bonnie"].iter().find(|sample| sample.phase == "seek shared").unwrap();
    assert_eq!(counts(shared).iter().map(|(_, count)| count).sum::<u64>(), 100);
    let stored = found["tool"].iter().find(|sample| sample.size_bytes == Some(4096)).unwrap();
    let space = stored.stored_bytes.unwrap();
    assert!((1024..4096).contains(&space), "{space} bytes for 4 KiB of words");
    assert!(found["lookup"].iter().all(|sample| sample.cache.proven), "lookups were not cold");
}

/// An in-memory file system with a fault.
struct Wrong {
    memory: MemFs,
    what: &'static str,
}

impl FileSystem for Wrong {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> fslab_vfs::Result<usize> {
        let length = self.memory.read(request, ino, handle, offset, buffer)?;
        // Changes one byte of a file, which a check of only some bytes would miss.
        if self.what == "flips" && offset <= 700 && offset + length as u64 > 700 {
            buffer[700 - offset as usize] ^= 1;
        }
        Ok(length)
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> fslab_vfs::Result<Entry> {
        let mut entry = self.memory.lookup(request, parent, name)?;
        if self.what == "grows" {
            entry.attr.size += 1;
        }
        Ok(entry)
    }

    fn unlink(&self, request: &Request, parent: Ino, name: Name<'_>) -> fslab_vfs::Result<()> {
        if self.what == "keeps" {
            return Ok(());
        }
        self.memory.unlink(request, parent, name)
    }
}

struct WrongHost;

impl Host for WrongHost {
    fn mount_command(&self, layers: &[String], lower: &Path, mountpoint: &Path) -> Vec<OsString> {
        TestHost.mount_command(layers, lower, mountpoint)
    }

    fn file_system(&self, specification: &str) -> Result<Box<dyn FileSystem>, HostError> {
        let whats = ["flips", "grows", "keeps"];
        let what = whats.into_iter().find(|what| *what == specification).ok_or("unknown")?;
        Ok(Box::new(Wrong { memory: MemFs::default(), what }))
    }
}

/// A flipped byte fails every workload that writes contents. A wrong size fails those that check
/// sizes. A name that can't be removed fails the workload that removes names.
#[test]
fn planted_wrong_data_and_names_are_found() {
    let target = |what: &str| format!("[[target]]\nname = \"{what}\"\nin_process = \"{what}\"\n");
    let targets: String = ["flips", "grows", "keeps"].map(target).concat();
    let plan = format!("name = \"wrong\"\nrounds = 1\n{targets}{}", tables(IN_PROCESS));
    let (outcome, _) = compare(&plan, &WrongHost);
    let failed = |target: &str, text: &str| -> Vec<String> {
        let notes = outcome.notes.iter().filter(|note| {
            let of_target = note.target.as_deref() == Some(target);
            of_target && note.kind == NoteKind::Failed && note.text.contains(text)
        });
        let mut workloads: Vec<_> = notes.filter_map(|note| note.workload.clone()).collect();
        workloads.sort();
        workloads
    };
    let writers = [
        "bonnie",
        "file-append",
        "file-copy",
        "hot-files",
        "overwrite",
        "random-io",
        "sequential-by-size",
        "small-files",
        "stream",
        "together",
    ];
    assert_eq!(failed("flips", "differs from the written data"), writers, "{:?}", outcome.notes);
    let sized = ["file-append", "file-attributes", "lookup"];
    assert_eq!(failed("grows", "expected"), sized, "{:?}", outcome.notes);
    assert!(failed("keeps", "names listed").contains(&"names".to_owned()), "{:?}", outcome.notes);
}

/// Files stored by a tool are decoded for the check. Compiled programs are run.
#[test]
fn planted_wrong_results_of_programs_are_found() {
    if !can_mount("wrong results of programs") || !has_program("wrong results of programs", "make")
    {
        return;
    }
    let plan = "name = \"wrong\"\nrounds = 1\nimage_size = \"320 MiB\"\n\
        [[target]]\nname = \"ext4\"\nfilesystem = \"ext4\"\n\
        [[workload]]\nname = \"tool\"\nlargest = \"1 KiB\"\n\
        check = [\"sh\", \"-c\", \"gzip -dc | tr e f\"]\n\
        [[workload]]\nname = \"compile\"\nunits = 2\nprobes = 2\n\
        configure = \"./configure && sed -i 's/(x >>/(x <</' unit_1.c\"\n\
        [[workload]]\nname = \"command\"\ncommand = [\"sh\", \"-c\", \"echo told >&2; exit 3\"]\n\
        [[workload]]\nname = \"command\"\nlabel = \"missing\"\ncommand = [\"no-such-command\"]\n";
    let (outcome, _) = compare(plan, &TestHost);
    let note = |workload: &str| {
        let found = outcome.notes.iter().find(|note| note.workload.as_deref() == Some(workload));
        found.map(|note| (note.kind, note.text.as_str())).unwrap()
    };
    assert!(note("tool").1.contains("differs from the written data"), "{:?}", note("tool"));
    assert!(note("compile").1.contains("output of program_0"), "{:?}", note("compile"));
    assert!(note("command").1.contains("told"), "{:?}", note("command"));
    assert_eq!(note("missing").0, NoteKind::LeftOut);
}
