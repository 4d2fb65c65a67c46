//! How long a reader looks for the next request before it goes to sleep.
//!
//! Waking a sleeping thread on an idle processor can cost more than serving a request. Where
//! requests follow each other quickly, the reader therefore stays awake a little, giving its
//! processor to anybody else who can use it. Where they do not, it sleeps at once.

use std::time::Duration;

/// Looks in vain after which looking is no longer worth it.
const IN_VAIN_MAX: u32 = 8;

/// What a reader has learnt about the time between requests.
#[derive(Debug)]
pub(crate) struct Patience {
    /// The longest look; zero to sleep at once, always.
    most: Duration,
    in_vain: u32,
}

impl Patience {
    /// Patience of at most so long. With one processor, looking would keep the caller from asking.
    pub fn new(most: Duration) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { most: if processors > 1 { most } else { Duration::ZERO }, in_vain: 0 }
    }

    /// How long to look now.
    pub fn now(&self) -> Duration {
        if self.in_vain < IN_VAIN_MAX { self.most } else { Duration::ZERO }
    }

    /// Takes note of how long the last request let itself be waited for.
    pub fn learn(&mut self, waited: Duration) {
        // A sleeper learns of a request late, by about the time that is to be saved.
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
    fn patience_ends_with_rare_requests_and_returns_with_frequent_ones() {
        let most = Duration::from_micros(50);
        let mut patience = Patience { most, in_vain: 0 };
        for _ in 0..IN_VAIN_MAX {
            assert_eq!(patience.now(), most);
            patience.learn(Duration::from_millis(10));
        }
        assert_eq!(patience.now(), Duration::ZERO);
        patience.learn(Duration::from_micros(80));
        assert_eq!(patience.now(), most);
    }
}
