//! Tests of the queue's index: it must behave like a simple model that searches all recalls.

use std::collections::VecDeque;

use fslab_vfs::split_mix;
use fslab_vfs_testing::environment::seed;

use super::*;
use crate::engine::recall::order::{Fifo, Sweep};
use crate::engine::recall::queue::Queue;
use crate::engine::recall::waiter::Waiter;
use crate::engine::recall::waiting::recall_at;

/// Users in the order of their turns, each with its recalls in the order of the requests.
type Users = VecDeque<(u32, VecDeque<Arc<Recall>>)>;

/// A model of the queue that consists of lists.
struct Model {
    order: Arc<dyn Order>,
    recalls: BTreeMap<Class, Users>,
    postponed: Vec<(u64, Arc<Recall>)>,
    turns: u64,
    last: Option<Position>,
}

impl Model {
    fn push(&mut self, recall: Arc<Recall>) {
        let users = self.recalls.entry(recall.class()).or_default();
        let user = recall.user;
        match users.iter_mut().find(|(known, _)| *known == user) {
            Some((_, recalls)) => recalls.push_back(recall),
            None => users.push_back((user, VecDeque::from([recall]))),
        }
    }

    fn next(&mut self, lanes: &Lanes) -> Option<Arc<Recall>> {
        let may_go = |recall: &Arc<Recall>| lanes.may_enter(recall.position.archive);
        let next = if (self.turns + 1).is_multiple_of(OLDEST_EVERY) {
            let all = self.recalls.values().flatten().flat_map(|(_, recalls)| recalls);
            let oldest = all.filter(|one| may_go(one)).min_by_key(|recall| recall.asked_ns)?;
            let oldest = Arc::clone(oldest);
            self.take(&oldest);
            oldest
        } else {
            let turn = |users: &Users| users.iter().position(|(_, of)| of.iter().any(may_go));
            let mut classes = self.recalls.values_mut();
            let (turn, users) = classes.find_map(|users| Some((turn(users)?, users)))?;
            let (user, mut recalls) = users.remove(turn)?;
            let last = self.last.map(|last| self.order.key(last));
            let place = |at: &usize| {
                let key = self.order.key(recalls[*at].position);
                (Some(key) <= last, key, *at)
            };
            let open = (0..recalls.len()).filter(|at| may_go(&recalls[*at]));
            let index = open.min_by_key(place)?;
            let next = recalls.remove(index)?;
            if !recalls.is_empty() {
                users.push_back((user, recalls));
            }
            next
        };
        self.turns += 1;
        self.last = Some(next.position);
        Some(next)
    }

    fn resume(&mut self, now_ns: u64) {
        self.postponed.sort_by_key(|(until_ns, _)| *until_ns);
        let back: Vec<_> =
            self.postponed.extract_if(.., |(until_ns, _)| *until_ns <= now_ns).collect();
        back.into_iter().for_each(|(_, recall)| self.push(recall));
    }

    fn take(&mut self, recall: &Arc<Recall>) -> bool {
        let index = self.postponed.iter().position(|(_, known)| Arc::ptr_eq(known, recall));
        if let Some(index) = index {
            self.postponed.remove(index);
            return true;
        }
        let Some(users) = self.recalls.get_mut(&recall.class()) else { return false };
        for place in 0..users.len() {
            let recalls = &mut users[place].1;
            if let Some(index) = recalls.iter().position(|known| Arc::ptr_eq(known, recall)) {
                recalls.remove(index);
                if recalls.is_empty() {
                    users.remove(place);
                }
                return true;
            }
        }
        false
    }

    fn surplus(&self, user: u32) -> BTreeSet<u64> {
        let lists = self.recalls.values().flatten().filter(|(known, _)| *known == user);
        let surplus = lists.flat_map(|(_, recalls)| {
            let unwaited = recalls.iter().filter(|recall| recall.waiters() == 0);
            unwaited.take(recalls.len().saturating_sub(OF_A_USER_MAX))
        });
        let postponed = self.postponed.iter().map(|(_, recall)| recall);
        let postponed = postponed.filter(|recall| recall.user == user && recall.waiters() == 0);
        surplus.chain(postponed).map(|recall| recall.asked_ns).collect()
    }
}

