//! Deferred requests, which wait without occupying a thread.
//!
//! A request may carry an offer of its sender to perform it again later (a [`Deferral`]). A file
//! system that would have to wait accepts the offer, keeps a [`Waker`], and fails with
//! [`Error::Deferred`](crate::Error::Deferred). The sender then performs the request again, from
//! its beginning. It does so after a call of [`Waker::wake`], when the caller is signalled, or when
//! a given time has passed.
//!
//! A file system may accept an offer only before it does anything that it must not do twice. Offers
//! are made only to file systems whose [`can_defer`](crate::FileSystem::can_defer) returns `true`.
//! Layers do not forward this method by default. So the file systems below a layer get no offers
//! unless the layer itself can be called twice.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// The data that a file system keeps with a deferred request until the request is performed again.
pub type Memory = Box<dyn Any + Send>;

/// A sender of requests that can perform deferred requests again.
pub trait Deferrer: Send + Sync {
    /// Prepares to defer a request. Returns `false` if too many requests are deferred.
    fn accept(&self, number: u64) -> bool;

    /// Keeps `memory` until the request is performed again. That happens when the request is woken,
    /// and after `at_most` at the latest.
    fn keep(&self, number: u64, memory: Memory, at_most: Option<Duration>);

    /// Performs the request again soon. Does nothing if the request no longer exists. May be called
    /// at any time after `accept`, even before `keep`, and more than once.
    fn wake(&self, number: u64);
}

/// An offer to perform a request again later. The default is no offer.
#[derive(Clone, Default)]
pub struct Deferral(Option<Offer>);

#[derive(Clone)]
struct Offer {
    waker: Waker,
    /// The data that the file system kept, if the request is performed again.
    memory: Option<Arc<Mutex<Option<Memory>>>>,
}

/// A handle to wake a deferred request.
#[derive(Clone)]
pub struct Waker {
    deferrer: Arc<dyn Deferrer>,
    number: u64,
}

impl Deferral {
    /// Makes an offer for the request with this number.
    #[must_use]
    pub fn new(deferrer: Arc<dyn Deferrer>, number: u64) -> Self {
        Self(Some(Offer { waker: Waker { deferrer, number }, memory: None }))
    }

    /// Makes an offer for a request that is being performed again, with the data that the file
    /// system kept.
    #[must_use]
    pub fn resumed(deferrer: Arc<dyn Deferrer>, number: u64, memory: Option<Memory>) -> Self {
        let memory = Some(Arc::new(Mutex::new(memory)));
        Self(Some(Offer { waker: Waker { deferrer, number }, memory }))
    }

    /// Whether this request was deferred before and is being performed again.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.0.as_ref().is_some_and(|offer| offer.memory.is_some())
    }

    /// Returns the data that the file system kept when it deferred the request. Returns `None` if
    /// it was already returned, or if it has another type.
    #[must_use]
    pub fn take<T: Any>(&self) -> Option<Box<T>> {
        self.0.as_ref()?.memory.as_ref()?.lock().take()?.downcast().ok()
    }

    /// Accepts the offer. Returns `None` if there is no offer, or if too many requests are
    /// deferred. Afterwards, the caller must call [`Self::defer`] or complete the request.
    #[must_use]
    pub fn accept(&self) -> Option<Waker> {
        let waker = &self.0.as_ref()?.waker;
        waker.deferrer.accept(waker.number).then(|| waker.clone())
    }

    /// Defers the request after [`Self::accept`]; the caller then fails with
    /// [`Error::Deferred`](crate::Error::Deferred). The request is performed again when it is
    /// woken, and after `at_most` at the latest.
    pub fn defer(&self, memory: Memory, at_most: Option<Duration>) {
        if let Some(Offer { waker, .. }) = &self.0 {
            waker.deferrer.keep(waker.number, memory, at_most);
        }
    }
}

impl Waker {
    /// Wakes the request.
    pub fn wake(&self) {
        self.deferrer.wake(self.number);
    }
}

impl fmt::Debug for Deferral {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0.as_ref().map(|offer| offer.waker.number);
        formatter.debug_tuple("Deferral").field(&number).finish()
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Waker").field(&self.number).finish()
    }
}
