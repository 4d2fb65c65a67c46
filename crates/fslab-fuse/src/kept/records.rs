//! Records of requests in flight: their progress, and their reply before it is sent.
//!
//! A record is begun before a request is performed and completed before its reply is sent. After
//! the death of a daemon, the kernel resends each unanswered request. A complete record contains
//! the reply. If a record is incomplete, the request may or may not have been performed (`again`
//! finds out). If a request has no record, it was not begun.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fslab_vfs::Errno;
use parking_lot::Mutex;

use super::state::{DaemonEnd, KeptState, PAYLOAD_BYTES_MAX, RECORDS_MAX};
use super::{SENT_AGAIN, has_one_effect};
use crate::protocol::opcode::Opcode;

/// Values of a record's first word.
const BEGUN: u64 = 1;
const DONE: u64 = 2;

/// Indices of the words of a record after its stage, which is word 0. `ATTEMPT` contains the opcode
/// and the [`Suspicion`]. `ANSWER` contains the reply's error and length. The state before the
/// request begins at `BEFORE`.
const UNIQUE: usize = 1;
const ATTEMPT: usize = 2;
const ANSWER: usize = 3;
const BEFORE: usize = 4;
const HAS_NUMBERS: usize = 7;
const PAYLOAD: usize = 8;

/// The suspicion level at which a request is given up. Two crashes or four kills reach it.
const SUSPICION_MAX: u64 = 4;

/// How likely it is that a request makes daemons die.
#[derive(Clone, Copy, Debug, Default)]
struct Suspicion {
    /// The weighted number of daemons that died while performing the request. A crash counts 2. A
    /// kill counts 1, because its reason is probably outside the daemon.
    level: u64,
    /// Whether a daemon is performing the request.
    is_performed: bool,
}

impl Suspicion {
    /// Returns the suspicion after a daemon has ended, whether or not it was performing the
    /// request.
    fn after(self, end: DaemonEnd) -> Self {
        let added = match end {
            DaemonEnd::Replaced => 0,
            DaemonEnd::Killed => 1,
            DaemonEnd::Crashed => 2,
        };
        let level = self.level + if self.is_performed { added } else { 0 };
        Self { level: level.min(SUSPICION_MAX), is_performed: false }
    }

    fn to_number(self) -> u64 {
        self.level << 1 | u64::from(self.is_performed)
    }

    fn from_number(number: u64) -> Self {
        Self { level: (number >> 1).min(SUSPICION_MAX), is_performed: number & 1 != 0 }
    }
}

/// The progress of an earlier daemon with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The request was not begun.
    New,
    /// The request was begun, and perhaps performed.
    Begun(Before),
    /// The request was performed with this result.
    Done(Result<Vec<u8>, Errno>),
    /// Several daemons died while performing the request ([`SUSPICION_MAX`]).
    GivenUp,
}

/// The state of the file system before a request. A later daemon compares it with the current state
/// to find out whether the request was performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// The time of the request, in nanoseconds since the epoch.
    pub now_ns: u64,
    /// Numbers that depend on the operation: the file size before an append, the inodes of two
    /// names before an exchange, or whether an xattr existed. `None` if no numbers are recorded. An
    /// operation that needs numbers was then not performed, because it records them first.
    pub numbers: Option<[u64; 2]>,
}

/// The records of one daemon.
#[derive(Debug)]
pub(crate) struct Records {
    state: Arc<KeptState>,
    /// How the previous daemon ended, perhaps because of one of its requests.
    last_end: DaemonEnd,
    free: Mutex<Vec<usize>>,
    /// Records of the previous daemon, by request.
    earlier: Mutex<HashMap<u64, Earlier>>,
}

#[derive(Clone, Debug)]
struct Earlier {
    index: usize,
    suspicion: Suspicion,
    stage: Stage,
}

/// The record of one request in flight.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    records: &'a Records,
    index: usize,
    /// The previous daemon's progress with the request.
    pub stage: Stage,
    /// Whether the effect of an earlier execution was found.
    has_effect: AtomicBool,
}

