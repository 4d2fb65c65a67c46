//! Memory for changed blocks: places in a few large pieces of it. A directory of millions of names
//! is met at another block for each of them, and in large pages the processor finds these soonest.

use fslab_sys::huge_pages::prefer_large_pages;

/// Large enough that an allocator takes it from the kernel as it is, which gives pages when they
/// are first touched.
const PIECE_BYTES: usize = 64 << 20;

/// A place for a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot(u32);

impl Slot {
    /// Places are numbered from 0, as they were first taken.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The memory.
pub(super) struct Arena {
    block_bytes: usize,
    pieces: Vec<Box<[u8]>>,
    free: Vec<Slot>,
    /// How many places were ever taken.
    taken: u32,
}

impl Arena {
    pub fn new(block_bytes: usize) -> Self {
        Self { block_bytes, pieces: Vec::new(), free: Vec::new(), taken: 0 }
    }

    /// A place that nobody has. It holds what it was left with.
    pub fn take(&mut self) -> Slot {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        let slot = Slot(self.taken);
        self.taken += 1;
        if self.place(slot).0 == self.pieces.len() {
            let mut piece = vec![0; PIECE_BYTES].into_boxed_slice();
            // Without them it is slower, and nothing else.
            let _ = prefer_large_pages(&mut piece);
            self.pieces.push(piece);
        }
        slot
    }

    /// Lets others have the place.
    pub fn give_back(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// The piece, and where in it.
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
    fn places_are_apart_and_used_again() {
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
