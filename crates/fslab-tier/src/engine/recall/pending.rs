//! The index of the queue: sorted maps of the recalls that have not begun. Adding, choosing or
//! removing a recall does not search through all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use crate::engine::recall::lanes::Lanes;
use crate::engine::recall::order::{Class, Order, Place, Position};
use crate::engine::recall::waiting::Recall;
use crate::id::Id;

/// Maximum number of queued recalls of one user in one class. Surplus recalls that no program waits
/// for are cancelled; a program that needs one requests it again.
pub const OF_A_USER_MAX: usize = 1024;

/// Every turn whose number is a multiple of this goes to the recall that has waited longest.
const OLDEST_EVERY: u64 = 8;

/// Recalls that no program waits for, by their number in the order of arrival.
type Unwaited = BTreeMap<u64, Arc<Recall>>;

/// Recalls by key and number.
type Sorted = BTreeMap<(Position, u64), Arc<Recall>>;

/// Requested recalls that have not begun.
pub(super) struct Pending {
    pub lanes: Lanes,
    order: Arc<dyn Order>,
    classes: BTreeMap<Class, Users>,
    /// For each archive, queued recalls by the time of their request.
    by_age: BTreeMap<Id, BTreeMap<(u64, u64), Arc<Recall>>>,
    /// Postponed recalls, by the end of their postponement and their number.
    postponed: BTreeMap<(u64, u64), Arc<Recall>>,
    /// Postponed recalls that no program waits for, by user.
    unwaited: HashMap<u32, Unwaited>,
    /// The number of the recall that arrived last.
    arrived: u64,
    /// Number of recalls served so far.
    turns: u64,
    /// Position of the recall served last.
    pub last: Option<Position>,
    pub is_closed: bool,
}

/// The queued recalls of one class.
#[derive(Default)]
struct Users {
    by_user: HashMap<u32, OfUser>,
    /// For each archive, the users with recalls there, in the order of their turns.
    turns: BTreeMap<Id, BTreeSet<(u64, u32)>>,
    /// The highest turn number that was assigned so far.
    last_turn: u64,
}

/// The queued recalls of one user in one class.
#[derive(Default)]
struct OfUser {
    turn: u64,
    count: usize,
    by_archive: BTreeMap<Id, Sorted>,
    unwaited: Unwaited,
}

impl Pending {
    pub fn new(order: Arc<dyn Order>) -> Self {
        Self {
            lanes: Lanes::default(),
            order,
            classes: BTreeMap::new(),
            by_age: BTreeMap::new(),
            postponed: BTreeMap::new(),
            unwaited: HashMap::new(),
            arrived: 0,
            turns: 0,
            last: None,
            is_closed: false,
        }
    }

    /// Adds a recall to the queue.
    pub fn push(&mut self, recall: Arc<Recall>) {
        self.arrived += 1;
        let number = self.arrived;
        *recall.place.lock() = Some(Place::Queued(number));
        let aged = self.by_age.entry(recall.position.archive).or_default();
        aged.insert((recall.asked_ns, number), Arc::clone(&recall));
        let key = (self.order.key(recall.position), number);
        self.classes.entry(recall.class()).or_default().push(key, recall);
    }

    /// Postpones a recall until a time of the engine's clock. The recall must not be in the queue.
    pub fn postpone(&mut self, recall: &Arc<Recall>, until_ns: u64) {
        self.arrived += 1;
        let number = self.arrived;
        *recall.place.lock() = Some(Place::Postponed(until_ns, number));
        self.postponed.insert((until_ns, number), Arc::clone(recall));
        self.note_waiters(recall);
    }

    pub fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// Requeues the recalls that were postponed until `now_ns` or earlier.
    pub fn resume_postponed(&mut self, now_ns: u64) {
        while let Some((&(until_ns, _), recall)) = self.postponed.first_key_value()
            && until_ns <= now_ns
        {
            let recall = Arc::clone(recall);
            self.take(&recall);
            self.push(recall);
        }
    }

