//! The log of a [`super::CrashFs`], and the possible states after a crash.

use std::fmt::Write as _;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::Ino;
use fslab_vfs::MemFs;
use fslab_vfs::Result;

use super::dependencies;
use super::effect::{Change, Effect, Order, SECTOR_BYTES, Scope};
use super::image::{Image, Node};
use super::survivors::{Candidate, Plan, Survivors, choices};

/// All events, in order.
#[derive(Clone, Debug)]
pub struct Log {
    pub(super) root: Node,
    pub(super) events: Vec<Event>,
    pub(super) effects: Vec<Effect>,
    /// Whether effects on modification times are recorded.
    pub(super) follows_times: bool,
}

/// A change, a sync or a mark.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// A description for failure reports.
    pub text: String,
    pub effects: Range<usize>,
    /// The inodes that the event creates. An inode without a name has no effect.
    pub births: Vec<(Ino, Arc<Node>)>,
    pub sync: Option<Scope>,
}

/// A possible state after a crash.
#[derive(Debug)]
pub struct State {
    /// Number of events that had returned before the crash.
    pub point: usize,
    /// The unsynced effects that survived.
    pub survivors: Survivors,
    /// A hash of the durable and the surviving effects. It is the same for all equal states of one
    /// log.
    pub fingerprint: u64,
    pub(super) image: Image,
    pub(super) follows_times: bool,
}

impl State {
    /// Opens the file system as it is after the crash.
    ///
    /// # Errors
    /// Only if the log is invalid.
    pub fn open(&self) -> Result<MemFs> {
        let memory = MemFs::default();
        self.image.restore(&memory)?;
        Ok(memory)
    }
}

impl Log {
    /// Number of points at which a crash is simulated: before the first event, and after each
    /// event.
    #[must_use]
    pub fn points(&self) -> usize {
        self.events.len() + 1
    }

    /// Describes the last events before a point, at most 40.
    #[must_use]
    pub fn describe(&self, point: usize) -> String {
        const LAST: usize = 40;
        let mut text = String::new();
        for (number, event) in
            self.events.iter().enumerate().take(point).skip(point.saturating_sub(LAST))
        {
            // Writing to a string can't fail.
            writeln!(text, "  {:4}: {}", number + 1, event.text).ok();
        }
        text
    }

    /// Calls `visit` with the possible states at each point that `wanted` accepts. Returns the
    /// number of states.
    ///
    /// # Errors
    /// The first error of `visit`, with the point, the surviving effects, and the events before.
    pub fn for_each_state(
        &self,
        order: Order,
        plan: &Plan,
        wanted: &dyn Fn(usize) -> bool,
        visit: &mut dyn FnMut(&State) -> std::result::Result<(), String>,
    ) -> std::result::Result<usize, String> {
        let mut disk = Disk::new(self, order);
        let mut count = 0;
        for point in 0..self.points() {
            if let Some(event) = point.checked_sub(1).and_then(|last| self.events.get(last)) {
                disk.advance(event);
            }
            if !wanted(point) {
                continue;
            }
            for state in disk.states(plan, point) {
                count += 1;
                visit(&state).map_err(|problem| self.report(&state, &problem))?;
            }
        }
        Ok(count)
    }

    fn report(&self, state: &State, problem: &str) -> String {
        format!(
            "{problem}\nafter a crash after event {} of {}, where {}; events before:\n{}",
            state.point,
            self.events.len(),
            state.survivors,
            self.describe(state.point)
        )
    }
}

/// The log, replayed up to a point: the durable and the pending effects.
struct Disk<'a> {
    log: &'a Log,
    order: Order,
    needs: Vec<Vec<usize>>,
    image: Image,
    pending: Vec<usize>,
    /// Ranges that durable effects have emptied: the number of the effect, the file and the range.
    /// An entry is kept as long as an older effect is pending.
    emptied: Vec<(usize, Ino, Range<u64>)>,
    fingerprint: u64,
}

