//! SIGINT, SIGTERM and SIGHUP as a flag that long work looks at, so that guards are dropped.
//!
//! A handler that unmounts would run at any point of the programme; a flag lets the work stop
//! where it can, return an error and clean up by dropping its guards. Further signals only set
//! the flag again: an impatient second ^C does not stop the cleaning up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether the work was asked to stop. Clones share the answer.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    /// Of the work that this is a part of.
    whole: Option<Arc<AtomicBool>>,
}

impl Interrupt {
    /// Takes the signals over for the rest of the process's life.
    ///
    /// # Errors
    /// Where a handler can't be installed.
    pub fn on_signals() -> io::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.raised))?;
        }
        Ok(interrupt)
    }

    /// For a part of the work, which can also be asked to stop alone. A part of a part stops with
    /// that part and by itself only.
    #[must_use]
    pub fn part(&self) -> Self {
        Self { raised: Arc::default(), whole: Some(Arc::clone(&self.raised)) }
    }

    /// Asks the work to stop, as a signal would.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    /// Whether the work was asked to stop.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        let is_raised = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is_raised(&self.raised) || self.whole.as_deref().is_some_and(is_raised)
    }
}
