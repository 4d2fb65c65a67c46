//! Threads for calls that may never return. Threads are reused, so there are about as many threads
//! as there were concurrent calls at the busiest time.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The function that a thread runs for one call. It must not panic.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The idle threads. When this is dropped, idle threads end at once and busy ones after their job.
#[derive(Default)]
pub(super) struct CallThreads(Arc<Idle>);

type Idle = Mutex<Vec<Worker>>;

/// A handle that sends jobs to a thread. After each job, the thread returns its handle to the list
/// of idle threads.
struct Worker(Sender<(Job, Self)>);

impl CallThreads {
    /// Runs a job in an idle or new thread.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn run(&self, job: Job) -> io::Result<()> {
        let idle = self.0.lock().pop();
        let worker = idle.map_or_else(|| self.start(), Ok)?;
        let sender = worker.0.clone();
        sender.send((job, worker)).or(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn start(&self) -> io::Result<Worker> {
        let (sender, jobs) = channel();
        let idle = Arc::downgrade(&self.0);
        let thread = std::thread::Builder::new().name("fslab-archive".to_owned());
        thread.spawn(move || work(&idle, &jobs))?;
        Ok(Worker(sender))
    }
}

fn work(idle: &Weak<Idle>, jobs: &Receiver<(Job, Worker)>) {
    while let Ok((job, worker)) = jobs.recv() {
        job();
        let Some(idle) = idle.upgrade() else { return };
        idle.lock().push(worker);
    }
}
