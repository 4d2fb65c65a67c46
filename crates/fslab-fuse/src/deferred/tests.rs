//! Tests deferred requests without a kernel: a server over a file system whose data arrives later.
//!
//! Each of these errors, put into the code on purpose, made a test fail:
//!
//! - A request that is woken before it is stored is not performed again.
//! - An interrupt that arrives while the request is on its first thread is lost.
//! - Stuck threads count towards the limit of threads.
//! - The deadline of the file system, or the kernel's time limit, is not stored.
//! - The memory limit is not applied.

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;

use fslab_vfs::{Errno, FileSystem, Handle, Ino, MemFs, Request, Result, Waker, split_mix};
use fslab_vfs_testing::environment::seed;
use zerocopy::IntoBytes;

use super::*;
use crate::decode::Incoming;
use crate::kept::{Kept, KeptState, Records};
use crate::options::MountOptions;
use crate::protocol::opcode::Opcode;
use crate::protocol::request::{InHeader, InterruptIn, ReadIn, WriteIn};
use crate::reply_buffer::ReplyBuffer;
use crate::server::Server;
use crate::testing::all_granted;
use crate::transport::{ReadMode, Received};

/// Maximum waiting time for events that must happen soon, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file system in which reads and writes wait until the test calls `arrive`. A read returns its
/// own offset, as eight bytes.
#[derive(Default)]
struct Tape {
    inner: MemFs,
    is_here: AtomicBool,
    /// The wakers of deferred requests.
    wakers: Mutex<Vec<Waker>>,
    /// Number of requests that wait on their threads.
    waiting: AtomicUsize,
    /// The memory of deferred requests; its reference count shows how many are left.
    remembered: Arc<()>,
    again_after: Mutex<Option<Duration>>,
    /// While this is set, requests that are performed again block their threads.
    blocks: AtomicBool,
    /// Number of reads and writes.
    calls: AtomicUsize,
    /// Called once by the next request, just before and just after it accepts the offer to defer
    /// it.
    before: Mutex<Option<Hook>>,
    after: Mutex<Option<Hook>>,
}

type Hook = Box<dyn FnOnce() + Send>;

fn call(hook: &Mutex<Option<Hook>>) {
    let hook = hook.lock().take();
    hook.into_iter().for_each(|hook| hook());
}

impl Tape {
    fn arrive(&self) {
        self.is_here.store(true, Ordering::SeqCst);
        let wakers = std::mem::take(&mut *self.wakers.lock());
        wakers.iter().for_each(Waker::wake);
    }

