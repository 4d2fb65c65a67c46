//! Programs that wait for recalls, how they are reported, and commands that wait for the end of
//! recalls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fslab_tier::command::{Command, Event, WaitingProgram, execute};
use fslab_tier::{Error, Settings, own_request};
use fslab_vfs::{
    Cancellation, Clock, Credentials, Errno, FileSystem, Ino, MemFs, MonotonicClock, OpenMode,
    Request, Timestamp,
};

use crate::support::{Bench, Hands, MIB, TIER, noise};

/// Makes an offline file of two blocks in a hanging archive, with one recalling thread.
fn stalled() -> (Bench, Ino) {
    stalled_by(Arc::new(MonotonicClock))
}

fn stalled_by(clock: Arc<dyn Clock>) -> (Bench, Ino) {
    let settings = Settings { movers: 1, ahead: 0, ..Settings::of(TIER) };
    let bench = Bench::by_clock(Arc::new(MemFs::default()), settings, 1, clock);
    let ino = bench.offline(&bench.client(), "file", &noise(1, 2 * MIB));
    bench.offline(&bench.client(), "other", &noise(2, MIB));
    *bench.archives[0].faults().stalled.lock() = true;
    (bench, ino)
}

/// When dropped, makes the archive respond again, even after a failed test.
struct Resumes<'a>(&'a Bench);

impl Drop for Resumes<'_> {
    fn drop(&mut self) {
        self.0.archives[0].faults().resume();
    }
}

fn told(bench: &Bench, command: &Command, request: &Request) -> (Vec<Event>, Option<Error>) {
    let mut told = Vec::new();
    let done = execute(&bench.tier, command, request, &mut |event| {
        told.push(event);
        true
    });
    (told, done.err())
}

/// Reads both blocks as process 77 of user 5, and calls a function during the read.
fn while_it_is_read(bench: &Bench, ino: Ino, during: impl FnOnce()) -> Result<usize, Errno> {
    let credentials = Credentials { uid: 5, gid: 5 };
    let request = Request { credentials, pid: 77, ..own_request() };
    let opened = bench.fs.open(&own_request(), ino, OpenMode::empty()).unwrap();
    let read = std::thread::scope(|scope| {
        let mut buffer = vec![0; 2 * MIB as usize];
        let reader =
            scope.spawn(move || bench.fs.read(&request, ino, opened.handle, 0, &mut buffer));
        while bench.archives[0].faults().blocked.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let resumes = Resumes(bench);
        during();
        drop(resumes);
        reader.join().unwrap()
    });
    bench.fs.release(&own_request(), ino, opened.handle).unwrap();
    read.map_err(|error| error.errno())
}

fn queue(bench: &Bench) -> Vec<(u64, Vec<WaitingProgram>, u64, bool)> {
    let (told, _) = told(bench, &Command::Queue, &own_request());
    let waiting = told.into_iter().map(|event| match event {
        Event::Waiting { block, by, waiters, begun, .. } => (block, by, waiters, begun),
        event => panic!("{event:?}"),
    });
    let mut waiting: Vec<_> = waiting.collect();
    waiting.sort_by_key(|(block, ..)| *block);
    waiting
}

#[test]
fn queue_lists_waiting_programs_and_running_recalls() {
    let (bench, ino) = stalled();
    let read = while_it_is_read(&bench, ino, || {
        let reader = WaitingProgram { user: 5, pid: 77, program: None };
        assert_eq!(queue(&bench), [(0, vec![reader], 1, true), (1, vec![], 0, false)]);
    });
    assert_eq!(read, Ok(2 * MIB as usize));
    assert_eq!(queue(&bench), []);
}

#[test]
fn gauges_report_pending_recalls_and_the_longest_wait() {
    let hands = Arc::new(Hands::default());
    let (bench, ino) = stalled_by(hands.clone());
    let gauges = || bench.tier.gauges().unwrap().into_iter().map(|(.., value)| value);
    let read = while_it_is_read(&bench, ino, || {
        hands.turn(Duration::from_secs(90));
        assert!(gauges().eq([2, 90]), "{:?}", bench.tier.gauges());
    });
    assert!(read.is_ok());
    assert!(gauges().eq([0, 0]), "{:?}", bench.tier.gauges());
}

/// The command only waits for recalls that others requested.
#[test]
fn wait_starts_no_recalls() {
    let (bench, ino) = stalled();
    let wait = |path: &[u8], request: &Request| {
        told(&bench, &Command::Wait { paths: vec![path.to_vec()] }, request)
    };
    assert!(wait(b"", &own_request()).1.is_none(), "nothing is on its way");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = while_it_is_read(&bench, ino, || {
            let cancellation = Cancellation::new(Arc::new(AtomicU64::new(1)), 1);
            let signalled = Request { cancellation, ..own_request() };
            assert!(matches!(wait(b"file", &signalled).1, Some(Error::Interrupted)));
            assert!(wait(b"other", &own_request()).1.is_none(), "not waited for");
            let (wait, ended) = (&wait, &ended);
            scope.spawn(move || {
                assert!(wait(b"", &own_request()).1.is_none());
                ended.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(50));
            assert!(!ended.load(Ordering::SeqCst));
        });
        assert!(read.is_ok());
    });
    assert!(ended.load(Ordering::SeqCst));
    assert_eq!(bench.offline_blocks(bench.client().lookup(Ino::ROOT, "other").unwrap().ino), [0]);
}

#[test]
fn cancel_reports_only_cancelled_recalls() {
    let (bench, ino) = stalled();
    let read = while_it_is_read(&bench, ino, || {
        let (told, _) = told(&bench, &Command::Cancel { paths: vec![vec![]] }, &own_request());
        let [Event::Done { path, bytes: MIB, .. }] = &told[..] else { panic!("{told:?}") };
        assert_eq!(path, "file");
    });
    // The running recall is not cancelled. The reader requests the other block again.
    assert!(matches!(read, Ok(_) | Err(Errno::CANCELED)));
}

#[test]
fn versions_are_listed_with_their_own_modification_times() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", b"old").unwrap();
    let modified = Timestamp { seconds: 1_000_000, nanoseconds: 0 };
    let times = fslab_vfs::SetAttr {
        modified: Some(fslab_vfs::SetTime::To(modified)),
        ..fslab_vfs::SetAttr::default()
    };
    client.set(ino, &times).unwrap();
    bench.archive(ino, "file").unwrap();
    let (told, _) = told(&bench, &Command::Versions { path: vec![] }, &own_request());
    let [Event::Version { modified: 1_000_000, since, .. }] = &told[..] else { panic!("{told:?}") };
    assert!(*since > 1_000_000);
}