/// A random load on the index and on the model.
struct Load {
    seed: u64,
    index: Pending,
    model: Model,
    /// All recalls in the queue, each with its waiting programs.
    queued: Vec<(Arc<Recall>, Vec<Waiter>)>,
    begun: Vec<(Arc<Recall>, Vec<Waiter>)>,
    made: u64,
    now_ns: u64,
}

impl Load {
    fn new(seed: u64) -> Self {
        let mut load = Self {
            seed,
            index: Pending::new(Arc::new(Fifo)),
            model: Model {
                order: Arc::new(Fifo),
                recalls: BTreeMap::new(),
                postponed: Vec::new(),
                turns: 0,
                last: None,
            },
            queued: Vec::new(),
            begun: Vec::new(),
            made: 0,
            now_ns: 0,
        };
        if load.draw(2) == 0 {
            load.index.order = Arc::new(Sweep);
            load.model.order = Arc::new(Sweep);
        }
        load.index.lanes.set_threads(4);
        (0..load.draw(4)).for_each(|archive| load.index.lanes.reserve(Id([archive as u8; 16])));
        load
    }

    fn draw(&mut self, count: u64) -> u64 {
        self.seed = self.seed.wrapping_add(fslab_vfs::SPLIT_MIX_STEP);
        split_mix(self.seed) % count
    }

    fn class(&mut self) -> Class {
        [Class::Waiting, Class::Bulk, Class::Ahead][self.draw(3) as usize]
    }

    fn push(&mut self) {
        let archive = Id([self.draw(4) as u8; 16]);
        let (medium, place) = (self.draw(3), self.draw(50));
        let position = Position { archive, medium, place };
        let (user, class) = (self.draw(4) as u32, self.class());
        self.made += 1;
        let recall = recall_at(position, user, class, self.made);
        self.index.push(Arc::clone(&recall));
        self.model.push(Arc::clone(&recall));
        self.queued.push((recall, Vec::new()));
    }

    fn next(&mut self) {
        let expected = self.model.next(&self.index.lanes);
        let found = self.index.next();
        assert_eq!(
            found.as_ref().map(|recall| recall.asked_ns),
            expected.map(|recall| recall.asked_ns)
        );
        let Some(found) = found else { return };
        let index = self.queued.iter().position(|(one, _)| Arc::ptr_eq(one, &found)).unwrap();
        self.begun.push(self.queued.swap_remove(index));
    }

    fn serve(&mut self) {
        if self.begun.is_empty() {
            return;
        }
        let index = self.draw(self.begun.len() as u64) as usize;
        let served = self.begun.swap_remove(index);
        self.index.lanes.leave(served.0.position.archive);
        if self.draw(3) == 0 {
            let until_ns = self.now_ns + 1 + self.draw(5);
            // Each time differs, so that the order of requeueing is defined.
            let until_ns = (until_ns << 20) + self.made;
            self.made += 1;
            self.index.postpone(&served.0, until_ns);
            self.model.postponed.push((until_ns, Arc::clone(&served.0)));
            self.queued.push(served);
        }
    }

    fn change_one(&mut self, queue: &Arc<Queue>) {
        if self.queued.is_empty() {
            return;
        }
        let at = self.draw(self.queued.len() as u64) as usize;
        let recall = Arc::clone(&self.queued[at].0);
        match self.draw(4) {
            0 => {
                let class = self.class();
                if recall.class() > class && self.index.take(&recall) {
                    assert!(self.model.take(&recall));
                    recall.set_class(class);
                    self.index.push(Arc::clone(&recall));
                    self.model.push(recall);
                }
            }
            1 => {
                assert!(self.index.take(&recall) && self.model.take(&recall));
                assert!(!self.index.take(&recall));
                self.queued.swap_remove(at);
            }
            2 => {
                let request = fslab_vfs::Request::default();
                self.queued[at].1.push(Waiter::new(queue, &recall, &request, Class::Waiting));
                self.index.note_waiters(&recall);
            }
            _ => {
                self.queued[at].1.pop();
                self.index.note_waiters(&recall);
            }
        }
    }

