//! Tests that every kind of fault has exactly the effect that its script describes.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fslab_layers::observe::fault::{Fault, Program};
use fslab_vfs::{
    Cancellation, Errno, FallocateMode, FileSystem, Ino, MemFs, OpenMode, RenameMode, Request,
    Result,
};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

/// A `fault` layer over memory. Its delays take no time and are recorded.
struct Bench {
    memory: Arc<MemFs>,
    fault: Fault,
    waited: Arc<Mutex<Vec<Duration>>>,
}

impl Bench {
    fn new(script: &str) -> Self {
        Self::seeded(script, 0)
    }

    fn seeded(script: &str, seed: u64) -> Self {
        let memory = Arc::new(MemFs::default());
        let waited = Arc::new(Mutex::new(Vec::new()));
        let diary = Arc::clone(&waited);
        let wait = move |delay: Duration, cancellation: &Cancellation| {
            diary.lock().push(delay);
            cancellation.check()
        };
        let inner: Arc<dyn FileSystem> = memory.clone();
        let program = Program::parse("script", script, seed).unwrap();
        Self { memory, fault: Fault::new(inner, program, Box::new(wait)), waited }
    }

    fn client(&self) -> Client<'_> {
        Client::new(&self.fault)
    }

    /// Returns a client of the same files, without faults.
    fn beneath(&self) -> Client<'_> {
        Client::new(&*self.memory)
    }
}

#[track_caller]
fn fails<T>(answer: Result<T>, errno: Errno) {
    assert_eq!(answer.err().map(|error| error.errno()), Some(errno));
}

#[test]
fn error_hits_only_matching_calls_and_prevents_their_effect() {
    let bench = Bench::new("mkdir on b error EDQUOT\nmkdir on c times 1 error EIO");
    let client = bench.client();
    client.mkdir(Ino::ROOT, "a").unwrap();
    fails(client.mkdir(Ino::ROOT, "b"), Errno::DQUOT);
    fails(client.mkdir(Ino::ROOT, "c"), Errno::IO);
    client.mkdir(Ino::ROOT, "c").unwrap();
    assert_eq!(bench.beneath().names(Ino::ROOT).unwrap(), ["a", "c"]);
    let struck: Vec<_> = bench.fault.counts().iter().map(|rule| (rule.seen, rule.struck)).collect();
    assert_eq!(struck, [(1, 1), (2, 1)]);
}

#[test]
fn each_rule_counts_its_calls_separately() {
    let bench = Bench::new("mkdir nth 2 error EIO\nmkdir nth 2..3 every 3 error ENOMEM");
    let client = bench.client();
    client.mkdir(Ino::ROOT, "1").unwrap();
    fails(client.mkdir(Ino::ROOT, "2"), Errno::IO);
    fails(client.mkdir(Ino::ROOT, "3"), Errno::NOMEM);
    client.mkdir(Ino::ROOT, "4").unwrap();
}

#[test]
fn late_error_keeps_the_effect_and_leaks_no_handle() {
    let bench = Bench::new("create|open|mkdir|opendir|fsync|lookup on late* late EIO");
    let client = bench.client();
    fails(client.create(Ino::ROOT, "late", 0o644, OpenMode::empty()).map(drop), Errno::IO);
    fails(client.mkdir(Ino::ROOT, "later"), Errno::IO);
    fails(client.lookup(Ino::ROOT, "later"), Errno::IO);
    assert_eq!(bench.beneath().names(Ino::ROOT).unwrap(), ["late", "later"]);
    let directory = Bench::new("opendir late EIO\nopen late EIO");
    directory.beneath().file(Ino::ROOT, "f", b"x").unwrap();
    fails(directory.client().names(Ino::ROOT), Errno::IO);
    let ino = directory.client().lookup(Ino::ROOT, "f").unwrap().ino;
    fails(directory.client().open(ino, OpenMode::empty()).map(drop), Errno::IO);
    drop(client);
    for memory in [bench.memory, directory.memory] {
        assert_eq!((memory.open_handles(), memory.remembered()), (0, 0));
    }
}

#[test]
fn skipped_change_returns_success_without_effect() {
    let bench = Bench::new("write nth 2 skip\nunlink|setxattr|fallocate|fsync skip");
    let client = bench.client();
    let (_, file) = client.create(Ino::ROOT, "f", 0o644, OpenMode::empty()).unwrap();
    file.write_all(0, b"one").unwrap();
    file.write_all(3, b"two").unwrap();
    file.write_all(6, b"three").unwrap();
    file.fallocate(0, 1 << 20, FallocateMode::empty()).unwrap();
    file.fsync(false).unwrap();
    client.setxattr(file.ino, "user.a", b"1").unwrap();
    client.unlink(Ino::ROOT, "f").unwrap();
    assert_eq!(client.contents(file.ino).unwrap(), b"one\0\0\0three");
    fails(client.getxattr(file.ino, "user.a"), Errno::NODATA);
    assert_eq!(client.names(Ino::ROOT).unwrap(), ["f"]);
}