impl Records {
    /// Makes the records of the first daemon of a mount.
    pub fn new(state: &Arc<KeptState>) -> Self {
        let free = Mutex::new((0..RECORDS_MAX).rev().collect());
        Self {
            state: Arc::clone(state),
            last_end: DaemonEnd::default(),
            free,
            earlier: Mutex::default(),
        }
    }

    /// Takes over the records of the previous daemon.
    pub fn taken_over(state: &Arc<KeptState>) -> Self {
        let last_end = state.last_end();
        let (mut free, mut earlier) = (Vec::new(), HashMap::new());
        let end = state.records_end();
        free.extend((end..RECORDS_MAX).rev());
        for index in (0..end).rev() {
            match read(state.record(index)) {
                Some((unique, suspicion, stage)) => {
                    let suspicion = suspicion.after(last_end);
                    set_suspicion(state.record(index), suspicion);
                    earlier.insert(unique, Earlier { index, suspicion, stage });
                }
                None => free.push(index),
            }
        }
        let (free, earlier) = (free.into(), earlier.into());
        Self { state: Arc::clone(state), last_end, free, earlier }
    }

    /// Whether the previous daemon died between the beginning and the completion of a request.
    pub fn was_cut_short(&self, unique: u64) -> bool {
        let earlier = self.earlier.lock();
        earlier.get(&unique).is_some_and(|earlier| matches!(earlier.stage, Stage::Begun(_)))
    }

    /// Whether the reply to a request is recorded.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_complete(&self, unique: u64) -> bool {
        let earlier = self.earlier.lock();
        let number = unique & !SENT_AGAIN;
        earlier.get(&number).is_some_and(|earlier| matches!(earlier.stage, Stage::Done(_)))
    }

    /// Begins the record of a request. `None` if there is no room, because too many requests are in
    /// flight.
    pub fn begin(&self, opcode: Opcode, unique: u64) -> Option<Record<'_>> {
        let number = unique & !SENT_AGAIN;
        let earlier = match unique == number {
            true => None,
            false => self.earlier.lock().remove(&number),
        };
        // An idempotent request has no record until it is sent again, so the previous daemon may
        // have been performing it.
        let is_performed = unique != number && !has_one_effect(opcode);
        let unrecorded = || Suspicion { level: 0, is_performed }.after(self.last_end);
        let suspicion = earlier.as_ref().map_or_else(unrecorded, |earlier| earlier.suspicion);
        let index = match &earlier {
            Some(earlier) => earlier.index,
            None => self.take_free()?,
        };
        let mut stage = earlier.map_or(Stage::New, |earlier| earlier.stage);
        if suspicion.level >= SUSPICION_MAX && !matches!(stage, Stage::Done(_)) {
            stage = Stage::GivenUp;
        }
        self.state.use_record(index);
        // The state recorded by an earlier daemon is kept until this one records its own.
        let words = self.state.record(index);
        let suspicion = Suspicion { is_performed: true, ..suspicion };
        let attempt = join(opcode as u32, suspicion.to_number());
        if stage == Stage::New {
            // The previous content of the record must not be attributed to this request.
            words[0].store(0, Ordering::Release);
            words[UNIQUE].store(number, Ordering::Relaxed);
            words[BEFORE].store(0, Ordering::Relaxed);
            words[HAS_NUMBERS].store(0, Ordering::Relaxed);
            words[ATTEMPT].store(attempt, Ordering::Relaxed);
            words[0].store(BEGUN, Ordering::Release);
        } else {
            words[ATTEMPT].store(attempt, Ordering::Relaxed);
        }
        Some(Record { records: self, index, stage, has_effect: AtomicBool::new(false) })
    }

    fn take_free(&self) -> Option<usize> {
        let mut free = self.free.lock();
        if free.is_empty() {
            // If a daemon dies after replying and before releasing the record, the record remains
            // here. The kernel numbers requests in order, so the oldest are the least likely to be
            // resent.
            let mut earlier = self.earlier.lock();
            let mut oldest: Vec<u64> = earlier.keys().copied().collect();
            oldest.sort_unstable();
            for unique in oldest.into_iter().take(RECORDS_MAX / 2) {
                free.extend(earlier.remove(&unique).map(|earlier| earlier.index));
            }
        }
        let index = free.pop();
        if index.is_none() {
            tracing::warn!(
                "too many requests are in flight to record all of them; if the daemon dies, an \
                 unrecorded request may be performed twice"
            );
        }
        index
    }
}

