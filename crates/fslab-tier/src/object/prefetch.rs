//! Reads parts of several objects together. Each call of an archive is a round trip, so parts that
//! lie close together in a container are read by one call, and several containers at the same time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::piece::Piece;
use crate::archive::{Archive, ContainerKind};
use crate::id::Id;
use crate::parallel::each_by;

/// Parts are read together if at most this many bytes lie between them.
const GAP_MAX: u64 = 16 << 10;

/// Maximum number of bytes that are read together, unless one part is longer.
const READ_MAX: u64 = 8 << 20;

/// Number of containers that are read at the same time. It does not depend on the number of
/// processors, because the threads mostly wait for archives. Fewer containers are read at the same
/// time if parts are long, because calls of archives have a time limit.
const READERS: usize = 32;
const READERS_OF_LONG: usize = 8;
const LONG: u64 = 1 << 20;

/// The identities of an archive and of a container.
type Key = (Id, Id);

/// An archive, and parts of one container in it.
type Parts = (Arc<dyn Archive>, Vec<Range<u64>>);

/// Parts of containers to be read.
#[derive(Default)]
pub(crate) struct PlannedReads(BTreeMap<Key, Parts>);

/// Parts of containers that were read.
#[derive(Default)]
pub(crate) struct Prefetched(BTreeMap<Key, Vec<Piece>>);

impl PlannedReads {
    /// Joins the parts that are to be read together.
    pub(crate) fn of(parts: impl IntoIterator<Item = (Arc<dyn Archive>, Id, Range<u64>)>) -> Self {
        let mut containers = BTreeMap::new();
        for (archive, container, part) in parts {
            let (_, parts) = containers
                .entry((archive.id(), container))
                .or_insert_with(|| (archive, Vec::new()));
            parts.push(part);
        }
        containers.values_mut().for_each(|(_, parts)| *parts = joined(std::mem::take(parts)));
        Self(containers)
    }

    /// Returns the parts, with the archives and the containers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<dyn Archive>, Id, &[Range<u64>])> {
        self.0.iter().map(|((_, container), (archive, parts))| (archive, *container, &parts[..]))
    }

    /// Returns whether a part of a container will be read.
    pub(crate) fn has(&self, archive: Id, container: Id, part: &Range<u64>) -> bool {
        let parts = self.0.get(&(archive, container)).map(|(_, parts)| parts);
        let has_part = |read: &Range<u64>| read.start <= part.start && part.end <= read.end;
        parts.is_some_and(|parts| parts.iter().any(has_part))
    }

    /// Reads the parts. With `is_fresh`, cached data of the archives is not used. After a failed
    /// read, or if `is_over` returned true, the remaining parts of the container are missing in the
    /// result.
    pub(crate) fn read(&self, is_fresh: bool, is_over: impl Fn() -> bool + Sync) -> Prefetched {
        let mut containers: Vec<_> = self.0.iter().collect();
        let parts = containers.iter().flat_map(|(_, (_, parts))| parts);
        let has_long = parts.into_iter().any(|part| part.end - part.start > LONG);
        let readers = if has_long { READERS_OF_LONG } else { READERS };
        let pieces = each_by(readers, &mut containers, |(key, (archive, parts))| {
            let container = (ContainerKind::Files, key.1);
            if is_fresh && !is_over() {
                archive.forget(container);
            }
            let read = |part: &Range<u64>| {
                if is_over() { None } else { Piece::read(&**archive, container, part.clone()) }
            };
            parts.iter().map_while(read).collect()
        });
        Prefetched(containers.into_iter().map(|(key, _)| *key).zip(pieces).collect())
    }
}

/// Returns the ranges that are read for these parts, in ascending order.
fn joined(mut parts: Vec<Range<u64>>) -> Vec<Range<u64>> {
    parts.sort_unstable_by_key(|part| (part.start, part.end));
    let mut joined: Vec<Range<u64>> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last)
                if part.end <= last.end
                    || (part.start <= last.end.saturating_add(GAP_MAX)
                        && part.end - last.start <= READ_MAX) =>
            {
                last.end = last.end.max(part.end);
            }
            _ => joined.push(part),
        }
    }
    joined
}

impl Prefetched {
    /// Returns whether parts of a container were to be read.
    pub(crate) fn has_container(&self, archive: Id, container: Id) -> bool {
        self.0.contains_key(&(archive, container))
    }

    /// Returns a part of a container, if it was read.
    pub(super) fn get(&self, archive: Id, container: Id, part: &Range<u64>) -> Option<Piece> {
        let pieces = self.0.get(&(archive, container))?;
        pieces.iter().find_map(|piece| piece.part(part))
    }

    /// Returns whether a part of a container was read.
    pub(crate) fn has(&self, archive: Id, container: Id, part: &Range<u64>) -> bool {
        let pieces = self.0.get(&(archive, container));
        pieces.is_some_and(|pieces| pieces.iter().any(|piece| piece.has(part)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::archive::testing::MemoryArchive;

    #[test]
    fn close_parts_are_read_together() {
        let mib = 1 << 20;
        let parts = vec![9 * mib..9 * mib + 1, 10..20, 0..10, 5..8, 20 + GAP_MAX..30 + GAP_MAX];
        assert_eq!(joined(parts), [0..30 + GAP_MAX, 9 * mib..9 * mib + 1]);
        assert_eq!(joined(vec![0..10, 11 + GAP_MAX..12 + GAP_MAX]).len(), 2);
        let long = (0..20).map(|number| number * mib..(number + 1) * mib).collect();
        assert_eq!(joined(long), [0..8 * mib, 8 * mib..16 * mib, 16 * mib..20 * mib]);
        let one = joined(vec![0..READ_MAX + 1, 1..3]);
        assert_eq!((one.len(), one[0].end), (1, READ_MAX + 1), "one part is longer");
    }

    #[test]
    fn read_parts_are_found() {
        let archive = Arc::new(MemoryArchive::new(Id([1; 16]), "memory"));
        let container = Id([2; 16]);
        let bytes: Vec<u8> = (0..200).collect();
        archive.put((ContainerKind::Files, container), bytes);
        let shared: Arc<dyn Archive> = Arc::clone(&archive) as _;
        let missing = Id([3; 16]);
        let parts = [(container, 10..20), (container, 100..120), (missing, 0..1)];
        let planned = PlannedReads::of(
            parts.into_iter().map(|(container, part)| (Arc::clone(&shared), container, part)),
        );
        assert!(planned.has(Id([1; 16]), container, &(50..60)));
        let read = planned.read(false, || false);
        assert_eq!(archive.faults().reads.load(Ordering::SeqCst), 2);
        let get = |container, part: Range<u64>| read.get(Id([1; 16]), container, &part);
        assert!(get(container, 15..105).is_some_and(|piece| piece.has(&(15..105))));
        assert!(get(container, 9..20).is_none() && get(missing, 0..1).is_none());
        assert!(read.has_container(Id([1; 16]), missing));
        assert!(!planned.read(true, || true).has(Id([1; 16]), container, &(10..20)), "it was over");
    }
}