#[test]
fn short_transfers_move_at_most_the_configured_bytes() {
    let bench = Bench::new("write|copy_file_range short 4\nread every 2 short 3");
    let client = bench.client();
    let (_, file) = client.create(Ino::ROOT, "f", 0o644, OpenMode::empty()).unwrap();
    assert_eq!(file.write(0, b"abcdefgh").unwrap(), 4);
    file.write_all(0, b"abcdefgh").unwrap();
    assert_eq!(file.read(0, 8).unwrap(), b"abcdefgh");
    assert_eq!(file.read(0, 8).unwrap(), b"abc");
    assert_eq!(file.copy_to(0, &file, 100, 8).unwrap(), 4);
}

/// Returns the offsets of the bytes that differ, and the number of differing bits in each.
fn damage(one: &[u8], other: &[u8]) -> Vec<(usize, u32)> {
    assert_eq!(one.len(), other.len());
    let pairs = one.iter().zip(other).enumerate();
    let damaged = pairs.filter(|(_, (one, other))| one != other);
    damaged.map(|(place, (one, other))| (place, (one ^ other).count_ones())).collect()
}

#[test]
fn flips_change_the_requested_bits_in_read_or_stored_data() {
    let data = [0x5a; 4096];
    let bench = Bench::new("read on r flip 3\nwrite on w flip 5");
    let client = bench.client();
    for name in ["r", "w"] {
        client.file(Ino::ROOT, name, &data).unwrap();
    }
    let read = client.lookup(Ino::ROOT, "r").unwrap().ino;
    let written = client.lookup(Ino::ROOT, "w").unwrap().ino;
    let seen = damage(&client.contents(read).unwrap(), &data);
    assert!(seen.len() == 3 && seen.iter().all(|(_, bits)| *bits == 1), "{seen:?}");
    assert_ne!(damage(&client.contents(read).unwrap(), &data), seen, "drawn anew");
    assert!(damage(&bench.beneath().contents(read).unwrap(), &data).is_empty());
    let stored = damage(&bench.beneath().contents(written).unwrap(), &data);
    assert!(stored.len() == 5 && stored.iter().all(|(_, bits)| *bits == 1), "{stored:?}");
    assert_eq!(damage(&client.contents(written).unwrap(), &data), stored);
}

#[test]
fn flip_at_an_offset_damages_that_byte_in_every_read() {
    let bench = Bench::new("read flip at 1KiB");
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "f", &[0; 4096]).unwrap();
    let file = client.open(ino, OpenMode::empty()).unwrap();
    assert_eq!(damage(&file.read(0, 4096).unwrap(), &[0; 4096]), [(1024, 1)]);
    assert_eq!(damage(&file.read(1000, 100).unwrap(), &[0; 100]), [(24, 1)]);
    assert!(damage(&file.read(1025, 100).unwrap(), &[0; 100]).is_empty());
    client.setxattr(ino, "user.a", &[0; 8]).unwrap();
    let values = Bench::new("setxattr nth 1 flip 8\ngetxattr nth 2 flip 1");
    let ino = values.client().file(Ino::ROOT, "f", b"").unwrap();
    values.client().setxattr(ino, "user.a", &[0; 8]).unwrap();
    let stored = values.beneath().getxattr(ino, "user.a").unwrap();
    assert_eq!(damage(&stored, &[0; 8]).len(), 8);
    assert_eq!(values.client().getxattr(ino, "user.a").unwrap(), stored);
    assert_eq!(damage(&values.client().getxattr(ino, "user.a").unwrap(), &stored).len(), 1);
}

#[test]
fn disk_is_full_after_the_configured_bytes() {
    let bench = Bench::new("write|fallocate|create full 10");
    let client = bench.client();
    let (_, file) = client.create(Ino::ROOT, "f", 0o644, OpenMode::empty()).unwrap();
    assert_eq!(file.write(0, b"abcdef").unwrap(), 6);
    fails(file.fallocate(0, 100, FallocateMode::KEEP_SIZE), Errno::NOSPC);
    file.fallocate(0, 2, FallocateMode::KEEP_SIZE | FallocateMode::PUNCH_HOLE).unwrap();
    assert_eq!(file.write(6, b"ghijklm").unwrap(), 4, "what fits is taken");
    fails(file.write(10, b"k"), Errno::NOSPC);
    fails(client.create(Ino::ROOT, "g", 0o644, OpenMode::empty()).map(drop), Errno::NOSPC);
    assert_eq!(client.contents(file.ino).unwrap(), b"\0\0cdefghij");
}

#[test]
fn delays_are_drawn_from_their_range_and_added() {
    let bench = Bench::new("mkdir delay 5ms\nmkdir nth 2.. delay 1ms..2ms");
    let client = bench.client();
    for name in ["a", "b", "c"] {
        client.mkdir(Ino::ROOT, name).unwrap();
    }
    let waited = bench.waited.lock().clone();
    assert_eq!(waited[0], Duration::from_millis(5));
    let drawn = Duration::from_millis(6)..=Duration::from_millis(7);
    assert!(drawn.contains(&waited[1]) && drawn.contains(&waited[2]), "{waited:?}");
    assert_ne!(waited[1], waited[2]);
}

