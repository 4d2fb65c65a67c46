//! Memory for changed blocks: slots in a few large pieces of memory. In a directory with millions
//! of names, each name needs an access to a different block; large pages make these accesses fast.

use fslab_sys::huge_pages::prefer_large_pages;

/// Size of a piece in bytes. It is large enough that the allocator maps the piece directly, so
/// pages are allocated at first use.
const PIECE_BYTES: usize = 64 << 20;

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot(u32);

impl Slot {
    /// Returns the number of the slot. Slots are numbered from 0 in the order of their first use.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

pub(super) struct Arena {
    block_bytes: usize,
    pieces: Vec<Box<[u8]>>,
    free: Vec<Slot>,
    /// Number of slots that have ever been in use.
    taken: u32,
}

impl Arena {
    pub fn new(block_bytes: usize) -> Self {
        Self { block_bytes, pieces: Vec::new(), free: Vec::new(), taken: 0 }
    }

    /// Returns a free slot. The slot contains the bytes of its last use.
    pub fn take(&mut self) -> Slot {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        let slot = Slot(self.taken);
        self.taken += 1;
        if self.place(slot).0 == self.pieces.len() {
            let mut piece = vec![0; PIECE_BYTES].into_boxed_slice();
            // A failure only reduces the speed.
            let _ = prefer_large_pages(&mut piece);
            self.pieces.push(piece);
        }
        slot
    }

    pub fn give_back(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// Returns the piece of a slot and the offset in it.
    fn place(&self, slot: Slot) -> (usize, usize) {
        let in_piece = PIECE_BYTES / self.block_bytes;
        (slot.index() / in_piece, slot.index() % in_piece * self.block_bytes)
    }

    pub fn get(&self, slot: Slot) -> &[u8] {
        let (piece, start) = self.place(slot);
        &self.pieces[piece][start..start + self.block_bytes]
    }

    pub fn get_mut(&mut self, slot: Slot) -> &mut [u8] {
        let (piece, start) = self.place(slot);
        &mut self.pieces[piece][start..start + self.block_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arena_slots_do_not_overlap_and_are_reused() {
        let mut arena = Arena::new(PIECE_BYTES / 4);
        let slots: Vec<Slot> = (0..6).map(|_| arena.take()).collect();
        let last = PIECE_BYTES / 4 - 1;
        for slot in &slots {
            let place = arena.get_mut(*slot);
            (place[0], place[last]) = (slot.index() as u8 + 1, slot.index() as u8 + 1);
        }
        for slot in &slots {
            let place = arena.get(*slot);
            assert_eq!((place[0], place[last]), (slot.index() as u8 + 1, slot.index() as u8 + 1));
        }
        arena.give_back(slots[2]);
        assert_eq!(arena.take().index(), 2);
        assert_eq!((arena.take().index(), arena.pieces.len()), (6, 2));
    }
}
