//! Threads for calls that may never return. There are about as many as there were concurrent calls.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// A function for a thread. It must not panic.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The idle threads. All threads end when this is dropped.
#[derive(Default)]
pub(super) struct CallThreads(Arc<Idle>);

type Idle = Mutex<Vec<Worker>>;

/// A handle of a thread. The thread adds it to the idle ones when its job is done.
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