#[test]
fn cancelled_call_ends_its_delay() {
    let stack = crate::stack("fault:rules=mkdir delay 60s / mem:");
    let built = stack.build().unwrap();
    let cancelled = Arc::new(AtomicU64::new(0));
    let request = Request {
        cancellation: Cancellation::new(Arc::clone(&cancelled), 7),
        ..Client::new(&*built).request()
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            cancelled.store(7, Ordering::SeqCst);
        });
        let name = fslab_vfs::Name::new(OsStr::new("a")).unwrap();
        fails(built.mkdir(&request, Ino::ROOT, name, 0o755), Errno::INTR);
    });
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(Client::new(&*built).names(Ino::ROOT).unwrap().is_empty());
}

#[test]
fn an_error_at_release_still_releases() {
    let bench = Bench::new("release|releasedir error EIO");
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "f", b"").err().map(|error| error.errno());
    assert_eq!(ino, Some(Errno::IO));
    fails(client.names(Ino::ROOT), Errno::IO);
    assert_eq!(bench.memory.open_handles(), 0);
}

#[test]
fn paths_follow_renames_and_links() {
    let bench = Bench::new("setxattr on /d/e/* error EPERM\nsetxattr on linked error EXDEV");
    let client = bench.client();
    let [one, two] = ["one", "d"].map(|name| client.mkdir(Ino::ROOT, name).unwrap());
    let inner = client.mkdir(one, "e").unwrap();
    let ino = client.file(inner, "f", b"").unwrap();
    client.setxattr(ino, "user.a", b"1").unwrap();
    client.rename_with(Ino::ROOT, "one", Ino::ROOT, "d", RenameMode::EXCHANGE).unwrap();
    fails(client.setxattr(ino, "user.a", b"2"), Errno::PERM);
    client.rename(one, "e", two, "e").unwrap();
    client.setxattr(ino, "user.a", b"3").unwrap();
    client.link(ino, Ino::ROOT, "linked").unwrap();
    fails(client.setxattr(ino, "user.a", b"4"), Errno::XDEV);
    let (_, unnamed) = client.tmpfile(Ino::ROOT, 0o600, OpenMode::empty()).unwrap();
    client.setxattr(unnamed.ino, "user.a", b"5").unwrap();
}

/// Returns the random effects in a run of a hundred calls.
fn by_chance(seed: u64) -> (Vec<bool>, Vec<u8>) {
    let bench = Bench::seeded("mkdir chance 30% error EIO\nread flip 4", seed);
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "f", &[0; 512]).unwrap();
    let failed = (0..100).map(|number| client.mkdir(Ino::ROOT, format!("{number}")).is_err());
    (failed.collect(), client.contents(ino).unwrap())
}

#[test]
fn chance_depends_only_on_the_seed() {
    let (failed, bytes) = by_chance(1);
    assert_eq!((failed.clone(), bytes.clone()), by_chance(1));
    assert_ne!(failed, by_chance(2).0);
    assert_ne!(bytes, by_chance(2).1);
    let count: usize =
        (0..20).map(|seed| by_chance(seed).0.into_iter().filter(|failed| *failed).count()).sum();
    assert!((520..=680).contains(&count), "{count} of 2000 at 30 %");
}

#[test]
fn a_program_can_be_replaced_while_it_runs() {
    let bench = Bench::new("mkdir error EIO");
    fails(bench.client().mkdir(Ino::ROOT, "a"), Errno::IO);
    bench.fault.replace(Program::parse("script", "", 0).unwrap());
    bench.client().mkdir(Ino::ROOT, "a").unwrap();
}

#[test]
fn invalid_script_is_refused_with_the_line_number() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("faults");
    std::fs::write(&script, "# a comment\n\nread error EIOO\n").unwrap();
    let message = built(&script).err().unwrap();
    let expected = format!("{}, line 3: unknown error 'EIOO'; did you mean", script.display());
    assert!(message.starts_with(&expected), "{message}");
    std::fs::write(&script, "mkdir error EIO\n").unwrap();
    fails(Client::new(&*built(&script).unwrap()).mkdir(Ino::ROOT, "a"), Errno::IO);
    std::fs::remove_file(&script).unwrap();
    assert!(built(&script).err().unwrap().contains("No such file"));
    let inline = crate::stack("fault:rules=read delay 1ms; write skipp / mem:");
    let message = inline.build().err().unwrap().to_string();
    assert!(message.starts_with("fault:rules, line 2: unknown condition or action"), "{message}");
}

fn built(script: &Path) -> std::result::Result<Arc<dyn FileSystem>, String> {
    let stack = crate::stack(&format!("fault:script={} / mem:", script.display()));
    stack.build().map_err(|error| error.to_string())
}
