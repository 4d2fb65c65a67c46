//! Where inodes are in the tree, learnt from the records that go by.

use std::collections::HashMap;

use fslab_vfs::{Ino, Operation};

use crate::escape::escape;
use crate::record::Record;

/// Deeper than any path the kernel takes; also ends a loop that a forged trace may hold.
const DEPTH_MAX: usize = 4096;

/// What is known of the names of inodes.
#[derive(Debug, Default)]
pub struct Paths {
    places: HashMap<u64, Place>,
    /// Which inode a name in a directory stands for.
    names: HashMap<(u64, Vec<u8>), u64>,
}

#[derive(Debug)]
struct Place {
    parent: u64,
    name: Vec<u8>,
    lookups: u64,
}

impl Paths {
    /// Takes note of a record.
    pub fn learn(&mut self, record: &Record) {
        if record.errno != 0 {
            return;
        }
        match record.operation {
            Operation::Forget => self.forget(record),
            Operation::Rename => self.rename(record),
            Operation::Unlink | Operation::Rmdir => {
                if let (Some(parent), Some(name)) = (record.parent, &record.name) {
                    self.names.remove(&(parent, name.clone()));
                }
            }
            Operation::Link => self.bind(record.new_parent, record.new_name.as_ref(), record),
            _ => self.bind(record.parent, record.name.as_ref(), record),
        }
    }

    /// The path of an inode from the root; `None` where the trace has not told it.
    #[must_use]
    pub fn of(&self, ino: u64) -> Option<String> {
        let mut parts = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT.0 {
            let place = self.places.get(&at).filter(|_| parts.len() < DEPTH_MAX)?;
            parts.push(escape(&place.name));
            at = place.parent;
        }
        parts.push(String::new());
        parts.reverse();
        Some(if parts.len() == 1 { "/".to_owned() } else { parts.join("/") })
    }

    fn bind(&mut self, parent: Option<u64>, name: Option<&Vec<u8>>, record: &Record) {
        let (Some(parent), Some(name), Some(ino)) = (parent, name, record.result_inode) else {
            return;
        };
        self.names.insert((parent, name.clone()), ino);
        let place =
            self.places.entry(ino).or_insert_with(|| Place { parent, name: vec![], lookups: 0 });
        place.lookups += 1;
        (place.parent, place.name) = (parent, name.clone());
    }

    fn rename(&mut self, record: &Record) {
        let (Some(parent), Some(name)) = (record.parent, &record.name) else { return };
        let (Some(new_parent), Some(new_name)) = (record.new_parent, &record.new_name) else {
            return;
        };
        let (from, to) = ((parent, name.clone()), (new_parent, new_name.clone()));
        let (moved, replaced) = (self.names.remove(&from), self.names.remove(&to));
        let exchanged = record.flags.is_some_and(|flags| flags & 2 != 0);
        for (ino, (parent, name)) in [(moved, to), (replaced.filter(|_| exchanged), from)] {
            let Some(ino) = ino else { continue };
            if let Some(place) = self.places.get_mut(&ino) {
                (place.parent, place.name) = (parent, name.clone());
            }
            self.names.insert((parent, name), ino);
        }
    }

    fn forget(&mut self, record: &Record) {
        let (Some(ino), Some(lookups)) = (record.inode, record.size) else { return };
        let Some(place) = self.places.get_mut(&ino) else { return };
        place.lookups = place.lookups.saturating_sub(lookups);
        if place.lookups == 0
            && let Some(place) = self.places.remove(&ino)
        {
            self.names.remove(&(place.parent, place.name));
        }
    }
}
