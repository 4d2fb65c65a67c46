//! Turns SIGINT, SIGTERM and SIGHUP into a flag that long operations check, so that they end
//! normally and clean up.
//!
//! A handler that unmounts could run at any point of the program. With a flag, the operation stops
//! at a suitable point, returns an error, and cleans up by dropping its guards. Further signals
//! only set the flag again, so an impatient second ^C does not interrupt the clean-up.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The signals that end a program.
pub const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Runs `place`, which installs handlers of [`ENDING`] signals, while these signals are blocked for
/// this thread. Otherwise a signal during the installation would be lost. Pending signals are
/// handled afterwards.
///
/// # Errors
/// Errors of the kernel.
pub fn while_deferred<T>(place: impl FnOnce() -> T) -> io::Result<T> {
    let _deferred = Deferred::now()?;
    Ok(place())
}

/// A guard that blocks [`ENDING`] signals; it contains the previous mask.
struct Deferred(libc::sigset_t);

impl Deferred {
    fn now() -> io::Result<Self> {
        let (mut ending, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sigemptyset fills the first set before it is used, and pthread_sigmask fills the
        // other if it returns 0.
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

/// A flag that asks an operation to stop. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    /// The flag of the whole operation, if this flag is for a part of it.
    whole: Option<Arc<AtomicBool>>,
}

impl Interrupt {
    /// Makes a flag that is raised by [`ENDING`] signals, for the rest of the process's life.
    ///
    /// # Errors
    /// A handler can't be installed.
    pub fn on_signals() -> io::Result<Self> {
        let interrupt = Self::default();
        let register = |signal| signal_hook::flag::register(signal, Arc::clone(&interrupt.raised));
        while_deferred(|| ENDING.into_iter().try_for_each(|signal| register(signal).map(drop)))??;
        Ok(interrupt)
    }

    /// Makes a flag for a part of the operation, so that the part can also be stopped alone.
    /// Raising `self` stops the part, too. If `self` is itself a flag for a part, raising the flag
    /// of its whole operation does not stop the new part.
    #[must_use]
    pub fn part(&self) -> Self {
        Self { raised: Arc::default(), whole: Some(Arc::clone(&self.raised)) }
    }

    /// Asks the operation to stop, as a signal would.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    /// Whether the operation was asked to stop.
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
