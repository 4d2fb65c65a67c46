//! FUSE over io_uring: requests are served on the processor that makes them.
//!
//! The kernel has one queue for each processor. A queue's threads run only on its processor, so
//! that a request wakes no other processor. A thread replies to one request and receives the next
//! with a single system call. Each thread has one entry of its queue (see
//! [`fslab_sys::fuse_ring`]), which the kernel does not use while the thread is busy. The kernel
//! prefers the thread with the shortest waiting time.
//!
//! If a thread takes a request while no other thread waits in its queue, it starts another thread.
//! So no request waits for a slow one, with one exception. A request that arrives before the new
//! thread is registered remains in the kernel's queue until a reply is sent through this queue.
//! Therefore, while requests take long, fslab regularly queries the mount's free space through each
//! queue that has a new thread (`queues`). The reply to the query fetches the remaining request.
//!
//! FORGET, INTERRUPT and notifications use /dev/fuse.

mod queues;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use fslab_sys::fuse_ring::{FuseRing, IDLE_BYTES_MAX, Taken};
use fslab_sys::processors;
use fslab_vfs::Errno;

use crate::decode::Incoming;
use crate::reply_buffer::ReplyBuffer;
use crate::server::Server;
use crate::workers::Worker;

use queues::Queue;
pub(crate) use queues::Queues;

/// Maximum number of threads of one mount, including waiting ones, unless `THREADS_OF_A_QUEUE`
/// allows more.
const THREADS_MAX: usize = 256;

/// Number of threads that each queue may have on average, even beyond `THREADS_MAX`. For example,
/// two threads may wait for pages that are being read, while a third one serves these reads.
const THREADS_OF_A_QUEUE: usize = 4;

/// Initial number of threads in each queue: one serves, and one waits.
const FIRST_THREADS: usize = 2;

/// Maximum number of processors for which io_uring is preferred. The threads of an idle mount then
/// need at most 4 MiB.
const PREFERRED_PROCESSORS_MAX: usize = (4 << 20) / (FIRST_THREADS * IDLE_BYTES_MAX);

/// Checks whether this process can serve through io_uring. Whether the kernel supports it is only
/// known at the start of the connection.
///
/// # Errors
/// The reason why it can't.
pub(crate) fn check(device: &OwnedFd) -> io::Result<()> {
    if !processors::may_run_on_all()? {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "io_uring: this process is not allowed to run on every processor",
        ));
    }
    let ring = FuseRing::new(Arc::new(device.try_clone()?), 0, 4096);
    ring.map(drop).map_err(in_io_uring)
}

/// Names io_uring in an error, and its limit of memory if it is exceeded.
fn in_io_uring(error: io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::OutOfMemory => "; raise the limit of locked memory (`ulimit -l`)",
        _ => "",
    };
    io::Error::new(error.kind(), format!("io_uring: {error}{remedy}"))
}

/// Checks whether this process should serve through io_uring if /dev/fuse is possible, too. On a
/// machine with very many processors, an idle mount would need too much memory.
///
/// # Errors
/// The reason why it should not.
pub(crate) fn check_preferred(device: &OwnedFd) -> io::Result<()> {
    let processors = processors::possible_count()?;
    if processors > PREFERRED_PROCESSORS_MAX {
        return Err(io::Error::other(format!(
            "io_uring: this machine may have {processors} processors, and an idle mount would need \
             up to {} KiB of memory for each",
            (FIRST_THREADS * IDLE_BYTES_MAX) >> 10
        )));
    }
    check(device)
}

impl Server {
    /// Starts the first threads of each queue and waits until all are registered, because until
    /// then the kernel holds requests back.
    pub fn start_queues(self: &Arc<Self>, queues: &Arc<Queues>) -> io::Result<()> {
        let (sender, registered) = channel();
        for number in 0..queues.queues.len() * FIRST_THREADS {
            let number = number / FIRST_THREADS;
            self.add_ring_thread(queues, number, Some(sender.clone()))?;
        }
        drop(sender);
        registered.into_iter().collect::<io::Result<Vec<()>>>().map(drop).map_err(in_io_uring)
    }

