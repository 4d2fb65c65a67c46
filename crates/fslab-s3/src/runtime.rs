//! The async runtime. It has two worker threads, is created for the first request and exists until
//! the program exits. So it is never dropped by one of its own workers, which would panic.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, sync_channel};

use tokio::runtime::{Builder, Handle, Runtime};

const WORKERS: usize = 2;

static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();

/// The future result of work on the runtime.
pub struct Pending<T>(Receiver<T>);

/// Starts work on the runtime.
///
/// # Errors
/// Fails if the runtime can't be created.
pub fn begin<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> io::Result<Pending<T>> {
    let make = || {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(WORKERS).thread_name("fslab-s3").enable_all();
        builder.build().map_err(|error| error.to_string())
    };
    let runtime = RUNTIME.get_or_init(make).as_ref();
    let runtime =
        runtime.map_err(|why| io::Error::other(format!("can't start the async runtime: {why}")))?;
    let (sender, receiver) = sync_channel(1);
    runtime.spawn(async move {
        // The send fails if the receiver was dropped, which is not an error.
        sender.send(work.await).unwrap_or_default();
    });
    Ok(Pending(receiver))
}

impl<T> Pending<T> {
    /// Waits for the end of the work.
    ///
    /// # Errors
    /// Fails if the work panicked, or if the caller is a worker of the runtime, which would wait
    /// for itself.
    pub fn wait(self) -> io::Result<T> {
        if Handle::try_current().is_ok() {
            return Err(io::Error::other("a worker of the async runtime must not wait"));
        }
        self.0.recv().map_err(|error| io::Error::other(format!("a request panicked: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_that_waits_for_the_runtime_is_refused() {
        let nested = begin(async { begin(async { 1 }).and_then(Pending::wait).is_err() });
        assert!(nested.unwrap().wait().unwrap());
        assert_eq!(begin(async { 2 }).unwrap().wait().unwrap(), 2);
    }

    #[test]
    fn panic_of_a_request_is_an_error() {
        let work = async {
            if Handle::try_current().is_ok() {
                panic!("on purpose")
            }
        };
        assert!(begin(work).unwrap().wait().is_err());
    }
}