    /// Updates the index after a program began or stopped waiting for a recall.
    pub fn note_waiters(&mut self, recall: &Arc<Recall>) {
        let is_waited_for = recall.waiters() > 0;
        let (unwaited, number) = match *recall.place.lock() {
            None => return,
            Some(Place::Postponed(_, number)) => {
                (self.unwaited.entry(recall.user).or_default(), number)
            }
            Some(Place::Queued(number)) => {
                let users = self.classes.get_mut(&recall.class());
                let own = users.and_then(|users| users.by_user.get_mut(&recall.user));
                let Some(own) = own else { return };
                (&mut own.unwaited, number)
            }
        };
        if is_waited_for {
            unwaited.remove(&number);
        } else {
            unwaited.insert(number, Arc::clone(recall));
        }
        self.forget_if_empty(recall.user);
    }

    /// Removes a recall that has not begun; returns whether it was in the queue.
    pub fn take(&mut self, recall: &Arc<Recall>) -> bool {
        let place = recall.place.lock().take();
        match place {
            None => false,
            Some(Place::Postponed(until_ns, number)) => {
                self.postponed.remove(&(until_ns, number));
                if let Some(unwaited) = self.unwaited.get_mut(&recall.user) {
                    unwaited.remove(&number);
                }
                self.forget_if_empty(recall.user);
                true
            }
            Some(Place::Queued(number)) => {
                self.remove(recall, number);
                true
            }
        }
    }

    /// Removes a recall if it is postponed.
    pub fn take_postponed(&mut self, recall: &Arc<Recall>) -> bool {
        let is_postponed = matches!(*recall.place.lock(), Some(Place::Postponed(..)));
        is_postponed && self.take(recall)
    }

    /// Removes and returns the next recall, and records that a thread begins to serve it.
    pub fn next(&mut self) -> Option<Arc<Recall>> {
        let is_for_oldest = (self.turns + 1).is_multiple_of(OLDEST_EVERY);
        let next = if is_for_oldest { self.oldest()? } else { self.in_turn()? };
        self.take(&next);
        if !is_for_oldest && let Some(users) = self.classes.get_mut(&next.class()) {
            users.end_turn(next.user);
        }
        self.turns += 1;
        self.last = Some(next.position);
        self.lanes.enter(next.position.archive);
        Some(next)
    }

    /// Returns the queued and postponed recalls, in no particular order.
    pub fn list(&self) -> Vec<Arc<Recall>> {
        let queued = self.by_age.values().flat_map(BTreeMap::values);
        queued.chain(self.postponed.values()).cloned().collect()
    }

    /// Returns a user's surplus recalls that no program waits for: all postponed ones, and in each
    /// class the oldest queued ones beyond the limit [`OF_A_USER_MAX`].
    pub fn surplus(&self, user: u32) -> Vec<Arc<Recall>> {
        let own = self.classes.values().filter_map(|users| users.by_user.get(&user));
        let surplus = own.flat_map(|own| {
            let beyond = own.count.saturating_sub(OF_A_USER_MAX);
            own.unwaited.values().take(beyond)
        });
        let postponed = self.unwaited.get(&user).into_iter().flat_map(BTreeMap::values);
        surplus.chain(postponed).cloned().collect()
    }

    fn in_turn(&self) -> Option<Arc<Recall>> {
        let last = self.last.map(|position| self.order.key(position));
        let next = self.classes.values().find_map(|users| users.next(&self.lanes, last));
        next.cloned()
    }

    fn oldest(&self) -> Option<Arc<Recall>> {
        let open = self.by_age.iter().filter(|(archive, _)| self.lanes.may_enter(**archive));
        let oldest = open.filter_map(|(_, aged)| aged.first_key_value());
        oldest.min_by_key(|(age, _)| **age).map(|(_, recall)| Arc::clone(recall))
    }

