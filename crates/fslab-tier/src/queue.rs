//! One queue for all recalls: those that somebody waits for, bulk ones, and what is read ahead.
//!
//! Order: the most urgent class first; in it users take turns, so that one who asks for much holds
//! up nobody else; of one user's, what was asked first. What an archive says of positions is kept
//! with each entry, for orders that go by it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::engine::Recall;

/// How urgent a recall is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A program waits for it.
    Waiting,
    /// It was asked for in advance.
    Bulk,
    /// It may be wanted soon.
    Ahead,
}

impl Class {
    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Bulk => "bulk",
            Self::Ahead => "ahead",
        }
    }
}

/// Recalls that were asked for and not begun.
#[derive(Default)]
pub struct Queue {
    waiting: Mutex<Pending>,
    came: Condvar,
}

#[derive(Default)]
struct Pending {
    /// By class and user.
    recalls: BTreeMap<Class, Users>,
    is_closed: bool,
}

/// Users in the order of their turns, each with what it asked for, the first first.
type Users = VecDeque<(u32, VecDeque<Arc<Recall>>)>;

impl Queue {
    /// Adds a recall.
    pub fn push(&self, recall: Arc<Recall>) {
        self.waiting.lock().push(recall);
        self.came.notify_one();
    }

    /// Moves a recall to a more urgent class, unless it was begun.
    pub fn hurry(&self, recall: &Arc<Recall>, class: Class) {
        let mut pending = self.waiting.lock();
        if recall.class() > class && pending.take(recall) {
            recall.set_class(class);
            pending.push(Arc::clone(recall));
        }
    }

    /// Takes a recall out, if it was not begun.
    pub fn cancel(&self, recall: &Arc<Recall>) -> bool {
        self.waiting.lock().take(recall)
    }

    /// Waits for the next recall; nothing once the queue is closed.
    pub fn next(&self) -> Option<Arc<Recall>> {
        let mut pending = self.waiting.lock();
        loop {
            if pending.is_closed {
                return None;
            }
            if let Some(recall) = pending.next() {
                return Some(recall);
            }
            self.came.wait(&mut pending);
        }
    }

    /// The recalls that are waiting, in no order that counts.
    pub fn list(&self) -> Vec<Arc<Recall>> {
        let pending = self.waiting.lock();
        let users = pending.recalls.values().flatten();
        users.flat_map(|(_, recalls)| recalls.iter().cloned()).collect()
    }

    /// Whether all waiting has ended.
    pub fn is_closed(&self) -> bool {
        self.waiting.lock().is_closed
    }

    /// Ends all waiting, now and later.
    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.came.notify_all();
    }
}

impl Pending {
    fn push(&mut self, recall: Arc<Recall>) {
        let users = self.recalls.entry(recall.class()).or_default();
        let user = recall.user;
        match users.iter_mut().find(|(known, _)| *known == user) {
            Some((_, recalls)) => recalls.push_back(recall),
            None => users.push_back((user, VecDeque::from([recall]))),
        }
    }

    fn next(&mut self) -> Option<Arc<Recall>> {
        let users = self.recalls.values_mut().find(|users| !users.is_empty())?;
        let (user, mut recalls) = users.pop_front()?;
        let next = recalls.pop_front();
        if !recalls.is_empty() {
            users.push_back((user, recalls));
        }
        next
    }

    fn take(&mut self, recall: &Arc<Recall>) -> bool {
        let Some(users) = self.recalls.get_mut(&recall.class()) else { return false };
        let Some(place) = users.iter().position(|(user, _)| *user == recall.user) else {
            return false;
        };
        let recalls = &mut users[place].1;
        let Some(index) = recalls.iter().position(|known| Arc::ptr_eq(known, recall)) else {
            return false;
        };
        recalls.remove(index);
        if recalls.is_empty() {
            users.remove(place);
        }
        true
    }
}
