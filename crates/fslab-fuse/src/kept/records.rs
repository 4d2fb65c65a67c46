//! Records of requests under way: how far each came, and its answer before that is sent.
//!
//! A record is begun before a request is done and completed before its answer is sent. After the
//! death of a daemon, the kernel sends each unanswered request again. One with a complete record
//! gets the answer that is in it; one whose record was only begun may have been done or not
//! (`again` finds out); one without was not begun.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_vfs::Errno;
use parking_lot::Mutex;

use super::state::{KeptState, PAYLOAD_BYTES_MAX, RECORDS_MAX};
use super::{SENT_AGAIN, has_one_effect};
use crate::protocol::opcode::Opcode;

/// Values of a record's first word.
const BEGUN: u64 = 1;
const DONE: u64 = 2;

/// A record's words: its stage, the request's number, its opcode and the number of daemons that
/// died over it, the answer's error and length, the state before the request, and the answer's
/// payload.
const UNIQUE: usize = 1;
const ATTEMPT: usize = 2;
const ANSWER: usize = 3;
const BEFORE: usize = 4;
const HAS_NUMBERS: usize = 7;
const PAYLOAD: usize = 8;

/// How far an earlier daemon came with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nobody has begun it.
    New,
    /// It was begun, and perhaps done.
    Begun(Before),
    /// It was done, with this answer.
    Done(Result<Vec<u8>, Errno>),
    /// Two daemons died over it.
    GivenUp,
}

impl Stage {
    /// For messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Begun(_) => "begun",
            Self::Done(_) => "done",
            Self::GivenUp => "given up",
        }
    }
}

/// The state of the file system before a request. A later daemon compares it with the present state
/// to find out whether the request was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// The time of the request, in nanoseconds since the epoch.
    pub now_ns: u64,
    /// The size of a file that is appended to; the inodes of two names that change places. `None`
    /// where they were not noted: then nothing was done.
    pub numbers: Option<[u64; 2]>,
}

/// The records of one daemon.
#[derive(Debug)]
pub(crate) struct Records {
    state: Arc<KeptState>,
    /// Whether the daemon before died, perhaps over one of its requests.
    has_died: bool,
    free: Mutex<Vec<usize>>,
    /// Those of the daemon before, by request.
    earlier: Mutex<HashMap<u64, Earlier>>,
}

#[derive(Clone, Debug)]
struct Earlier {
    index: usize,
    attempts: u64,
    stage: Stage,
}

/// The record of one request, while this daemon serves it.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    records: &'a Records,
    index: usize,
    /// How far the daemon before came with the request.
    pub stage: Stage,
}

impl Records {
    /// None is begun.
    pub fn new(state: &Arc<KeptState>) -> Self {
        let free = Mutex::new((0..RECORDS_MAX).rev().collect());
        Self { state: Arc::clone(state), has_died: false, free, earlier: Mutex::default() }
    }

    /// With those that the daemon before has left.
    pub fn taken_over(state: &Arc<KeptState>) -> Self {
        let has_died = !state.take_hand_over();
        let (mut free, mut earlier) = (Vec::new(), HashMap::new());
        let end = state.records_end();
        free.extend((end..RECORDS_MAX).rev());
        for index in (0..end).rev() {
            match read(state.record(index)) {
                Some((unique, attempts, stage)) => {
                    earlier.insert(unique, Earlier { index, attempts, stage });
                }
                None => free.push(index),
            }
        }
        let (free, earlier) = (free.into(), earlier.into());
        Self { state: Arc::clone(state), has_died, free, earlier }
    }

    /// Whether a request was begun and not completed when the daemon before died.
    pub fn was_cut_short(&self, unique: u64) -> bool {
        let earlier = self.earlier.lock();
        earlier.get(&unique).is_some_and(|earlier| matches!(earlier.stage, Stage::Begun(_)))
    }