impl<'a> Disk<'a> {
    fn new(log: &'a Log, order: Order) -> Self {
        Self {
            log,
            order,
            needs: dependencies::of(&log.effects, order),
            image: Image::new(log.root.clone()),
            pending: Vec::new(),
            emptied: Vec::new(),
            fingerprint: 0,
        }
    }

    fn advance(&mut self, event: &Event) {
        for (ino, node) in &event.births {
            self.image.add(*ino, Arc::clone(node));
        }
        self.pending.extend(event.effects.clone());
        if let Some(scope) = event.sync {
            self.sync(scope);
        }
    }

    /// Makes durable all effects that a sync covers, and all effects that these need.
    fn sync(&mut self, scope: Scope) {
        let mut synced = vec![false; self.pending.len()];
        for place in (0..self.pending.len()).rev() {
            let number = self.pending[place];
            if synced[place] || self.log.effects[number].change.is_synced_by(scope, self.order) {
                synced[place] = true;
                for needed in self.places_of(&self.needs[number]) {
                    synced[needed] = true;
                }
            }
        }
        self.fingerprint = self.fingerprint.wrapping_add(self.sum(&synced));
        let mut image = self.image.clone();
        let (mut emptied, is_synced) = (Vec::new(), |place: &usize| synced[*place]);
        for number in (0..self.pending.len()).filter(is_synced).map(|place| self.pending[place]) {
            self.apply(&mut image, number);
            let range = self.log.effects[number].change.emptied();
            emptied.extend(range.map(|(ino, range)| (number, ino, range)));
        }
        self.image = image;
        self.emptied.extend(emptied);
        let mut synced = synced.iter();
        self.pending.retain(|_| synced.next() == Some(&false));
        // Emptied ranges matter only while an older effect is pending.
        let oldest = self.pending.first().copied().unwrap_or(usize::MAX);
        self.emptied.retain(|(number, ..)| *number > oldest);
    }

    /// Applies a pending effect to a copy of the durable image. If a later durable effect emptied
    /// the range, this effect must not bring back older data.
    fn apply(&self, image: &mut Image, number: usize) {
        let change = &self.log.effects[number].change;
        image.apply(change);
        if let Change::Sector { ino, number: sector, .. } = change {
            let bytes = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            let later = self.emptied.iter().filter(|(when, of, _)| *when > number && of == ino);
            for (.., range) in later {
                image.clear(*ino, range.start.max(bytes.start)..range.end.min(bytes.end));
            }
        }
    }

    /// The positions, among the pending effects, of the effects with these numbers. Effects that
    /// are not pending are already durable and are left out.
    fn places_of(&self, numbers: &[usize]) -> Vec<usize> {
        numbers.iter().filter_map(|number| self.pending.binary_search(number).ok()).collect()
    }

    /// The sum of the hashes of the chosen effects' numbers.
    fn sum(&self, chosen: &[bool]) -> u64 {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let chosen = self.pending.iter().zip(chosen).filter(|(_, chosen)| **chosen);
        chosen.fold(0, |sum: u64, (number, _)| sum.wrapping_add(hasher.hash_one(number)))
    }

    fn states(&self, plan: &Plan, point: usize) -> Vec<State> {
        let class = |number: &usize| Candidate { class: self.log.effects[*number].change.class() };
        let candidates: Vec<_> = self.pending.iter().map(class).collect();
        let requires = |place: usize| self.places_of(&self.needs[self.pending[place]]);
        let choices = choices(plan, point, &candidates, &requires);
        choices.into_iter().map(|(survivors, kept)| self.state(point, survivors, &kept)).collect()
    }

    fn state(&self, point: usize, survivors: Survivors, kept: &[bool]) -> State {
        let mut image = self.image.clone();
        for (number, _) in self.pending.iter().zip(kept).filter(|(_, kept)| **kept) {
            self.apply(&mut image, *number);
        }
        let fingerprint = self.fingerprint.wrapping_add(self.sum(kept));
        State { point, survivors, fingerprint, image, follows_times: self.log.follows_times }
    }
}
