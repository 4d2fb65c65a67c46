//! Pins one backing id of FUSE passthrough, so that the kernel need not rebuild its table of
//! backing files at each open.
//!
//! The table is a radix tree indexed by backing id, and the kernel assigns ever higher ids. An id
//! far from zero needs a node on each level of the tree. If no other file is registered, the kernel
//! allocates all these nodes when a file is registered, and frees them (through RCU) when it is
//! closed. An unused file that stays registered in the same leaf node keeps the nodes allocated.
//! This saves about 2 us of 13 per open.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::MemfdFlags;

use crate::transport::Transport;

/// Number of low bits of an id that select an entry within a leaf node (`XA_CHUNK_SHIFT`).
const LEAF_BITS: u32 = 6;

/// An empty unnamed file, registered in the same leaf node as the most recent backing file.
#[derive(Debug)]
pub(crate) struct BackingIdPin {
    /// `None` if the file could not be created or registered; opens then take slightly longer.
    file: Option<OwnedFd>,
    number: Option<i32>,
}

impl BackingIdPin {
    pub fn new() -> Self {
        let file = rustix::fs::memfd_create("fslab-backing-pin", MemfdFlags::CLOEXEC);
        let file = file
            .inspect_err(|error| {
                tracing::debug!(
                    %error,
                    "can't create a helper file for passthrough; opening files takes slightly \
                     longer"
                );
            })
            .ok();
        Self { file, number: None }
    }

    /// Moves the pin to the leaf node of `given`, the id assigned last, unless it is already there.
    pub fn follow(&mut self, given: i32, transport: &dyn Transport) {
        if self.number.is_some_and(|number| number >> LEAF_BITS == given >> LEAF_BITS) {
            return;
        }
        let Some(file) = &self.file else { return };
        let moved = transport.register_backing(file.as_fd()).and_then(|number| {
            self.number.replace(number).map_or(Ok(()), |left| transport.release_backing(left))
        });
        if let Err(error) = moved {
            tracing::debug!(
                %error,
                "can't register the helper file for passthrough; opening files takes slightly \
                 longer"
            );
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::Arc;

    use fslab_vfs::Errno;
    use parking_lot::Mutex;

    use super::BackingIdPin;
    use crate::transport::{ReadMode, Received, Transport};

    /// A table that assigns consecutive ids without reuse, like the kernel.
    #[derive(Debug, Default)]
    struct Table {
        next: Mutex<i32>,
        held: Mutex<Vec<i32>>,
        is_full: bool,
    }

    impl Transport for Table {
        fn receive(&self, _buffer: &mut [u8]) -> Result<Received, Errno> {
            Err(Errno::NOSYS)
        }

        fn reply(&self, _unique: u64, _answer: Result<&[u8], Errno>) -> Result<(), Errno> {
            Err(Errno::NOSYS)
        }

        fn notify(&self, _code: i32, _parts: &[&[u8]]) -> Result<(), Errno> {
            Err(Errno::NOSYS)
        }

        fn another(&self, _reading: ReadMode) -> Result<Arc<dyn Transport>, Errno> {
            Err(Errno::NOSYS)
        }

        fn register_backing(&self, _file: BorrowedFd<'_>) -> Result<i32, Errno> {
            if self.is_full {
                return Err(Errno::NOSPC);
            }
            let mut next = self.next.lock();
            *next += 1;
            self.held.lock().push(*next);
            Ok(*next)
        }

        fn release_backing(&self, identifier: i32) -> Result<(), Errno> {
            self.held.lock().retain(|held| *held != identifier);
            Ok(())
        }

        fn is_connected(&self) -> bool {
            true
        }
    }

    /// Registers and releases a backing file, and returns its id.
    fn pass_a_file_through(pin: &mut BackingIdPin, table: &Table) -> i32 {
        let number = table.register_backing(pin.file.as_ref().unwrap().as_fd()).unwrap();
        pin.follow(number, table);
        table.release_backing(number).unwrap();
        number
    }

    #[test]
    fn pin_holds_one_number_near_the_newest_backing_id() {
        let (mut pin, table) = (BackingIdPin::new(), Table::default());
        for _ in 0..500 {
            let number = pass_a_file_through(&mut pin, &table);
            let held = table.held.lock().clone();
            assert_eq!(held.len(), 1, "one pin, and the earlier one is released: {held:?}");
            assert!((held[0] - number).abs() < 64, "{held:?} is far from {number}");
        }
        assert!(*table.next.lock() < 520, "it moves once a leaf, not once a file");
    }

    #[test]
    fn full_backing_table_only_drops_the_pin() {
        let (mut pin, table) = (BackingIdPin::new(), Table { is_full: true, ..Table::default() });
        pin.follow(1, &table);
        assert!(pin.file.is_none());
        pin.follow(100, &table);
        assert!(table.held.lock().is_empty());
    }
}