    /// Whether the answer to a request is written down.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_complete(&self, unique: u64) -> bool {
        let earlier = self.earlier.lock();
        let number = unique & !SENT_AGAIN;
        earlier.get(&number).is_some_and(|earlier| matches!(earlier.stage, Stage::Done(_)))
    }

    /// Begins the record of a request. `None` where there is no room: more requests are under way
    /// than are written down.
    pub fn begin(&self, opcode: Opcode, unique: u64) -> Option<Record<'_>> {
        let number = unique & !SENT_AGAIN;
        let earlier = match unique == number {
            true => None,
            false => self.earlier.lock().remove(&number),
        };
        let is_again = unique != number;
        let index = match &earlier {
            Some(earlier) => earlier.index,
            None => self.take_free()?,
        };
        let attempts = earlier.as_ref().map_or(0, |earlier| earlier.attempts);
        let mut stage = earlier.map_or(Stage::New, |earlier| earlier.stage);
        if attempts > 0 && self.has_died && !matches!(stage, Stage::Done(_)) {
            stage = Stage::GivenUp;
        }
        self.state.use_record(index);
        // What an earlier daemon knew stays written down until this one knows more.
        let words = self.state.record(index);
        let attempt = join(opcode as u32, attempts + u64::from(is_again && self.has_died));
        if stage == Stage::New {
            // What the record was of before must not pass for this request.
            words[0].store(0, Ordering::Release);
            words[UNIQUE].store(number, Ordering::Relaxed);
            words[BEFORE].store(0, Ordering::Relaxed);
            words[HAS_NUMBERS].store(0, Ordering::Relaxed);
            words[ATTEMPT].store(attempt, Ordering::Relaxed);
            words[0].store(BEGUN, Ordering::Release);
        } else {
            words[ATTEMPT].store(attempt, Ordering::Relaxed);
        }
        Some(Record { records: self, index, stage })
    }

    fn take_free(&self) -> Option<usize> {
        let mut free = self.free.lock();
        if free.is_empty() {
            // Answered requests leave a record where their daemon died before it ended that. The
            // kernel numbers requests in order, so the oldest are the least likely to come again.
            let mut earlier = self.earlier.lock();
            let mut oldest: Vec<u64> = earlier.keys().copied().collect();
            oldest.sort_unstable();
            for unique in oldest.into_iter().take(RECORDS_MAX / 2) {
                free.extend(earlier.remove(&unique).map(|earlier| earlier.index));
            }
        }
        let index = free.pop();
        if index.is_none() {
            tracing::warn!("more requests are under way than are written down");
        }
        index
    }
}

impl Record<'_> {
    fn words(&self) -> &[AtomicU64] {
        self.records.state.record(self.index)
    }

    /// Notes the state that the request finds.
    pub fn note_before(&self, before: &Before) {
        let words = self.words();
        words[BEFORE].store(before.now_ns, Ordering::Relaxed);
        if let Some(numbers) = before.numbers {
            words[BEFORE + 1].store(numbers[0], Ordering::Relaxed);
            words[BEFORE + 2].store(numbers[1], Ordering::Relaxed);
            words[HAS_NUMBERS].store(1, Ordering::Release);
        }
    }

    /// Completes the record with the answer, which may then be sent.
    pub fn complete(&self, answer: Result<&[u8], Errno>) {
        let words = self.words();
        let payload = answer.unwrap_or_default();
        // No request that has one effect has a longer answer.
        if payload.len() > PAYLOAD_BYTES_MAX {
            return;
        }
        for (word, bytes) in words[PAYLOAD..].iter().zip(payload.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
        let error = answer.err().map_or(0, |errno| errno.raw_os_error().cast_unsigned());
        words[ANSWER].store(join(error, payload.len() as u64), Ordering::Relaxed);
        words[0].store(DONE, Ordering::Release);
    }

    /// Forgets the record of a request that was answered.
    pub fn end(self) {
        self.words()[0].store(0, Ordering::Release);
        self.records.free.lock().push(self.index);
    }
}

/// What a record says: the request, how many daemons died over it before, and how far it came.
fn read(words: &[AtomicU64]) -> Option<(u64, u64, Stage)> {
    let get = |index: usize| words[index].load(Ordering::Relaxed);
    let stage = words[0].load(Ordering::Acquire);
    let (opcode, attempts) = split(get(ATTEMPT));
    let opcode = Opcode::from_number(opcode);
    let numbers = (get(HAS_NUMBERS) != 0).then(|| [get(BEFORE + 1), get(BEFORE + 2)]);
    let now_ns = get(BEFORE);
    let before = Before { now_ns, numbers };
    let stage = match stage {
        // The time is noted before anything is done.
        BEGUN if opcode.is_some_and(has_one_effect) && now_ns != 0 => Stage::Begun(before),
        BEGUN => Stage::New,
        DONE => Stage::Done(read_answer(words)?),
        _ => return None,
    };
    Some((get(UNIQUE), attempts, stage))
}

