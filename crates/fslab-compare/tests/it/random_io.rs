//! Tests of `random-io`: its open and closed loops, engines and limits.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fslab_compare::plan::Form;
use fslab_compare::{Host, HostError, Plan};
use fslab_report::sample::{NoteKind, Record, Sample};
use fslab_sys::signals::Interrupt;
use fslab_vfs::{FileSystem, Handle, Ino, MemFs, Request};

use crate::support::{Silent, TestHost, directory_on_disk, run, samples};

/// An in-memory file system in which one read takes half a second.
struct Stalling {
    memory: MemFs,
    reads: AtomicU64,
}

const STALL: Duration = Duration::from_millis(500);

impl FileSystem for Stalling {
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
        if self.reads.fetch_add(1, Ordering::Relaxed) == 200 {
            std::thread::sleep(STALL);
        }
        self.memory.read(request, ino, handle, offset, buffer)
    }
}

struct StallingHost;

impl Host for StallingHost {
    fn mount_command(&self, _: &[String], _: &Path, _: &Path) -> Vec<OsString> {
        Vec::new()
    }

    fn file_system(&self, _: &str) -> Result<Box<dyn FileSystem>, HostError> {
        Ok(Box::new(Stalling { memory: MemFs::default(), reads: AtomicU64::new(0) }))
    }
}

fn plan(target: &str, keys: &str) -> String {
    format!(
        "name = \"r\"\nrounds = 1\nnoise_floor = false\n[[target]]\nname = \"t\"\n{target}\n\
         [[workload]]\nname = \"random-io\"\nsize = \"1 MiB\"\n{keys}"
    )
}

#[track_caller]
fn sample(target: &str, keys: &str, host: &dyn Host) -> Sample {
    let out = directory_on_disk();
    let plan = plan(target, keys);
    let (outcome, records) =
        run(&plan, out.path(), host, Interrupt::default(), &mut Silent).unwrap();
    assert!(outcome.notes.iter().all(|note| note.kind == NoteKind::Remark), "{:?}", outcome.notes);
    samples(&records)[0].clone()
}

fn p90(sample: &Sample) -> Duration {
    Duration::from_nanos(sample.latencies[0].p90_ns)
}

/// In an open loop, requests that become due while the target stalls must wait; here they are a
/// quarter of all requests. A closed loop makes no requests meanwhile, so only one of two thousand
/// requests is slow.
#[test]
fn stall_shows_in_open_loop_latencies_but_not_in_a_closed_loop() {
    let keys = "operations = 2000\nreads = 100\n";
    let memory = "in_process = \"mem:\"";
    for arrivals in ["even", "poisson"] {
        let open = format!("{keys}rate = 1000\narrivals = \"{arrivals}\"\n");
        let open = sample(memory, &open, &StallingHost);
        assert!(p90(&open) > STALL / 4, "{arrivals}: {:?}", open.latencies[0]);
        assert!(open.elapsed_ns > 1_500_000_000, "{arrivals}: {} ns", open.elapsed_ns);
    }
    let closed = sample(memory, keys, &StallingHost);
    assert!(p90(&closed) < STALL / 10, "{:?}", closed.latencies[0]);
    assert!(closed.latencies[0].max_ns >= 490_000_000, "{:?}", closed.latencies[0]);
}

#[test]
fn concurrent_readers_and_writers_have_separate_histograms() {
    let given = directory_on_disk();
    let target = format!("directory = \"{}\"", given.path().display());
    for engine in ["threads", "io_uring"] {
        let keys = format!("engine = \"{engine}\"\ndepth = 4\nwriters = 1\noperations = 400\n");
        if engine == "io_uring" && !has_io_uring() {
            continue;
        }
        let found = sample(&target, &keys, &TestHost);
        let counts: Vec<_> =
            found.latencies.iter().map(|one| (one.operation.as_str(), one.count)).collect();
        assert_eq!(counts, [("read", 300), ("write", 100)], "{engine}");
        assert_eq!((found.operations, found.bytes), (400, 400 * 4096));
    }
}

fn has_io_uring() -> bool {
    match fslab_sys::io_ring::Ring::new(1, 512) {
        Ok(_) => true,
        Err(error) => crate::support::skip("io_uring", &error.to_string()),
    }
}

#[test]
fn direct_access_by_either_engine_reads_back_what_was_written() {
    let given = directory_on_disk();
    let target = format!("directory = \"{}\"", given.path().display());
    for engine in ["threads", "io_uring"] {
        if engine == "io_uring" && !has_io_uring() {
            continue;
        }
        let keys = format!(
            "engine = \"{engine}\"\naccess = \"direct\"\ndepth = 3\nbytes = \"1 MiB\"\n\
             reads = 50\nzipf = 1.1\nrate = 5000\n"
        );
        let found = sample(&target, &keys, &TestHost);
        assert_eq!((found.operations, found.bytes), (256, 1 << 20), "{engine}");
        let iops = found.metrics.iter().find(|metric| metric.name == "iops").unwrap();
        assert!(iops.value > 0.0 && iops.value < 5500.0, "{engine}: {iops:?}");
    }
}

#[test]
fn random_io_runs_for_the_requested_time() {
    let keys = "seconds = 0.5\ndepth = 2\nreads = 90\n";
    let found = sample("in_process = \"mem:\"", keys, &TestHost);
    assert!(found.operations > 10, "{}", found.operations);
    assert!((500_000_000..20_000_000_000).contains(&found.elapsed_ns), "{}", found.elapsed_ns);
}

#[test]
fn io_uring_needs_a_directory() {
    let out = directory_on_disk();
    let plan = plan("in_process = \"mem:\"", "engine = \"io_uring\"\n");
    let (outcome, records) =
        run(&plan, out.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
    let left = outcome.notes.iter().find(|note| note.kind == NoteKind::LeftOut).unwrap();
    assert!(
        left.text.contains("random-io with engine = \"io_uring\" needs a directory"),
        "{}",
        left.text
    );
    assert!(!records.iter().any(|record| matches!(record, Record::Sample(_))));
}

#[test]
fn parameters_that_contradict_each_other_are_refused() {
    let refused = |keys: &str| {
        let plan = plan("in_process = \"mem:\"", keys);
        Plan::parse("test", &plan, Form::Full).unwrap_err().to_string()
    };
    for (keys, reason) in [
        ("operations = 5\nseconds = 1", "only one of `operations`, `bytes` and `seconds`"),
        ("writers = 3\ndepth = 2", "`writers`: must be a whole number, at most `depth`"),
        ("writers = 0.5", "`writers`: must be a whole number"),
        ("rate = -1", "`rate`: must be a number of 0 or more, found -1"),
        ("zipf = \"much\"", "`zipf`: must be a number of 0 or more"),
        ("block = 1000\naccess = \"direct\"", "`block`: must be a multiple of 512 bytes"),
        ("depth = 10000", "`depth`: must be at most 4096"),
    ] {
        let error = refused(keys);
        assert!(error.contains(reason), "{keys}: {error}");
    }
}