    fn wait(&self, request: &Request) -> Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let remembered = request.deferral.take::<Arc<()>>();
        assert_eq!(remembered.is_some(), request.deferral.is_resumed());
        while remembered.is_some() && self.blocks.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        loop {
            request.cancellation.check()?;
            call(&self.before);
            let mut wakers = self.wakers.lock();
            if self.is_here.load(Ordering::SeqCst) {
                return Ok(());
            }
            if let Some(waker) = request.deferral.accept() {
                wakers.push(waker);
                drop(wakers);
                call(&self.after);
                let memory = Box::new(Arc::clone(&self.remembered));
                request.deferral.defer(memory, *self.again_after.lock());
                return Err(fslab_vfs::Error::Deferred);
            }
            drop(wakers);
            self.waiting.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl FileSystem for Tape {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn can_defer(&self) -> bool {
        true
    }

    fn read(
        &self,
        request: &Request,
        _: Ino,
        _: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        self.wait(request)?;
        buffer[..8].copy_from_slice(&offset.to_le_bytes());
        Ok(8)
    }

    fn write(
        &self,
        request: &Request,
        _: Ino,
        _: Handle,
        _: u64,
        data: &[u8],
        _: fslab_vfs::WriteOptions,
    ) -> Result<usize> {
        self.wait(request)?;
        assert!(data.iter().all(|byte| *byte == data.len() as u8));
        Ok(data.len())
    }
}

/// Replies by request: the first eight bytes, or an error.
#[derive(Debug, Default)]
struct Replies(Mutex<HashMap<u64, Vec<std::result::Result<u64, Errno>>>>);

impl Transport for Replies {
    fn receive(&self, _: &mut [u8]) -> std::result::Result<Received, Errno> {
        Ok(Received::Gone)
    }

    fn reply(
        &self,
        unique: u64,
        answer: std::result::Result<&[u8], Errno>,
    ) -> std::result::Result<(), Errno> {
        let bytes = answer.map(|bytes| u64::from_le_bytes(*bytes.first_chunk().unwrap()));
        self.0.lock().entry(unique).or_default().push(bytes);
        Ok(())
    }

    fn notify(&self, _: i32, _: &[&[u8]]) -> std::result::Result<(), Errno> {
        Ok(())
    }

    fn another(&self, _: ReadMode) -> std::result::Result<Arc<dyn Transport>, Errno> {
        Err(Errno::MFILE)
    }

    fn register_backing(&self, _: BorrowedFd<'_>) -> std::result::Result<i32, Errno> {
        Err(Errno::PERM)
    }

    fn release_backing(&self, _: i32) -> std::result::Result<(), Errno> {
        Ok(())
    }

    fn is_connected(&self) -> bool {
        true
    }
}

/// A server with the threads that perform requests again, but without a monitor thread.
struct Mount {
    tape: Arc<Tape>,
    replies: Arc<Replies>,
    transport: Arc<dyn Transport>,
    server: Arc<Server>,
}

impl Mount {
    fn new() -> Self {
        Self::with(None, None, BYTES_MAX)
    }

    fn with(limit: Option<Duration>, kept: Option<Kept>, bytes_max: usize) -> Self {
        let (tape, replies) = (Arc::new(Tape::default()), Arc::new(Replies::default()));
        let transport: Arc<dyn Transport> = Arc::<Replies>::clone(&replies);
        let options = MountOptions::default();
        let mut granted = all_granted(&options);
        granted.request_time_max = limit;
        let (shared, connection): (Arc<dyn FileSystem>, _) = (tape.clone(), transport.clone());
        let mut server = Server::new(shared, options, granted, connection, None, kept);
        let deferred = server.deferred.as_mut().and_then(Arc::get_mut).unwrap();
        deferred.bytes_max = bytes_max;
        let server = Arc::new(server);
        server.start_resuming().unwrap();
        Self { tape, replies, transport, server }
    }

    fn deferred(&self) -> &Arc<Deferred> {
        self.server.deferred.as_ref().unwrap()
    }

    fn serve(&self, opcode: Opcode, unique: u64, body: &[&[u8]]) {
        let body = body.concat();
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode: opcode as u32,
            unique,
            nodeid: 2,
            uid: 0,
            gid: 0,
            pid: 0,
            total_extlen: 0,
            padding: 0,
        };
        let request = [header.as_bytes(), &body].concat();
        let incoming = Incoming::parse(&request).unwrap();
        self.server.serve_alone(&self.transport, incoming, &mut ReplyBuffer::default());
    }

    /// Serves a read whose offset is the request's number.
    fn read(&self, unique: u64) {
        let body = ReadIn {
            fh: 1,
            offset: unique,
            size: 8,
            read_flags: 0,
            lock_owner: 0,
            flags: 0,
            padding: 0,
        };
        self.serve(Opcode::Read, unique, &[body.as_bytes()]);
    }

    fn write(&self, unique: u64, length: u8) {
        let (size, data) = (length.into(), vec![length; length.into()]);
        let [write_flags, flags, padding] = [0; 3];
        let (fh, offset, lock_owner) = (1, 0, 0);
        let body = WriteIn { fh, offset, size, write_flags, lock_owner, flags, padding };
        self.serve(Opcode::Write, unique, &[body.as_bytes(), &data]);
    }

    fn interrupt(&self, unique: u64) {
        self.serve(Opcode::Interrupt, 1 << 40, &[InterruptIn { unique }.as_bytes()]);
    }

    fn reply_to(&self, unique: u64) -> Option<std::result::Result<u64, Errno>> {
        let replies = self.replies.0.lock();
        let own = replies.get(&unique)?;
        assert_eq!(own.len(), 1, "one reply to each request");
        Some(own[0])
    }

    #[track_caller]
    fn soon(&self, what: &str, holds: impl Fn() -> bool) {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[track_caller]
    fn expect(&self, unique: u64, reply: std::result::Result<u64, Errno>) {
        self.soon("a reply", || self.reply_to(unique).is_some());
        assert_eq!(self.reply_to(unique), Some(reply));
    }

    /// Checks that the table and the file system have released all requests.
    #[track_caller]
    fn expect_nothing_left(&self) {
        self.soon("nothing is left", || Arc::strong_count(&self.tape.remembered) == 1);
        self.soon("no request is left", || self.deferred().count() == 0);
        let state = self.deferred().state.lock();
        assert_eq!((state.bytes, state.deadlines.len(), state.running.len()), (0, 0, 0));
        assert!(state.ready.is_empty() && state.threads <= THREADS_MAX);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.tape.blocks.store(false, Ordering::SeqCst);
        self.deferred().end();
        self.deferred().wait();
    }
}

#[test]
fn hundred_thousand_requests_wait_on_two_threads() {
    const REQUESTS: u64 = 100_000;
    let mount = Mount::new();
    std::thread::scope(|scope| {
        for odd in 0..2 {
            let mount = &mount;
            scope.spawn(move || (1..=REQUESTS / 2).for_each(|half| mount.read(2 * half - odd)));
        }
    });
    assert_eq!(mount.deferred().count(), REQUESTS as usize);
    assert_eq!(mount.deferred().state.lock().threads, 1, "nothing to perform again");
    assert_eq!(mount.tape.waiting.load(Ordering::SeqCst), 0);
    assert!(mount.replies.0.lock().is_empty());
    mount.tape.arrive();
    mount.soon("all replies", || mount.replies.0.lock().len() as u64 == REQUESTS);
    assert!((1..=REQUESTS).all(|unique| mount.reply_to(unique) == Some(Ok(unique))));
    assert_eq!(mount.tape.calls.load(Ordering::SeqCst) as u64, 2 * REQUESTS);
    mount.expect_nothing_left();
}

#[test]
fn request_is_performed_again_with_all_its_bytes() {
    let mount = Mount::new();
    mount.write(1, 200);
    assert_eq!(mount.deferred().count(), 1);
    mount.tape.arrive();
    mount.expect(1, Ok(200));
    mount.expect_nothing_left();
}

#[test]
fn signal_ends_a_deferred_request() {
    let mount = Mount::new();
    (1..=3).for_each(|unique| mount.read(unique));
    mount.interrupt(2);
    mount.expect(2, Err(Errno::INTR));
    assert_eq!(mount.deferred().count(), 2);
    mount.tape.arrive();
    [1, 3].into_iter().for_each(|unique| mount.expect(unique, Ok(unique)));
    mount.expect_nothing_left();
}

/// The signal arrives at a random time: before, during or after the request is deferred.
#[test]
fn no_signal_is_lost_while_a_request_is_deferred() {
    const ROUNDS: u64 = 3000;
    let mount = Mount::new();
    let together = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for unique in 1..=ROUNDS {
                together.wait();
                mount.read(unique);
            }
        });
        for unique in 1..=ROUNDS {
            together.wait();
            (0..split_mix(unique) % 40_000).for_each(|_| std::hint::spin_loop());
            mount.interrupt(unique);
        }
    });
    (1..=ROUNDS).for_each(|unique| mount.expect(unique, Err(Errno::INTR)));
    mount.tape.wakers.lock().clear();
    mount.expect_nothing_left();
}