fn read_answer(words: &[AtomicU64]) -> Option<Result<Vec<u8>, Errno>> {
    let (error, length) = split(words[ANSWER].load(Ordering::Relaxed));
    if error != 0 {
        // Errors of the kernel's protocol are below 512.
        return (error < 512).then(|| Err(Errno::from_raw_os_error(error.cast_signed())));
    }
    let length = usize::try_from(length).ok().filter(|length| *length <= PAYLOAD_BYTES_MAX)?;
    let all = words[PAYLOAD..].iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    Some(Ok(all.take(length).collect()))
}

fn join(low: u32, high: u64) -> u64 {
    high << 32 | u64::from(low)
}

fn split(word: u64) -> (u32, u64) {
    (word as u32, word >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> Arc<KeptState> {
        Arc::new(KeptState::new().unwrap())
    }

    fn stage_of(records: &Records, unique: u64) -> Stage {
        records.begin(Opcode::Mkdir, unique | SENT_AGAIN).unwrap().stage
    }

    #[test]
    fn a_request_is_found_as_far_as_it_came() {
        let state = state();
        let records = Records::new(&state);
        let begin = |unique| records.begin(Opcode::Mkdir, unique).unwrap();
        let before = Before { now_ns: 5, numbers: Some([6, 7]) };
        begin(1).note_before(&before);
        begin(2).complete(Ok(b"an answer of some length"));
        begin(3).complete(Err(Errno::NOSPC));
        begin(4).end();
        let next = Records::taken_over(&state);
        assert!(next.was_cut_short(1) && !next.was_cut_short(2) && !next.was_cut_short(4));
        assert_eq!(stage_of(&next, 1), Stage::Begun(before));
        assert_eq!(stage_of(&next, 2), Stage::Done(Ok(b"an answer of some length".to_vec())));
        assert_eq!(stage_of(&next, 3), Stage::Done(Err(Errno::NOSPC)));
        assert_eq!(stage_of(&next, 4), Stage::New);
        assert_eq!(stage_of(&next, 5), Stage::New);
    }

    #[test]
    fn a_request_over_which_two_daemons_died_is_given_up() {
        let state = state();
        for opcode in [Opcode::Mkdir, Opcode::Read] {
            let first = Records::new(&state);
            drop(first.begin(opcode, 7));
            let second = Records::taken_over(&state);
            assert_ne!(second.begin(opcode, 7 | SENT_AGAIN).unwrap().stage, Stage::GivenUp);
            let third = Records::taken_over(&state);
            let given_up = third.begin(opcode, 7 | SENT_AGAIN).unwrap();
            assert_eq!(given_up.stage, Stage::GivenUp, "{opcode:?}");
            given_up.end();
        }
    }

    /// Answered requests do not come again, and their records make room for others.
    #[test]
    fn records_of_the_dead_do_not_use_up_the_room() {
        let state = state();
        let first = Records::new(&state);
        for unique in 0..RECORDS_MAX as u64 {
            drop(first.begin(Opcode::Mkdir, unique));
        }
        assert!(first.begin(Opcode::Mkdir, 9999).is_none());
        let second = Records::taken_over(&state);
        assert!(second.begin(Opcode::Mkdir, 9999).is_some());
        // The newest are the ones that may still come.
        let newest = RECORDS_MAX as u64 - 1;
        assert!(second.earlier.lock().contains_key(&newest));
        assert!(!second.earlier.lock().contains_key(&0));
    }

    #[test]
    fn words_that_can_not_be_right_read_as_nothing() {
        let state = state();
        drop(Records::new(&state).begin(Opcode::Mkdir, 1));
        for (word, value) in [(0, 99), (ATTEMPT, 4000), (ANSWER, u64::MAX), (ANSWER, 600)] {
            state.record(0)[0].store(DONE, Ordering::Relaxed);
            state.record(0)[word].store(value, Ordering::Relaxed);
            let stage = stage_of(&Records::taken_over(&state), 1);
            assert!(!matches!(stage, Stage::Done(Ok(ref bytes)) if bytes.len() > 192), "{stage:?}");
        }
    }
}
