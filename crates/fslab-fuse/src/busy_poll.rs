//! Busy polling: a thread that has served a request polls for the next one for a while before it
//! blocks.
//!
//! Waking a thread on an idle processor can cost more than serving a request. While requests follow
//! each other quickly, a reader thread polls for the next one, and after each attempt yields its
//! processor to other runnable threads. Otherwise it blocks at once.
//!
//! A read from /dev/fuse either blocks or returns at once, depending on the descriptor's mode. So a
//! reader has one descriptor of each mode. Waiting for a non-blocking descriptor with poll(2) would
//! cost two more system calls for each request. It would also wake every sleeping reader, whereas a
//! blocking read wakes only one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fslab_vfs::Errno;

use crate::thread_pool::ReadRequest;
use crate::transport::{ReadMode, Received, Transport};

/// A thread's source of requests.
#[derive(Debug)]
pub(crate) struct Reader {
    blocking: Arc<dyn Transport>,
    /// `None` if the thread never polls.
    polling: Option<Arc<dyn Transport>>,
    poll_time: PollTime,
}

/// A request in the reader's buffer.
pub(crate) struct NextRequest<'a> {
    /// The descriptor on which the request arrived. The reply must be sent on the same descriptor.
    pub transport: &'a Arc<dyn Transport>,
    pub read: ReadRequest,
}

#[cfg(test)]
impl<'a> NextRequest<'a> {
    /// A request that arrives now.
    pub fn arriving(transport: &'a Arc<dyn Transport>) -> Self {
        let read = ReadRequest { length: 0, waited: Duration::ZERO, arrived: Instant::now() };
        Self { transport, read }
    }
}

impl Reader {
    /// Makes a reader that polls for at most `poll` before it blocks. If its descriptors can't be
    /// opened, the reader shares the descriptor of the connection, which is slower.
    pub fn new(connection: &Arc<dyn Transport>, poll: Duration) -> Self {
        Self::with_own_descriptors(&**connection, poll).unwrap_or_else(|error| {
            tracing::info!(
                %error,
                "can't open descriptors for a thread; it shares the mount's descriptor, which is \
                 slower"
            );
            Self::sharing(connection)
        })
    }

    /// Makes a reader that uses only the connection's own descriptor and never polls.
    pub fn sharing(connection: &Arc<dyn Transport>) -> Self {
        let poll_time = PollTime::new(Duration::ZERO);
        Self { blocking: Arc::clone(connection), polling: None, poll_time }
    }

    fn with_own_descriptors(connection: &dyn Transport, poll: Duration) -> Result<Self, Errno> {
        let poll_time = PollTime::new(poll);
        let polls = !poll_time.now().is_zero();
        let polling = polls.then(|| connection.another(ReadMode::NonBlocking)).transpose()?;
        Ok(Self { blocking: connection.another(ReadMode::Blocking)?, polling, poll_time })
    }

    /// Waits for the next request; `None` after the unmount.
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<Option<NextRequest<'_>>, Errno> {
        let asked = Instant::now();
        let (received, polled) = match self.poll(asked, buffer)? {
            Received::Nothing => (self.blocking.receive(buffer)?, None),
            received => (received, self.polling.as_ref()),
        };
        let Received::Request(length) = received else { return Ok(None) };
        let arrived = Instant::now();
        let waited = arrived - asked;
        self.poll_time.learn(waited);
        let read = ReadRequest { length, waited, arrived };
        Ok(Some(NextRequest { transport: polled.unwrap_or(&self.blocking), read }))
    }

    /// Polls for the poll time, yielding the processor after each attempt.
    fn poll(&self, asked: Instant, buffer: &mut [u8]) -> Result<Received, Errno> {
        let poll_time = self.poll_time.now();
        let Some(polling) = self.polling.as_ref().filter(|_| !poll_time.is_zero()) else {
            return Ok(Received::Nothing);
        };
        loop {
            match polling.receive(buffer)? {
                Received::Nothing if asked.elapsed() < poll_time => rustix::thread::sched_yield(),
                received => return Ok(received),
            }
        }
    }
}

/// Polling stops after this number of consecutive requests that arrived too late for it.
const IN_VAIN_MAX: u32 = 8;

/// Adapts polling to the time between requests.
#[derive(Debug)]
pub(crate) struct PollTime {
    /// The maximum poll time; zero disables polling.
    most: Duration,
    in_vain: u32,
}

impl PollTime {
    /// Starts with the poll time `most`. On a single processor, polling is disabled, because the
    /// polling thread would keep the caller from running.
    pub fn new(most: Duration) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { most: if processors > 1 { most } else { Duration::ZERO }, in_vain: 0 }
    }

    /// The current poll time; zero while polling is stopped.
    pub fn now(&self) -> Duration {
        if self.in_vain < IN_VAIN_MAX { self.most } else { Duration::ZERO }
    }

    /// Records how long the last request took to arrive.
    pub fn learn(&mut self, waited: Duration) {
        // If the thread slept, `waited` includes the time of waking it, which polling would have
        // avoided. So twice the poll time is allowed.
        if waited <= self.most * 2 {
            self.in_vain = 0;
        } else {
            self.in_vain = self.in_vain.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_ends_with_rare_requests_and_returns_with_frequent_ones() {
        let most = Duration::from_micros(50);
        let mut poll_time = PollTime { most, in_vain: 0 };
        for _ in 0..IN_VAIN_MAX {
            assert_eq!(poll_time.now(), most);
            poll_time.learn(Duration::from_millis(10));
        }
        assert_eq!(poll_time.now(), Duration::ZERO);
        poll_time.learn(Duration::from_micros(80));
        assert_eq!(poll_time.now(), most);
    }
}