    fn add_ring_thread(
        self: &Arc<Self>,
        queues: &Arc<Queues>,
        number: usize,
        registered: Option<Sender<io::Result<()>>>,
    ) -> io::Result<()> {
        let worker = Arc::new(Worker::default());
        queues.workers.add(&worker);
        let (server, own, shared) = (Arc::clone(self), Arc::clone(&worker), Arc::clone(queues));
        let started = std::thread::Builder::new().name("fslab-uring".to_owned()).spawn(move || {
            let mut thread = RingThread { server, queues: shared, number, worker: own };
            thread.run(registered);
        });
        if started.is_err() {
            queues.workers.remove(&worker);
        }
        started.map(|_detached| ())
    }
}

impl Drop for RingThread {
    fn drop(&mut self) {
        // `guarded` catches panics of the file system. After a panic of the server, a new thread
        // replaces this one.
        if std::thread::panicking() {
            self.add_thread_or_say();
        }
        self.queues.workers.remove(&self.worker);
    }
}

/// A thread of a queue.
struct RingThread {
    server: Arc<Server>,
    queues: Arc<Queues>,
    number: usize,
    worker: Arc<Worker>,
}

impl RingThread {
    fn run(&mut self, registered: Option<Sender<io::Result<()>>>) {
        let ring = self.queues.register(self.number);
        let ring = match (ring, registered) {
            (Ok(ring), None) => {
                self.queue().note_growth();
                Some(ring)
            }
            (Ok(ring), Some(sender)) => sender.send(Ok(())).is_ok().then_some(ring),
            (Err(error), Some(sender)) => {
                if sender.send(Err(error)).is_err() {
                    tracing::debug!("io_uring was given up before all its queues had started");
                }
                None
            }
            (Err(error), None) => {
                tracing::warn!(%error, "can't add a thread to an io_uring queue");
                None
            }
        };
        if let Some(mut ring) = ring {
            self.serve(&mut ring);
        }
    }

    fn queue(&self) -> &Queue {
        &self.queues.queues[self.number]
    }

    fn serve(&mut self, ring: &mut FuseRing) {
        let mut output = ReplyBuffer::default();
        loop {
            match self.next(ring) {
                Ok(Taken::Request) => {}
                Ok(Taken::Gone) => return self.queues.workers.end(),
                Err(error) => {
                    tracing::error!(%error, "the kernel refused a reply");
                    if let Err(error) = ring.register() {
                        tracing::error!(
                            %error,
                            "can't register an io_uring queue entry, so the thread that serves it \
                             ends"
                        );
                        return;
                    }
                    continue;
                }
            }
            self.answer(ring, &mut output);
        }
    }

    fn next(&self, ring: &mut FuseRing) -> io::Result<Taken> {
        let waiting = &self.queue().waiting;
        waiting.fetch_add(1, Ordering::SeqCst);
        let taken = ring.take();
        let is_last = waiting.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && matches!(taken, Ok(Taken::Request)) {
            self.add_thread_or_say();
        }
        taken
    }

    fn add_thread_or_say(&self) {
        let threads_max = THREADS_MAX.max(self.queues.queues.len() * THREADS_OF_A_QUEUE);
        if self.queues.workers.count() >= threads_max {
            return;
        }
        let started = self.server.add_ring_thread(&self.queues, self.number, None);
        let is_short = &self.queues.is_short_of_threads;
        let has_failed_before = is_short.swap(started.is_err(), Ordering::Relaxed);
        if let Err(error) = started
            && !has_failed_before
        {
            tracing::warn!(%error, "can't start another thread; requests wait until this succeeds");
        }
    }

    fn answer(&self, ring: &mut FuseRing, output: &mut ReplyBuffer) {
        let arrived = Instant::now();
        let done = match Incoming::parse(ring.request()) {
            Ok(incoming) => {
                let workers = &self.queues.workers;
                self.server.serve_from_ring(&self.worker, workers, arrived, incoming, output)
            }
            Err(error) => {
                tracing::error!(%error, "a request is invalid");
                Err(Errno::IO)
            }
        };
        let answered = match done {
            Ok(()) => ring.answer(0, output.payload()),
            Err(errno) => ring.answer(-errno.raw_os_error(), &[]),
        };
        if let Err(error) = answered {
            tracing::error!(%error, "can't send a reply");
        }
        self.worker.finish();
    }
}
