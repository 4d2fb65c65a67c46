//! One thread's ways to the next request: one on which it looks, one on which it waits.
//!
//! A descriptor of /dev/fuse either waits or answers at once; polling one that answers at once
//! would cost two system calls a request more and wake every sleeping reader for each request,
//! where a waiting read wakes one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fslab_vfs::Errno;

use crate::channel::{Channel, Reading, Received};
use crate::patience::Patience;

/// How one thread reads.
#[derive(Debug)]
pub(crate) struct Reader {
    waiting: Arc<dyn Channel>,
    /// `None` where the thread never looks.
    looking: Option<Arc<dyn Channel>>,
    patience: Patience,
}

/// A request in the reader's buffer.
pub(crate) struct Next<'a> {
    pub length: usize,
    /// The way it came, which its reply must go.
    pub channel: &'a Arc<dyn Channel>,
    /// How long it let itself be waited for.
    pub waited: Duration,
    pub arrived: Instant,
}

#[cfg(test)]
impl<'a> Next<'a> {
    /// One that comes now.
    pub fn arriving(channel: &'a Arc<dyn Channel>) -> Self {
        Self { length: 0, channel, waited: Duration::ZERO, arrived: Instant::now() }
    }
}

impl Reader {
    /// A reader of a connection that stays awake for at most `poll` between requests. Where there
    /// are no more descriptors, it shares the connection's own: slower, but no request waits.
    pub fn new(connection: &Arc<dyn Channel>, poll: Duration) -> Self {
        Self::with_own_ways(&**connection, poll).unwrap_or_else(|error| {
            tracing::info!(%error, "a thread shares the descriptor of its mount");
            Self::sharing(connection)
        })
    }

    /// A reader on the connection's own descriptor, which takes no other and never looks.
    pub fn sharing(connection: &Arc<dyn Channel>) -> Self {
        let patience = Patience::new(Duration::ZERO);
        Self { waiting: Arc::clone(connection), looking: None, patience }
    }

    fn with_own_ways(connection: &dyn Channel, poll: Duration) -> Result<Self, Errno> {
        let patience = Patience::new(poll);
        let looks = !patience.now().is_zero();
        let looking = looks.then(|| connection.another(Reading::Looks)).transpose()?;
        Ok(Self { waiting: connection.another(Reading::Waits)?, looking, patience })
    }

    /// Waits for the next request; `None` when the mount is gone.
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Next<'_>>, Errno> {
        let asked = Instant::now();
        let (received, looked) = match self.look(asked, buffer)? {
            Received::Nothing => (self.waiting.receive(buffer)?, None),
            received => (received, self.looking.as_ref()),
        };
        let Received::Request(length) = received else { return Ok(None) };
        let arrived = Instant::now();
        let waited = arrived - asked;
        self.patience.learn(waited);
        Ok(Some(Next { length, channel: looked.unwrap_or(&self.waiting), waited, arrived }))
    }

    /// Looks until the patience is over, giving the processor to anybody else who can use it.
    fn look(&self, asked: Instant, buffer: &mut [u8]) -> Result<Received, Errno> {
        let patience = self.patience.now();
        let Some(looking) = self.looking.as_ref().filter(|_| !patience.is_zero()) else {
            return Ok(Received::Nothing);
        };
        loop {
            match looking.receive(buffer)? {
                Received::Nothing if asked.elapsed() < patience => rustix::thread::sched_yield(),
                received => return Ok(received),
            }
        }
    }
}