#[test]
fn no_signal_or_wake_is_lost_before_a_request_is_kept() {
    let mount = Arc::new(Mount::new());
    let hook = |act: fn(&Mount)| -> Option<Hook> {
        let weak = Arc::downgrade(&mount);
        Some(Box::new(move || weak.upgrade().iter().for_each(|mount| act(mount))))
    };
    let interrupt = |mount: &Mount| {
        let server = Arc::clone(&mount.server);
        // Another thread of the mount receives the signal.
        let send = move || server.interrupt_by_number(1);
        std::thread::spawn(send).join().unwrap();
    };
    *mount.tape.before.lock() = hook(interrupt);
    mount.read(1);
    mount.expect(1, Err(Errno::INTR));
    mount.replies.0.lock().clear();
    *mount.tape.after.lock() = hook(interrupt);
    mount.read(1);
    mount.expect(1, Err(Errno::INTR));
    *mount.tape.after.lock() = hook(|mount| mount.tape.arrive());
    mount.read(2);
    mount.expect(2, Ok(2));
    mount.expect_nothing_left();
}

#[test]
fn stuck_requests_do_not_hold_up_other_deferred_ones() {
    const STUCK: u64 = 12;
    let mount = Mount::new();
    (1..=STUCK).for_each(|unique| mount.read(unique));
    mount.tape.blocks.store(true, Ordering::SeqCst);
    let wakers = std::mem::take(&mut *mount.tape.wakers.lock());
    wakers.iter().for_each(Waker::wake);
    mount.soon("all threads are at work", || {
        mount.deferred().state.lock().running.len() == THREADS_MAX
    });
    // Here, the test calls the function that the monitor would call.
    mount.soon("all are performed", || {
        mount.server.resume_stuck();
        mount.deferred().state.lock().running.len() as u64 == STUCK
    });
    mount.tape.blocks.store(false, Ordering::SeqCst);
    mount.tape.arrive();
    (1..=STUCK).for_each(|unique| mount.expect(unique, Ok(unique)));
    mount.expect_nothing_left();
}