impl Record<'_> {
    fn words(&self) -> &[AtomicU64] {
        self.records.state.record(self.index)
    }

    /// Records the state before the request.
    pub fn note_before(&self, before: &Before) {
        let words = self.words();
        words[BEFORE].store(before.now_ns, Ordering::Relaxed);
        if let Some(numbers) = before.numbers {
            words[BEFORE + 1].store(numbers[0], Ordering::Relaxed);
            words[BEFORE + 2].store(numbers[1], Ordering::Relaxed);
            words[HAS_NUMBERS].store(1, Ordering::Release);
        }
    }

    /// Notes that the effect of an earlier execution was found.
    pub fn note_effect(&self) {
        self.has_effect.store(true, Ordering::Relaxed);
    }

    /// The progress of earlier daemons with the request, for messages. It is known after this
    /// daemon has served the request.
    pub fn progress(&self) -> &'static str {
        match &self.stage {
            Stage::New => "not begun",
            Stage::Begun(_) if self.has_effect.load(Ordering::Relaxed) => "performed",
            Stage::Begun(_) => "begun",
            Stage::Done(Ok(_)) => "reply recorded",
            Stage::Done(Err(_)) => "error recorded",
            Stage::GivenUp => "given up",
        }
    }

    /// Whether performing a request twice has the same effect on the lower file system as
    /// performing it once. Of writes and of changes of extended attributes, only those are not
    /// idempotent for which an earlier state is recorded.
    pub fn is_idempotent(&self, opcode: Opcode) -> bool {
        match opcode {
            Opcode::Open | Opcode::Opendir => true,
            Opcode::Write | Opcode::Setxattr => {
                self.words()[HAS_NUMBERS].load(Ordering::Relaxed) == 0
            }
            _ => !has_one_effect(opcode),
        }
    }

    /// Completes the record with the reply, which may then be sent.
    pub fn complete(&self, answer: Result<&[u8], Errno>) {
        let words = self.words();
        let payload = answer.unwrap_or_default();
        // Only an idempotent request that was resent can have a longer reply. It can be performed
        // again, so its reply need not be recorded.
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

    /// Releases the record of an answered request.
    pub fn end(self) {
        self.words()[0].store(0, Ordering::Release);
        self.records.free.lock().push(self.index);
    }
}

/// Reads a record: the number of the request, its suspicion, and its stage.
fn read(words: &[AtomicU64]) -> Option<(u64, Suspicion, Stage)> {
    let get = |index: usize| words[index].load(Ordering::Relaxed);
    let stage = words[0].load(Ordering::Acquire);
    let (opcode, suspicion) = split(get(ATTEMPT));
    let opcode = Opcode::from_number(opcode);
    let numbers = (get(HAS_NUMBERS) != 0).then(|| [get(BEFORE + 1), get(BEFORE + 2)]);
    let now_ns = get(BEFORE);
    let before = Before { now_ns, numbers };
    let stage = match stage {
        // If no time was recorded, the request was not performed, because the time is recorded
        // first.
        BEGUN if opcode.is_some_and(has_one_effect) && now_ns != 0 => Stage::Begun(before),
        BEGUN => Stage::New,
        DONE => Stage::Done(read_answer(words)?),
        _ => return None,
    };
    Some((get(UNIQUE), Suspicion::from_number(suspicion), stage))
}