    fn step(&mut self, queue: &Arc<Queue>) {
        match self.draw(12) {
            0..5 => self.push(),
            5..8 => self.next(),
            8 => self.serve(),
            9 => {
                self.now_ns += 1;
                self.index.resume_postponed(self.now_ns << 20);
                self.model.resume(self.now_ns << 20);
            }
            _ => self.change_one(queue),
        }
        let user = self.draw(4) as u32;
        let surplus = self.index.surplus(user);
        let surplus: BTreeSet<u64> = surplus.iter().map(|recall| recall.asked_ns).collect();
        assert_eq!(surplus, self.model.surplus(user));
        assert_eq!(self.index.list().len(), self.queued.len());
    }
}

/// Returns an empty queue for registering waiting programs. The recalls of this test are in the
/// index and the model, but in no queue.
fn no_queue() -> Arc<Queue> {
    Arc::new(Queue::new(Arc::new(Fifo), Arc::new(fslab_vfs::MonotonicClock)))
}

/// The index and the model serve random loads in the same order. They would differ if, for example,
/// a user kept the turn too long.
#[test]
fn index_serves_recalls_in_the_order_of_the_model() {
    for case in 0..60 {
        let seed = seed().wrapping_add(case);
        eprintln!("FSLAB_SEED={seed}");
        let (mut load, queue) = (Load::new(seed), no_queue());
        (0..500).for_each(|_| load.step(&queue));
    }
}

/// Under an endless random load, a recall with N older recalls is served within 8 (N + 1) turns.
#[test]
fn no_recall_waits_longer_than_its_bound_for_random_loads() {
    for case in 0..40 {
        let seed = seed().wrapping_add(case);
        let mut load = Load::new(seed);
        (0..1 + load.draw(200)).for_each(|_| load.push());
        let watched = Arc::clone(&load.queued[load.queued.len() - 1].0);
        let bound = load.queued.len() as u64 * OLDEST_EVERY;
        let mut turns = 0;
        while load.queued.iter().any(|(recall, _)| Arc::ptr_eq(recall, &watched)) {
            (0..1 + load.draw(3)).for_each(|_| load.push());
            load.next();
            turns += load.begun.len() as u64;
            for (served, _) in load.begun.drain(..) {
                load.index.lanes.leave(served.position.archive);
            }
            assert!(turns <= bound, "FSLAB_SEED={seed}: {turns} turns of {bound}");
        }
    }
}

#[test]
fn sweep_serves_positions_in_order_from_the_last_position() {
    let at = |archive: u8, medium, place| Position { archive: Id([archive; 16]), medium, place };
    let served = |last| {
        let mut pending = Pending::new(Arc::new(Sweep));
        pending.last = last;
        let asked = [at(2, 1, 5), at(1, 7, 9), at(1, 3, 8), at(1, 7, 2), at(1, 3, 4)];
        for (number, position) in asked.into_iter().enumerate() {
            pending.push(recall_at(position, 7, Class::Bulk, number as u64));
        }
        Vec::from_iter(std::iter::from_fn(|| pending.next()).map(|recall| recall.position))
    };
    let sorted = [at(1, 3, 4), at(1, 3, 8), at(1, 7, 2), at(1, 7, 9), at(2, 1, 5)];
    assert_eq!(served(None), sorted);
    let turned = [at(1, 7, 9), at(2, 1, 5), at(1, 3, 4), at(1, 3, 8), at(1, 7, 2)];
    assert_eq!(served(Some(at(1, 7, 5))), turned);
}
