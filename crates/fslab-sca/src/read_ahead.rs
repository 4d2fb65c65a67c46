//! Decodes chunks ahead of a sequential reader.
//!
//! The chunks of one request are decoded in parallel. Small requests can't keep all workers busy.
//! By default, the kernel reads only 128 KiB at a time; only root can raise this read-ahead. So
//! idle workers decode the next chunks, at most one each. A decoded chunk is handed over once and
//! not kept.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::decoded_cache::FrameKey;

/// Number of sequential reads after which another one is expected.
const STREAK_MIN: u32 = 2;

/// Prediction of the next reads through one handle.
#[derive(Default)]
pub struct ReadAhead {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// End of the last read.
    end: u64,
    /// Number of consecutive reads that began where another read had ended.
    streak: u32,
    /// The first chunk that was not yet scheduled for decoding.
    next: u64,
    slots: VecDeque<(u64, Arc<Slot>)>,
}

/// The decoded content of a chunk. A reader waits while another thread decodes it. If that thread
/// found no content, the reader decodes the chunk itself.
#[derive(Default)]
pub struct Slot(OnceLock<Option<Ready>>);

/// Decoded content of a frame.
pub struct Ready {
    /// The file's id and the frame. They are compared because the chunk may have been rewritten,
    /// and packing may have written another frame at the same offset.
    pub key: FrameKey,
    pub content: Arc<Vec<u8>>,
}

impl Slot {
    /// Decodes the chunk, unless the slot is filled already.
    pub fn fill(&self, decode: impl FnOnce() -> Option<Ready>) {
        self.0.get_or_init(decode);
    }
}

impl ReadAhead {
    /// Records a read and returns the chunks to decode in advance, so that `chunks_max` chunks
    /// after it are decoded or in progress. The kernel may send two requests at a time, in either
    /// order.
    pub fn note(
        &self,
        read: Range<u64>,
        chunk_bytes: u64,
        chunks_max: u64,
    ) -> Vec<(u64, Arc<Slot>)> {
        let mut state = self.state.lock();
        if !state.goes_on(&read) {
            *state = State { end: read.end, ..State::default() };
        }
        if state.streak < STREAK_MIN {
            return Vec::new();
        }
        let behind = state.end.div_ceil(chunk_bytes);
        let wanted = state.next.max(behind)..behind + chunks_max;
        state.next = state.next.max(wanted.end);
        let slots = wanted.map(|chunk| (chunk, Arc::new(Slot::default())));
        let slots: Vec<_> = slots.collect();
        state.slots.extend(slots.iter().cloned());
        // Chunks before the read are no longer needed.
        state.slots.retain(|(chunk, _)| (chunk + 1) * chunk_bytes > read.start);
        slots
    }

    /// Whether a chunk is decoded or being decoded.
    pub fn has(&self, chunk: u64) -> bool {
        self.state.lock().slots.iter().any(|(known, _)| *known == chunk)
    }

    /// Returns the content of a frame that was decoded in advance, at most once. Waits for the
    /// thread that decodes it.
    pub fn take(&self, chunk: u64, key: FrameKey) -> Option<Arc<Vec<u8>>> {
        let slot = {
            let slots = &mut self.state.lock().slots;
            let at = slots.iter().position(|(known, _)| *known == chunk)?;
            slots.remove(at)?.1
        };
        let ready = slot.0.get_or_init(|| None).as_ref()?;
        (ready.key == key).then(|| Arc::clone(&ready.content))
    }
}

impl State {
    /// Whether a read continues the sequence; if so, adds it to the sequence.
    fn goes_on(&mut self, read: &Range<u64>) -> bool {
        let length = read.end - read.start;
        if read.start == self.end {
            self.streak = self.streak.saturating_add(1);
            self.end = read.end;
            return true;
        }
        let is_late = read.end <= self.end && self.end - read.end <= length;
        let is_early = read.start > self.end && read.start - self.end <= length;
        if is_early {
            self.end = read.end;
        }
        self.streak >= STREAK_MIN && (is_late || is_early)
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::Reference;
    use super::*;

    const CHUNK: u64 = 128 << 10;

    fn key(offset: u64) -> FrameKey {
        (1, Reference { offset, stored_length: 1000, header_crc: 5 })
    }

    fn chunks(wanted: &[(u64, Arc<Slot>)]) -> Vec<u64> {
        wanted.iter().map(|(chunk, _)| *chunk).collect()
    }

    fn read(ahead: &ReadAhead, chunk: u64) -> Vec<u64> {
        chunks(&ahead.note(chunk * CHUNK..(chunk + 1) * CHUNK, CHUNK, 2))
    }

    #[test]
    fn sequential_reads_decode_each_chunk_ahead_once() {
        let ahead = ReadAhead::default();
        let asked: Vec<Vec<u64>> = (0..5).map(|chunk| read(&ahead, chunk)).collect();
        assert_eq!(asked, [vec![], vec![2, 3], vec![4], vec![5], vec![6]]);
    }

    #[test]
    fn swapped_neighbouring_reads_count_as_sequential() {
        let ahead = ReadAhead::default();
        let order = [0, 1, 3, 2, 4, 5];
        let asked: Vec<u64> = order.iter().flat_map(|chunk| read(&ahead, *chunk)).collect();
        assert_eq!(asked, [2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn random_reads_cause_no_read_ahead() {
        let ahead = ReadAhead::default();
        for chunk in [9, 3, 7, 1, 12, 5] {
            assert!(read(&ahead, chunk).is_empty());
        }
    }

    #[test]
    fn a_jump_discards_chunks_decoded_ahead() {
        let ahead = ReadAhead::default();
        (0..3).for_each(|chunk| drop(read(&ahead, chunk)));
        assert!(ahead.has(3));
        read(&ahead, 100);
        assert!(!ahead.has(3));
    }

    #[test]
    fn chunk_decoded_ahead_is_taken_once_and_only_for_its_frame() {
        let ahead = ReadAhead::default();
        let ready = |slot: &Slot, offset| {
            slot.fill(|| Some(Ready { key: key(offset), content: Arc::new(vec![1]) }));
        };
        (0..2).for_each(|chunk| {
            for (chunk, slot) in ahead.note(chunk * CHUNK..(chunk + 1) * CHUNK, CHUNK, 2) {
                ready(&slot, chunk * 1000);
            }
        });
        assert_eq!(ahead.take(2, key(2000)), Some(Arc::new(vec![1])));
        assert_eq!(ahead.take(2, key(2000)), None);
        assert_eq!(ahead.take(3, key(7)), None, "written again since");
    }

    #[test]
    fn taking_an_undecoded_chunk_cancels_its_read_ahead() {
        let ahead = ReadAhead::default();
        let mut asked = Vec::new();
        (0..2).for_each(|chunk| {
            asked.extend(ahead.note(chunk * CHUNK..(chunk + 1) * CHUNK, CHUNK, 1));
        });
        assert_eq!(ahead.take(2, key(0)), None);
        asked[0].1.fill(|| panic!("nobody wants it any more"));
    }
}
