//! What the numbers of a trace stand for here, though they are used again.
//!
//! A number is free before the operation that freed it has ended: another thread can get it anew,
//! and its operation can be recorded first. So a number may have two meanings for a moment. Who
//! uses it means the newest; who frees it means the oldest.

use std::collections::{HashMap, VecDeque};

#[derive(Debug)]
pub(super) struct Numbers<T>(HashMap<u64, VecDeque<T>>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Numbers<T> {
    /// Gives a number one more meaning.
    pub fn add(&mut self, number: u64, meaning: T) {
        self.0.entry(number).or_default().push_back(meaning);
    }

    /// What a number means to who uses it.
    pub fn newest(&self, number: u64) -> Option<&T> {
        self.0.get(&number)?.back()
    }

    /// The same, to be changed.
    pub fn newest_mut(&mut self, number: u64) -> Option<&mut T> {
        self.0.get_mut(&number)?.back_mut()
    }

    /// What a number means to who frees it.
    pub fn oldest_mut(&mut self, number: u64) -> Option<&mut T> {
        self.0.get_mut(&number)?.front_mut()
    }

    /// Takes away the oldest meaning.
    pub fn free(&mut self, number: u64) -> Option<T> {
        let meanings = self.0.get_mut(&number)?;
        let oldest = meanings.pop_front();
        if meanings.is_empty() {
            self.0.remove(&number);
        }
        oldest
    }

    /// Everything that is left.
    pub fn into_meanings(self) -> impl Iterator<Item = T> {
        self.0.into_values().flatten()
    }
}
