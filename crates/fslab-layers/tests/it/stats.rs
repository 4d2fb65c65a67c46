//! Tests that `stats` counts exactly, even if many threads call it at once.

use std::sync::Arc;

use fslab_layers::{LayerChoice, OperationReport, Report, StackContext};
use fslab_vfs::{FileSystem, Ino, MemFs, OpenMode, Request, Result, SteppingClock};
use fslab_vfs_testing::client::Client;

/// Builds a stack with a clock that advances by 1000 ns at each reading, so that each operation
/// takes exactly 1000 ns.
fn counted(stack: &str) -> (Arc<dyn FileSystem>, StackContext) {
    let context = StackContext::new(Arc::new(SteppingClock::new(1000)));
    let stack = crate::stack(stack);
    (stack.build_in(&context).unwrap(), context)
}

fn of<'a>(report: &'a Report, operation: &str) -> &'a OperationReport {
    let found = report.operations.iter().find(|each| each.operation == operation);
    found.unwrap_or_else(|| panic!("no {operation} in {report:?}"))
}

#[test]
fn operations_bytes_errors_and_latencies_are_counted() {
    let (file_system, context) = counted("stats / mem:");
    let client = Client::new(&*file_system);
    let (_, file) = client.create(Ino::ROOT, "f", 0o644, OpenMode::READ_WRITE).unwrap();
    for _ in 0..3 {
        file.write_all(0, b"12345").unwrap();
    }
    assert_eq!(file.read(0, 100).unwrap(), b"12345");
    for _ in 0..4 {
        assert!(client.lookup(Ino::ROOT, "none").is_err());
    }
    assert!(client.rmdir(Ino::ROOT, "f").is_err());
    let [report] = context.reports().try_into().unwrap();
    assert_eq!((report.position, report.layer.as_str()), (1, "stats"));
    assert_eq!((of(&report, "write").count, of(&report, "write").bytes), (3, 15));
    assert_eq!(of(&report, "read").bytes, 5);
    let lookups = of(&report, "lookup");
    assert_eq!((lookups.errors["ENOENT"], lookups.in_flight), (4, 0));
    assert_eq!(of(&report, "rmdir").errors["ENOTDIR"], 1);
    let latency = &of(&report, "write").latency;
    assert_eq!((latency.sum_ns, latency.max_ns), (3000, 1000));
    assert_eq!((latency.p50_ns, latency.p999_ns), (1000, 1000), "no more than the maximum");
    assert_eq!(latency.buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 3);
}

#[test]
fn concurrent_operations_are_each_counted_once() {
    const THREADS: u64 = 24;
    const EACH: u64 = 2000;
    let (file_system, context) = counted("stats / mem:");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let file_system = &file_system;
            scope.spawn(move || {
                let client = Client::new(&**file_system);
                let name = format!("f{thread}");
                let (_, file) =
                    client.create(Ino::ROOT, &name, 0o644, OpenMode::READ_WRITE).unwrap();
                for _ in 0..EACH {
                    file.write_all(0, b"abc").unwrap();
                }
            });
        }
        for _ in 0..50 {
            let reports = context.reports();
            let writes = reports[0].operations.iter().find(|each| each.operation == "write");
            let in_flight = writes.map_or(0, |writes| writes.in_flight);
            assert!(in_flight <= THREADS, "{in_flight} writes at once");
        }
    });
    let report = context.reports().remove(0);
    let writes = of(&report, "write");
    assert_eq!((writes.count, writes.bytes), (THREADS * EACH, 3 * THREADS * EACH));
    assert_eq!(writes.in_flight, 0);
    assert_eq!(writes.latency.buckets.iter().map(|each| each.count).sum::<u64>(), THREADS * EACH);
}

#[test]
fn each_stats_layer_reports_separately() {
    let (file_system, context) =
        counted("stats / fault:rules=mkdir error EIO / stats:passthrough=on / mem:");
    assert!(Client::new(&*file_system).mkdir(Ino::ROOT, "d").is_err());
    let [above, below] = context.reports().try_into().unwrap();
    assert_eq!((above.position, below.position), (1, 3));
    assert_eq!(of(&above, "mkdir").errors["EIO"], 1);
    assert!(!below.operations.iter().any(|each| each.operation == "mkdir"), "{below:?}");
    assert_eq!(below.layer, "stats:passthrough=on");
    assert!(below.notes[0].contains("not counted") && above.notes.is_empty());
}

/// A file system that panics in every `statfs`.
struct Panics(MemFs);

impl FileSystem for Panics {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.0)
    }

    fn statfs(&self, _: &Request, _: Ino) -> Result<fslab_vfs::StatFs> {
        panic!("planted")
    }
}

#[test]
fn panicked_operation_is_no_longer_in_flight() {
    let context = StackContext::default();
    let stats = LayerChoice::parse("stats", &[]).unwrap();
    let file_system = stats.build_in(Arc::new(Panics(MemFs::default())), &context).unwrap();
    let request = Client::new(&*file_system).request();
    let asked = std::panic::AssertUnwindSafe(|| file_system.statfs(&request, Ino::ROOT).is_ok());
    assert!(std::panic::catch_unwind(asked).is_err());
    let report = context.reports().remove(0);
    let statfs = of(&report, "statfs");
    assert_eq!((statfs.in_flight, statfs.errors["EIO"]), (0, 1));
}
