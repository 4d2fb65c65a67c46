//! Determines which earlier effects must survive if an effect survives, by the bounds in [`super`].

use std::collections::HashMap;
use std::ffi::OsString;
use std::ops::Range;

use fslab_vfs::Ino;

use super::effect::{Binding, Change, Effect, Order, SECTOR_BYTES};

/// Returns, for each effect, the earlier effects that it needs directly.
pub(super) fn of(effects: &[Effect], order: Order) -> Vec<Vec<usize>> {
    let mut tracker = Tracker { order, ..Tracker::default() };
    effects.iter().enumerate().map(|(number, effect)| tracker.add(number, effect)).collect()
}

/// The last effect of each kind so far.
#[derive(Default)]
struct Tracker {
    order: Order,
    by_name: HashMap<(Ino, OsString), usize>,
    by_inode: HashMap<Ino, usize>,
    shapes: HashMap<Ino, usize>,
    attributes: HashMap<Ino, usize>,
    emptied: HashMap<Ino, Vec<(Range<u64>, usize)>>,
    journal: Option<usize>,
    /// The sectors of the current event.
    sectors: (usize, Vec<usize>),
}

impl Tracker {
    fn add(&mut self, number: usize, effect: &Effect) -> Vec<usize> {
        let mut needs = match &effect.change {
            Change::Names(bindings) => self.names(number, bindings),
            Change::Resize { ino, size: 0, written: false } => {
                let attributes = self.attributes.get(ino).copied();
                self.shapes.insert(*ino, number).into_iter().chain(attributes).collect()
            }
            Change::Resize { ino, .. } | Change::Clear { ino, .. } => {
                self.shapes.insert(*ino, number).into_iter().collect()
            }
            Change::Sector { ino, number: sector, .. } => self.sector(*ino, *sector),
            Change::Attributes { ino, .. }
            | Change::Time { ino, .. }
            | Change::Xattr { ino, .. } => {
                self.attributes.insert(*ino, number).into_iter().collect()
            }
        };
        if let Some((ino, range)) = effect.change.emptied() {
            self.emptied.entry(ino).or_default().push((range, number));
        }
        if self.order == Order::Journal {
            self.journal(number, effect, &mut needs);
        }
        needs
    }

    fn names(&mut self, number: usize, bindings: &[Binding]) -> Vec<usize> {
        let mut needs = Vec::new();
        for binding in bindings {
            // The directory itself must exist.
            needs.extend(self.by_inode.get(&binding.directory).copied());
            let key = (binding.directory, binding.name.clone());
            needs.extend(self.by_name.insert(key, number));
            for ino in [binding.ino, binding.loses].into_iter().flatten() {
                needs.extend(self.by_inode.insert(ino, number));
            }
        }
        needs.retain(|needed| *needed != number);
        needs
    }

    fn sector(&self, ino: Ino, sector: u64) -> Vec<usize> {
        let bytes = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
        let meets = |range: &Range<u64>| range.start < bytes.end && bytes.start < range.end;
        let mut emptied = self.emptied.get(&ino).into_iter().flatten().rev();
        let last = emptied.find(|(range, _)| meets(range));
        last.map(|(_, number)| *number).into_iter().collect()
    }

    fn journal(&mut self, number: usize, effect: &Effect, needs: &mut Vec<usize>) {
        if self.sectors.0 != effect.event {
            self.sectors = (effect.event, Vec::new());
        }
        match &effect.change {
            Change::Sector { .. } => self.sectors.1.push(number),
            change => {
                needs.extend(self.journal);
                if change.is_journalled() {
                    self.journal = Some(number);
                } else {
                    needs.extend(&self.sectors.1);
                }
            }
        }
    }
}