#[test]
fn deferred_request_fails_before_the_kernel_aborts_the_mount() {
    let mount = Mount::with(Some(Duration::from_millis(400)), None, BYTES_MAX);
    let start = Instant::now();
    mount.read(1);
    mount.expect(1, Err(Errno::TIMEDOUT));
    assert!(start.elapsed() >= Duration::from_millis(300));
    mount.expect_nothing_left();
}

#[test]
fn file_system_is_called_again_after_the_time_that_it_named() {
    let mount = Mount::new();
    *mount.tape.again_after.lock() = Some(Duration::from_millis(20));
    mount.read(1);
    mount.soon("several calls", || mount.tape.calls.load(Ordering::SeqCst) > 3);
    assert_eq!(mount.deferred().count(), 1);
    assert!(mount.deferred().state.lock().deadlines.len() <= 1);
    mount.tape.arrive();
    mount.expect(1, Ok(1));
    mount.expect_nothing_left();
}

#[test]
fn request_above_the_memory_limit_waits_on_its_thread() {
    let mount = Mount::with(None, None, 3 * OVERHEAD_BYTES + 300);
    (1..=3).for_each(|unique| mount.read(unique));
    std::thread::scope(|scope| {
        let fourth = scope.spawn(|| mount.read(4));
        mount.soon("it waits", || mount.tape.waiting.load(Ordering::SeqCst) == 1);
        assert_eq!(mount.deferred().count(), 3);
        mount.interrupt(4);
        fourth.join().unwrap();
    });
    mount.expect(4, Err(Errno::INTR));
    mount.tape.arrive();
    (1..=3).for_each(|unique| mount.expect(unique, Ok(unique)));
    mount.expect_nothing_left();
}

#[test]
fn cutting_off_answers_every_deferred_request() {
    let mount = Mount::new();
    (1..=100).for_each(|unique| mount.read(unique));
    mount.server.cut_off();
    mount.deferred().wait();
    (1..=100).for_each(|unique| mount.expect(unique, Err(Errno::NOTCONN)));
    mount.read(101);
    mount.expect(101, Err(Errno::NOTCONN));
    mount.tape.wakers.lock().clear();
    mount.expect_nothing_left();
}

#[test]
fn end_of_the_mount_forgets_deferred_requests() {
    let mount = Mount::new();
    (1..=100).for_each(|unique| mount.read(unique));
    mount.deferred().end();
    mount.deferred().wait();
    mount.tape.arrive();
    assert!(mount.replies.0.lock().is_empty());
    mount.expect_nothing_left();
}

/// If the daemon dies while a request is deferred, its successor must treat the request as new.
#[test]
fn deferred_request_of_a_kept_mount_has_no_record() {
    let state = Arc::new(KeptState::new(0).unwrap());
    let mount = Mount::with(None, Some(Kept::new(Arc::clone(&state))), BYTES_MAX);
    mount.write(7, 50);
    assert_eq!(mount.deferred().count(), 1);
    assert!(!Records::taken_over(&state).was_cut_short(7));
    mount.tape.arrive();
    mount.expect(7, Ok(50));
    mount.expect_nothing_left();
}

/// One thread sends requests; another sends signals and wakes in random order.
#[test]
fn each_request_of_a_random_load_gets_one_right_reply() {
    for case in 0..30 {
        let seed = seed().wrapping_add(case);
        let mount = Mount::with(None, None, 40 * OVERHEAD_BYTES);
        let draw = |number: u64, count| split_mix(seed ^ (number << 8)) % count;
        if draw(0, 2) == 0 {
            *mount.tape.again_after.lock() = Some(Duration::from_millis(1));
        }
        let (signalled, requests) = (AtomicBool::new(false), 1 + draw(1, 60));
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=requests).for_each(|unique| mount.read(unique)));
            scope.spawn(|| {
                for step in 0..200 {
                    let unique = 1 + draw(step + 1000, requests);
                    match draw(step + 2000, 3) {
                        0 => mount.interrupt(unique),
                        1 => mount.deferred().wake(unique),
                        _ => std::thread::yield_now(),
                    }
                }
                signalled.store(true, Ordering::SeqCst);
            });
            // The data arrives from a third thread, because a request above the memory limit blocks
            // the first thread.
            scope.spawn(|| {
                mount.soon("the signals", || signalled.load(Ordering::SeqCst));
                mount.tape.arrive();
            });
        });
        for unique in 1..=requests {
            mount.soon("a reply", || mount.reply_to(unique).is_some());
            let reply = mount.reply_to(unique);
            assert!(
                matches!(reply, Some(Ok(own)) if own == unique) || reply == Some(Err(Errno::INTR)),
                "FSLAB_SEED={seed}: {reply:?}"
            );
        }
        mount.expect_nothing_left();
    }
}
