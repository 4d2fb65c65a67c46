//! A table of block states, indexed by block number. Each row contains the states of consecutive
//! blocks, and rows are found by hashing. The blocks of a directory are mostly consecutive. So the
//! states fit in the processor's cache, even for millions of names.

use std::collections::HashMap;

use crate::types::BlockNo;

/// The hash for block numbers. An image can contain arbitrary block numbers, so multiplicative
/// hashing would not be safe against collisions.
pub(crate) type Hashing = ahash::RandomState;

/// Number of blocks in a row. Rows are short because an isolated block needs a whole row.
const ROW: u32 = 64;

type Row<T> = [Option<T>; ROW as usize];

/// The states of some blocks.
pub(super) struct Table<T> {
    rows: HashMap<u32, Box<Row<T>>, Hashing>,
    length: usize,
}

impl<T: Copy> Table<T> {
    pub fn new(hashing: Hashing) -> Self {
        Self { rows: HashMap::with_hasher(hashing), length: 0 }
    }

    /// Returns the number of blocks with a state.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns the row of a block and the index in it.
    fn place(block: BlockNo) -> (u32, usize) {
        (block.0 / ROW, (block.0 % ROW) as usize)
    }

    #[inline]
    pub fn get(&self, block: BlockNo) -> Option<&T> {
        let (row, at) = Self::place(block);
        self.rows.get(&row)?[at].as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, block: BlockNo) -> Option<&mut T> {
        let (row, at) = Self::place(block);
        self.rows.get_mut(&row)?[at].as_mut()
    }

    pub fn insert(&mut self, block: BlockNo, value: T) {
        let (row, at) = Self::place(block);
        let row = self.rows.entry(row).or_insert_with(|| Box::new([None; ROW as usize]));
        self.length += usize::from(row[at].is_none());
        row[at] = Some(value);
    }

    pub fn remove(&mut self, block: BlockNo) -> Option<T> {
        let (number, at) = Self::place(block);
        let row = self.rows.get_mut(&number)?;
        let value = row[at].take()?;
        self.length -= 1;
        if row.iter().all(Option::is_none) {
            self.rows.remove(&number);
        }
        Some(value)
    }
}

/// Returns the same hash function in every run, so that blocks of the same image are processed in
/// the same order.
pub(crate) fn hashing() -> Hashing {
    Hashing::with_seeds(
        0x243f_6a88_85a3_08d3,
        0x1319_8a2e_0370_7344,
        0xa409_3822_299f_31d0,
        0x082e_fa98_ec4e_6c89,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_allocated_and_freed_with_their_values() {
        let mut table = Table::new(hashing());
        let blocks = [0, 1, ROW - 1, ROW, 5 * ROW, u32::MAX].map(BlockNo);
        for block in blocks {
            assert!(table.get(block).is_none());
            table.insert(block, block.0 / 2);
            table.insert(block, block.0);
        }
        assert_eq!((table.len(), table.rows.len()), (6, 4));
        let values = blocks.map(|block| table.get(block).copied());
        assert_eq!(values, blocks.map(|block| Some(block.0)));
        *table.get_mut(BlockNo(ROW)).unwrap() = 7;
        assert_eq!(table.remove(BlockNo(ROW)), Some(7));
        assert_eq!((table.remove(BlockNo(ROW)), table.remove(BlockNo(2))), (None, None));
        for block in blocks {
            table.remove(block);
        }
        assert_eq!((table.len(), table.rows.len()), (0, 0));
    }
}
