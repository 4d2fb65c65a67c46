//! Repeats the four measurements of the original paper on ext2, ext3 and ext4, both by counting and
//! by timing.
//!
//! Hu and Bursum ("Measurement and Impact of Key File System Attributes") examined ext4 under Linux
//! 2.6.32. They found blocks of 4096 bytes, a prefetch buffer of 256 KB, a file cache of 2 MB and
//! 12 direct pointers.

use fslab_sys::make_file_system::Kind;
use fslab_sys::memory_bound::MemoryBound;

use super::ground::{Ground, Options};
use super::matrix::{Cell, How, Stage};
use super::timing::Timing;
use super::{ATTRIBUTES, Answer, Growth, find, growth};
use fslab_compare::{Error, Result};

/// The attributes of the original paper.
pub const FOUR: [&str; 4] = ["block-size", "read-ahead-max", "cache-size", "direct-pointers"];

/// The file systems: ext4, as in the paper, and those whose inodes contain block pointers.
const KINDS: [Kind; 3] = [Kind::Ext2, Kind::Ext3, Kind::Ext4];

/// The kernel's default read-ahead for disks. Loop devices have another default.
const READ_AHEAD_KIB: u64 = 128;

/// The memory limit in bytes, which gives the page cache a definite size.
const MEMORY: u64 = 40 << 20;

/// Block size in bytes.
const BLOCK: u64 = 4096;

/// The results on one file system.
#[derive(Debug)]
pub struct OnFileSystem {
    /// The file system.
    pub kind: Kind,
    /// The results in the order of [`FOUR`], or errors for those that could not be tried.
    pub answers: Vec<Result<Answer>>,
    /// The blocks written to the device while a file grows.
    pub growth: Result<Growth>,
}

/// Makes each file system and probes the four attributes on it. The prober uses its default
/// options, not those in `how`. A file system that can't be made or mounted, for lack of privileges
/// or tools, yields an error instead of results.
///
/// # Errors
/// Fails only if it is interrupted.
pub fn reproduce(how: &How<'_>) -> Result<Vec<OnFileSystem>> {
    KINDS.iter().map(|kind| on(*kind, how)).collect()
}

fn on(kind: Kind, how: &How<'_>) -> Result<OnFileSystem> {
    let cell = Cell::image(kind, "-b 4096").read_ahead(READ_AHEAD_KIB);
    let mut answers = Vec::new();
    for attribute in FOUR {
        if how.interrupt.is_raised() {
            return Err(Error::Interrupted);
        }
        answers.push(answer(&cell, attribute, how));
    }
    Ok(OnFileSystem { kind, answers, growth: growth_on(&cell, how) })
}

fn answer(cell: &Cell, attribute: &str, how: &How<'_>) -> Result<Answer> {
    if attribute != "cache-size" {
        let stage = Stage::make(cell, how.fast_directory, how.host)?;
        return ask(&stage, attribute, Options::default().budget, how);
    }
    let stage = Stage::make(cell, how.work_directory, how.host)?;
    let bound = MemoryBound::enter(MEMORY)?;
    let answer = ask(&stage, attribute, 4 * MEMORY, how);
    bound.leave()?;
    answer
}

fn ask(stage: &Stage, name: &str, budget: u64, how: &How<'_>) -> Result<Answer> {
    let remount = || stage.remount().map_err(std::io::Error::other);
    let timing = how.timing.map(|timing| Timing { make_cold: Some(&remount), ..timing });
    let ground = Ground::prepare(&stage.path(), Options { budget, ..Options::default() })?;
    let attribute = ATTRIBUTES.iter().find(|known| known.name == name).ok_or_else(|| {
        let known = ATTRIBUTES.iter().map(|known| known.name);
        fslab_report::Error::unknown("attribute", name, known)
    })?;
    let answer = find(attribute, &ground, timing.as_ref());
    ground.clear()?;
    Ok(answer)
}

fn growth_on(cell: &Cell, how: &How<'_>) -> Result<Growth> {
    let stage = Stage::make(cell, how.fast_directory, how.host)?;
    let ground = Ground::prepare(&stage.path(), Options::default())?;
    let found = growth(&ground, BLOCK).map_err(Error::file(ground.directory()));
    ground.clear()?;
    found
}
