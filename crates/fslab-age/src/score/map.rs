//! A picture of the used parts of a volume, for file systems that report only the extents of files.

use fslab_chart::{COLUMNS, heat_map};
use fslab_vfs::Extent;

/// Number of rows of a map. The maps of simulations have one row per group instead.
const ROWS: u32 = 96;

/// The used bytes in each part of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    cell_bytes: u64,
    used: Vec<u64>,
}

impl Map {
    /// Makes an empty map of a volume.
    #[must_use]
    pub fn new(volume_bytes: u64) -> Self {
        let cells = u64::from(COLUMNS * ROWS);
        let cell_bytes = volume_bytes.div_ceil(cells).max(1);
        Self { cell_bytes, used: vec![0; cells as usize] }
    }

    /// Adds an extent. Addresses past the end of the volume are counted in the last cell; they
    /// occur in a file system on several devices.
    pub fn add(&mut self, extent: &Extent) {
        let (mut at, end) = (extent.physical, extent.physical.saturating_add(extent.length));
        let last = self.used.len() as u64 - 1;
        while at < end {
            let cell = (at / self.cell_bytes).min(last);
            let next = if cell == last { end } else { ((cell + 1) * self.cell_bytes).min(end) };
            self.used[cell as usize] += next - at;
            at = next;
        }
    }

    /// Adds another map of the same volume.
    pub fn merge(&mut self, other: &Self) {
        self.used.iter_mut().zip(&other.used).for_each(|(sum, used)| *sum += used);
    }

    /// Draws the picture.
    #[must_use]
    pub fn picture(&self, title: &str) -> String {
        let filled = |row: u32, column: u32| {
            let used = self.used[(row * COLUMNS + column) as usize];
            used as f64 / self.cell_bytes as f64
        };
        heat_map(title, "the volume row by row; dark cells contain files", ROWS, &filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_one_cell() {
        let mut map = Map::new(u64::from(COLUMNS * ROWS) * 1000);
        let extent = |physical, length| Extent { logical: 0, physical, length };
        for extent in [extent(0, 500), extent(999, 2002), extent(1 << 50, 77)] {
            map.add(&extent);
        }
        assert_eq!(map.used[..4], [501, 1000, 1000, 1]);
        assert_eq!((map.used.iter().sum::<u64>(), map.used.last()), (2579, Some(&77)));
        let twice = map.clone();
        map.merge(&twice);
        assert_eq!(map.used[0], 1002);
        let picture = map.picture("a < b");
        assert!(picture.contains("a &lt; b: ") && picture.matches("<rect").count() == 128 * 96);
    }
}