    fn remove(&mut self, recall: &Recall, number: u64) {
        let archive = recall.position.archive;
        if let Some(aged) = self.by_age.get_mut(&archive) {
            aged.remove(&(recall.asked_ns, number));
            if aged.is_empty() {
                self.by_age.remove(&archive);
            }
        }
        if let Some(users) = self.classes.get_mut(&recall.class()) {
            users.remove(recall, (self.order.key(recall.position), number));
        }
    }

    fn forget_if_empty(&mut self, user: u32) {
        if self.unwaited.get(&user).is_some_and(BTreeMap::is_empty) {
            self.unwaited.remove(&user);
        }
    }
}

impl Users {
    fn push(&mut self, key: (Position, u64), recall: Arc<Recall>) {
        let (user, archive) = (recall.user, recall.position.archive);
        let last_turn = &mut self.last_turn;
        let own = self.by_user.entry(user).or_insert_with(|| {
            *last_turn += 1;
            OfUser { turn: *last_turn, ..OfUser::default() }
        });
        own.count += 1;
        if recall.waiters() == 0 {
            own.unwaited.insert(key.1, Arc::clone(&recall));
        }
        own.by_archive.entry(archive).or_default().insert(key, recall);
        self.turns.entry(archive).or_default().insert((own.turn, user));
    }

    fn remove(&mut self, recall: &Recall, key: (Position, u64)) {
        let (user, archive) = (recall.user, recall.position.archive);
        let Some(own) = self.by_user.get_mut(&user) else { return };
        own.unwaited.remove(&key.1);
        let Some(sorted) = own.by_archive.get_mut(&archive) else { return };
        if sorted.remove(&key).is_none() {
            return;
        }
        own.count -= 1;
        if sorted.is_empty() {
            own.by_archive.remove(&archive);
            let turn = (own.turn, user);
            if own.count == 0 {
                self.by_user.remove(&user);
            }
            self.end_place(archive, turn);
        }
    }

    fn end_place(&mut self, archive: Id, turn: (u64, u32)) {
        let Some(turns) = self.turns.get_mut(&archive) else { return };
        turns.remove(&turn);
        if turns.is_empty() {
            self.turns.remove(&archive);
        }
    }

    /// Returns the next recall of the user whose turn it is. Only archives that a free thread may
    /// serve are considered.
    fn next(&self, lanes: &Lanes, last: Option<Position>) -> Option<&Arc<Recall>> {
        let may_enter = |archive: &Id| lanes.may_enter(*archive);
        let open = self.turns.iter().filter(|(archive, _)| may_enter(archive));
        let (_, user) = open.filter_map(|(_, turns)| turns.first()).min()?;
        let own = self.by_user.get(user)?;
        let open = || own.by_archive.iter().filter(|(archive, _)| may_enter(archive));
        let above = |sorted: &'_ Sorted| -> Option<(Position, u64)> {
            let range = (Excluded((last?, u64::MAX)), Unbounded);
            sorted.range(range).next().map(|(key, _)| *key)
        };
        let ahead = open().filter_map(|(archive, sorted)| Some((above(sorted)?, archive))).min();
        let lowest =
            || open().filter_map(|(archive, sorted)| Some((*sorted.keys().next()?, archive)));
        let (key, archive) = ahead.or_else(|| lowest().min())?;
        own.by_archive.get(archive)?.get(&key)
    }

    /// Moves a user to the end of the order of turns.
    fn end_turn(&mut self, user: u32) {
        let Some(own) = self.by_user.get_mut(&user) else { return };
        self.last_turn += 1;
        let before = std::mem::replace(&mut own.turn, self.last_turn);
        for archive in own.by_archive.keys() {
            let turns = self.turns.entry(*archive).or_default();
            turns.remove(&(before, user));
            turns.insert((own.turn, user));
        }
    }
}

#[cfg(test)]
mod tests;
