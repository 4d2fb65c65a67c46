//! SIGINT, SIGTERM and SIGHUP as a flag that long work looks at, so that guards are dropped.
//!
//! A handler that unmounts would run at any point of the programme; a flag lets the work stop
//! where it can, return an error and clean up by dropping its guards. Further signals only set
//! the flag again: an impatient second ^C does not stop the cleaning up.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The signals that end programs.
pub const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Puts handlers of [`ENDING`] signals in place while such signals wait for this thread: one that
/// came in the middle of that would be lost. Those that came are handled afterwards.
///
/// # Errors
/// What the kernel answers.
pub fn while_deferred<T>(place: impl FnOnce() -> T) -> io::Result<T> {
    let _deferred = Deferred::now()?;
    Ok(place())
}

/// Signals wait; which did before.
struct Deferred(libc::sigset_t);

impl Deferred {
    fn now() -> io::Result<Self> {
        let (mut ending, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sigemptyset fills the one set before it is used, pthread_sigmask the other where
        // it answers 0.
        unsafe {
            libc::sigemptyset(ending.as_mut_ptr());
            for signal in ENDING {
                libc::sigaddset(ending.as_mut_ptr(), signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, ending.as_ptr(), before.as_mut_ptr()) {
                0 => Ok(Self(before.assume_init())),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        // SAFETY: the kernel filled the set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

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
        let register = |signal| signal_hook::flag::register(signal, Arc::clone(&interrupt.raised));
        while_deferred(|| ENDING.into_iter().try_for_each(|signal| register(signal).map(drop)))??;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_comes_before_its_handler_is_handled() {
        let came = Arc::new(AtomicBool::new(false));
        let placed = while_deferred(|| {
            // SAFETY: a signal to this thread, which waits.
            assert_eq!(unsafe { libc::raise(SIGHUP) }, 0);
            signal_hook::flag::register(SIGHUP, Arc::clone(&came))
        });
        placed.unwrap().unwrap();
        assert!(came.load(Ordering::Relaxed));
    }
}
