//! The facts about a file and its file system that rules use.

use std::sync::Arc;
use std::time::Duration;

use fslab_vfs::{Attr, Ino, Timestamp};

use super::{Facts, FileType, Policy, Watermarks};
use crate::calendar::age;
use crate::engine::{Tier, WalkEntry};
use crate::error::{Error, Result};
use crate::lower::{SECTOR_BYTES, own_request};
use crate::stored::BLOCK_BYTES;

/// The smallest unit in which space is counted, in bytes.
pub(super) const PAGE_BYTES: u64 = 4096;

pub(super) fn last_use(attr: &Attr) -> Timestamp {
    attr.accessed.max(attr.modified)
}

/// Returns the facts about a file.
///
/// # Errors
/// If an xattr that a rule uses can't be read. Its value may require that the file is kept.
pub(super) fn facts(tier: &Arc<Tier>, policy: &Policy, place: &WalkEntry<'_>) -> Result<Facts> {
    let (attr, now) = (&place.found.attr, tier.surroundings().calendar.now());
    let xattr = |name: &String| match tier.users_xattr(attr, name) {
        Ok(value) => value.map(|value| Ok((name.clone(), value))),
        Err(error) => Some(Err(Error::below(place.path)(error))),
    };
    Ok(Facts {
        types: types(tier, policy, attr),
        here_for: if policy.stay.is_zero() { Duration::MAX } else { here_for(tier, attr) },
        // A file whose pin can't be read is treated as pinned.
        is_pinned: tier.is_pinned(attr),
        xattrs: policy.xattr_names().filter_map(xattr).collect::<Result<_>>()?,
        ..Facts::of_attributes(place.path, attr, now)
    })
}

impl Facts {
    /// Returns the facts that a file's attributes contain; the others are empty.
    #[must_use]
    pub fn of_attributes(path: &[u8], attr: &Attr, now: Timestamp) -> Self {
        Self {
            path: path.to_vec(),
            size: attr.size,
            uid: attr.uid,
            gid: attr.gid,
            unchanged: age(attr.modified, now),
            unused: age(last_use(attr), now),
            ..Self::default()
        }
    }
}

fn types(tier: &Tier, policy: &Policy, attr: &Attr) -> Vec<FileType> {
    const EXECUTE: u32 = 0o111;
    let is_executable = attr.permissions.bits() & EXECUTE != 0;
    let is_sparse = policy.asks_for(FileType::Sparse) && is_sparse(tier, attr);
    let found = [
        (FileType::Executable, is_executable),
        (FileType::Sparse, is_sparse),
        (FileType::Linked, attr.links > 1),
    ];
    found.into_iter().filter_map(|(kind, is_so)| is_so.then_some(kind)).collect()
}

/// Returns whether at least a page of a file uses no space. If the residency can't be read, no
/// bytes are treated as offline. The error is reported when the file is archived or released.
fn is_sparse(tier: &Tier, attr: &Attr) -> bool {
    let known = tier.residency_of(attr).ok().flatten();
    // The file system counts poison as used space, so it must not be counted again as offline
    // bytes.
    let known = known.filter(|known| !known.is_poisoned());
    let offline = known.map_or(0, |known| known.offline.count() * BLOCK_BYTES);
    attr.blocks * SECTOR_BYTES + offline + PAGE_BYTES <= attr.size
}

/// Returns the time since the bytes of a file became resident. Writers can set back modification
/// times (`cp -p`, `tar`). So the birth time and the residency's time of the last recall or change
/// are used, too. An unreadable residency is treated as missing, and does not prevent a release.
pub(super) fn here_for(tier: &Arc<Tier>, attr: &Attr) -> Duration {
    let known = tier.residency_of(attr).ok().flatten();
    let touched = known.map_or(0, |known| known.touched_seconds);
    let touched = Timestamp { seconds: touched.into(), nanoseconds: 0 };
    let came = attr.modified.max(attr.created.unwrap_or_default()).max(touched);
    age(came, tier.surroundings().calendar.now())
}

/// Returns the number of bytes that must be freed; `u64::MAX` without watermarks.
pub(super) fn bytes_wanted(tier: &Tier, policy: &Policy) -> Result<u64> {
    let Some(Watermarks { high, low, .. }) = policy.watermarks else { return Ok(u64::MAX) };
    let full = fullness(tier)?;
    if full.share() <= high {
        return Ok(0);
    }
    Ok(full.above(low))
}

/// Space of the lower file system, in bytes.
pub(super) struct Fullness {
    used: f64,
    all: f64,
}

impl Fullness {
    /// Returns the share of used space, from 0 to 1.
    pub(super) fn share(&self) -> f64 {
        if self.all > 0.0 { self.used / self.all } else { 0.0 }
    }

    /// Returns the number of used bytes beyond a share.
    pub(super) fn above(&self, share: f64) -> u64 {
        (self.used - share * self.all) as u64
    }

    /// Returns the bytes that became free since an earlier measurement.
    pub(super) fn freed_since(&self, before: &Self) -> u64 {
        (before.used - self.used) as u64
    }
}

/// Returns the used space of the lower file system.
pub(super) fn fullness(tier: &Tier) -> Result<Fullness> {
    let stat = tier.lower().statfs(&own_request(), Ino::ROOT).map_err(Error::below(b""))?;
    let bytes = |blocks: u64| blocks as f64 * f64::from(stat.fragment_size);
    Ok(Fullness {
        used: bytes(stat.blocks.saturating_sub(stat.blocks_free)),
        all: bytes(stat.blocks),
    })
}