fn set_suspicion(words: &[AtomicU64], suspicion: Suspicion) {
    let (opcode, _) = split(words[ATTEMPT].load(Ordering::Relaxed));
    words[ATTEMPT].store(join(opcode, suspicion.to_number()), Ordering::Relaxed);
}

fn read_answer(words: &[AtomicU64]) -> Option<Result<Vec<u8>, Errno>> {
    let (error, length) = split(words[ANSWER].load(Ordering::Relaxed));
    if error != 0 {
        // Error numbers of the protocol are below 512.
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
        Arc::new(KeptState::new(0).unwrap())
    }

    fn stage_of(records: &Records, unique: u64) -> Stage {
        records.begin(Opcode::Mkdir, unique | SENT_AGAIN).unwrap().stage
    }

    #[test]
    fn next_daemon_finds_the_stage_of_each_request() {
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

    /// Performs a request in one daemon after another; `ends` states how each of them ended.
    /// Returns the stage that the next daemon finds.
    fn stage_after(opcode: Opcode, ends: &[DaemonEnd]) -> Stage {
        let state = state();
        drop(Records::new(&state).begin(opcode, 7));
        let mut stage = Stage::New;
        for end in ends {
            state.note_end(*end);
            stage = Records::taken_over(&state).begin(opcode, 7 | SENT_AGAIN).unwrap().stage;
        }
        stage
    }

    #[test]
    fn request_is_given_up_after_two_crashes_or_four_kills() {
        use DaemonEnd::{Crashed, Killed, Replaced};
        for opcode in [Opcode::Mkdir, Opcode::Read] {
            let given_up: [&[DaemonEnd]; 4] = [
                &[Crashed, Crashed],
                &[Crashed, Replaced, Crashed],
                &[Killed, Killed, Killed, Killed],
                &[Killed, Crashed, Killed],
            ];
            for ends in given_up {
                assert_eq!(stage_after(opcode, ends), Stage::GivenUp, "{opcode:?} {ends:?}");
                let earlier = &ends[..ends.len() - 1];
                assert_ne!(stage_after(opcode, earlier), Stage::GivenUp, "{opcode:?} {ends:?}");
            }
            assert_ne!(stage_after(opcode, &[Replaced; 9]), Stage::GivenUp, "{opcode:?}");
        }
    }

    /// A daemon that dies while it takes over was not performing the request.
    #[test]
    fn deaths_during_a_takeover_are_not_attributed_to_requests() {
        let state = state();
        drop(Records::new(&state).begin(Opcode::Mkdir, 7));
        for _ in 0..9 {
            state.note_end(DaemonEnd::Crashed);
            drop(Records::taken_over(&state));
        }
        let last = Records::taken_over(&state);
        let record = last.begin(Opcode::Mkdir, 7 | SENT_AGAIN).unwrap();
        assert_ne!(record.stage, Stage::GivenUp);
    }

    /// A request that waited to be performed when daemons died did not cause these deaths.
    #[test]
    fn deaths_are_not_attributed_to_requests_that_were_not_begun() {
        let state = state();
        for _ in 0..9 {
            state.note_end(DaemonEnd::Crashed);
            let records = Records::taken_over(&state);
            let record = records.begin(Opcode::Mkdir, 7 | SENT_AGAIN).unwrap();
            assert_eq!(record.stage, Stage::New);
            record.end();
        }
    }

    #[test]
    fn records_of_a_dead_daemon_are_reused() {
        let state = state();
        let first = Records::new(&state);
        for unique in 0..RECORDS_MAX as u64 {
            drop(first.begin(Opcode::Mkdir, unique));
        }
        assert!(first.begin(Opcode::Mkdir, 9999).is_none());
        let second = Records::taken_over(&state);
        assert!(second.begin(Opcode::Mkdir, 9999).is_some());
        // The kernel may still resend the newest requests.
        let newest = RECORDS_MAX as u64 - 1;
        assert!(second.earlier.lock().contains_key(&newest));
        assert!(!second.earlier.lock().contains_key(&0));
    }

    #[test]
    fn corrupt_record_words_yield_no_reply() {
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
