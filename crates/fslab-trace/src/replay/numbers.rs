//! Maps the inode numbers and handles of a trace to those of the target. A trace may reuse a
//! number.
//!
//! Operations are recorded when they end. So an operation that reuses a number may be recorded
//! before the operation that freed it, and the number has two meanings for a while. An operation
//! that uses the number refers to the newest meaning; an operation that frees it refers to the
//! oldest.

use std::collections::{HashMap, VecDeque};

#[derive(Debug)]
pub(super) struct Numbers<T>(HashMap<u64, VecDeque<T>>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Numbers<T> {
    /// Adds a meaning to a number.
    pub fn add(&mut self, number: u64, meaning: T) {
        self.0.entry(number).or_default().push_back(meaning);
    }

    /// Returns the newest meaning, for an operation that uses the number.
    pub fn newest(&self, number: u64) -> Option<&T> {
        self.0.get(&number)?.back()
    }

    /// Returns the newest meaning as a mutable reference.
    pub fn newest_mut(&mut self, number: u64) -> Option<&mut T> {
        self.0.get_mut(&number)?.back_mut()
    }

    /// Returns the oldest meaning, for an operation that frees the number.
    pub fn oldest_mut(&mut self, number: u64) -> Option<&mut T> {
        self.0.get_mut(&number)?.front_mut()
    }

    /// Removes the oldest meaning.
    pub fn free(&mut self, number: u64) -> Option<T> {
        let meanings = self.0.get_mut(&number)?;
        let oldest = meanings.pop_front();
        if meanings.is_empty() {
            self.0.remove(&number);
        }
        oldest
    }

    /// Returns all remaining meanings.
    pub fn into_meanings(self) -> impl Iterator<Item = T> {
        self.0.into_values().flatten()
    }
}
