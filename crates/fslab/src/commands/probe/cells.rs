//! The file systems of `--verify-matrix`: those of the kernel, stacks over them, and the ext2
//! engine with each policy.

use fslab_ext2::alloc::POLICIES;
use fslab_probe::matrix::{Cell, native};
use fslab_sys::make_file_system::Kind;

/// Returns the whole matrix.
pub(super) fn all() -> Vec<Cell> {
    let mut cells = native();
    let ext4 = || Cell::image(Kind::Ext4, "-b 4096");
    cells.extend([
        ext4().under(&["null"]).in_short(),
        Cell::image(Kind::Xfs, "-b size=4096").under(&["null"]).without(&["links-max"]),
        ext4().transformed_by(&["gzip"]).in_short(),
    ]);
    for (index, policy) in POLICIES.iter().enumerate() {
        let options = format!("?policy={}", policy.name);
        let cell = Cell::image(Kind::Ext2, "-b 4096").served_by("ext2:", options);
        // Attributes that do not depend on the policy are checked with only one policy.
        cells.push(if index == 0 { cell.in_short() } else { cell.without(&["links-max"]) });
    }
    let linear = "?index=linear".to_owned();
    let cell = Cell::image(Kind::Ext2, "-b 1024").served_by("ext2:", linear);
    // Without an index, each lookup searches linearly, so tens of thousands of links would take
    // long.
    cells.push(cell.without(&["links-max"]));
    cells
}
