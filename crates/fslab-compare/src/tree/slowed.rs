//! A tree that lengthens each operation by a fraction of its duration. The self-test injects this
//! delay and must detect it.
//!
//! The delay follows each operation, so that the operation seems to take longer. It is a busy loop,
//! because a sleep of microseconds is not exact.

use std::hint::spin_loop;
use std::path::Path;

use fslab_sys::usage::Instant;
use fslab_vfs::FileSystem;

use super::{Access, Status, Tree, TreeFile};
use crate::error::Result;

/// Runs an operation, then waits for the fraction `share` of its duration.
pub(crate) fn slowed<T>(share: f64, operation: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = operation();
    let until = start.elapsed().mul_f64(1.0 + share);
    while start.elapsed() < until {
        spin_loop();
    }
    done
}

/// A tree with slowed operations.
pub(crate) struct SlowedTree<'a> {
    pub tree: &'a dyn Tree,
    pub share: f64,
}

impl SlowedTree<'_> {
    fn file<'a>(&self, file: Result<Box<dyn TreeFile + 'a>>) -> Result<Box<dyn TreeFile + 'a>> {
        Ok(Box::new(SlowedFile { file: file?, share: self.share }))
    }
}

impl Tree for SlowedTree<'_> {
    fn make_directory(&self, path: &str) -> Result<()> {
        slowed(self.share, || self.tree.make_directory(path))
    }

    fn create(&self, path: &str) -> Result<Box<dyn TreeFile + '_>> {
        self.file(slowed(self.share, || self.tree.create(path)))
    }

    fn create_empty(&self, path: &str) -> Result<()> {
        slowed(self.share, || self.tree.create_empty(path))
    }

    fn open(&self, path: &str, access: Access) -> Result<Box<dyn TreeFile + '_>> {
        self.file(slowed(self.share, || self.tree.open(path, access)))
    }

    fn status(&self, path: &str) -> Result<Status> {
        slowed(self.share, || self.tree.status(path))
    }

    fn list(&self, path: &str, each: &mut dyn FnMut(&str)) -> Result<()> {
        slowed(self.share, || self.tree.list(path, each))
    }

    fn rename(&self, path: &str, to: &str) -> Result<()> {
        slowed(self.share, || self.tree.rename(path, to))
    }

    fn remove(&self, path: &str) -> Result<()> {
        slowed(self.share, || self.tree.remove(path))
    }

    fn path(&self) -> Option<&Path> {
        self.tree.path()
    }

    fn sync_all(&self) -> Result<()> {
        slowed(self.share, || self.tree.sync_all())
    }

    fn with_file_system(&self, work: &mut dyn FnMut(&dyn FileSystem) -> Result<()>) -> Result<()> {
        slowed(self.share, || self.tree.with_file_system(work))
    }
}

struct SlowedFile<'a> {
    file: Box<dyn TreeFile + 'a>,
    share: f64,
}

impl TreeFile for SlowedFile<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        slowed(self.share, || self.file.read_at(offset, buffer))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        slowed(self.share, || self.file.write_at(offset, data))
    }

    fn append(&self, data: &[u8]) -> Result<()> {
        slowed(self.share, || self.file.append(data))
    }

    fn sync(&self) -> Result<()> {
        slowed(self.share, || self.file.sync())
    }

    fn resident_pages(&self) -> Result<Option<u64>> {
        self.file.resident_pages()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { file, share } = *self;
        slowed(share, || file.close())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn slowed_operation_takes_the_given_share_longer() {
        for (share, least, most) in [(0.0, 10, 14), (1.0, 20, 26)] {
            // Other processes may use the processor during an attempt, so the shortest of several
            // attempts is used.
            let mut shortest = Duration::MAX;
            for _ in 0..9 {
                let start = Instant::now();
                slowed(share, || std::thread::sleep(Duration::from_millis(10)));
                shortest = shortest.min(start.elapsed());
            }
            let milliseconds = shortest.as_millis();
            assert!((least..=most).contains(&milliseconds), "{share}: {milliseconds} ms");
        }
    }
}
