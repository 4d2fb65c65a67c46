//! Free memory of a virtual machine that its host keeps backed by real memory.
//!
//! A guest reports large free blocks of its memory to its host (free page reporting), and the host
//! may take them back. When the guest next touches such a page, the host must provide it again,
//! which costs some microseconds. If only one page of a block is in use, the block is never
//! reported. The kernel then prefers the other pages of the block for allocations smaller than a
//! block.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::mapping::Mapping;

/// Bytes of the blocks that guests report.
const BLOCK: usize = 2 << 20;

/// Bits of an entry of `/proc/self/pagemap` that contain the page's number.
const PAGE_NUMBER: u64 = (1 << 55) - 1;

/// Blocks of memory that the host keeps provided. In each block, one page is in use and the others
/// are free. When this is dropped, the pages in use are freed too.
#[derive(Debug)]
pub struct ProvidedMemory {
    _held: Mapping,
}

impl ProvidedMemory {
    /// Touches this many bytes, and then frees all but one page of each block. Only root can see to
    /// which physical block a page belongs. For other users, one page in each 2 MiB of virtual
    /// memory is kept, which misses some blocks.
    ///
    /// The kernel may kill a process that touches more memory than is available.
    ///
    /// # Errors
    /// Errors of mapping memory and of reading `/proc/self/pagemap`.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let mut memory = Mapping::new(bytes)?;
        memory.as_mut_slice().iter_mut().step_by(page).for_each(|byte| *byte = 1);
        let blocks = blocks(&mut memory, page)?;
        let mut seen = std::collections::HashSet::new();
        let mut free_from = 0;
        for (at, block) in blocks.into_iter().enumerate() {
            if seen.insert(block) {
                memory.discard(free_from..at * page);
                free_from = (at + 1) * page;
            }
        }
        memory.discard(free_from..memory.len());
        Ok(Self { _held: memory })
    }
}

/// Returns the block of each page: physical for root, virtual for others.
fn blocks(memory: &mut Mapping, page: usize) -> io::Result<Vec<u64>> {
    let count = memory.len() / page;
    let mut entries = vec![0; count * size_of::<u64>()];
    let first = memory.as_mut_ptr().addr() / page;
    let pagemap = File::open("/proc/self/pagemap")?;
    pagemap.read_exact_at(&mut entries, (first * size_of::<u64>()) as u64)?;
    let per_block = (BLOCK / page) as u64;
    let entries = entries.as_chunks::<{ size_of::<u64>() }>().0;
    Ok((0..)
        .zip(entries)
        .map(|(at, entry)| {
            // Page number 0 means that the caller may not see page numbers.
            let number = u64::from_ne_bytes(*entry) & PAGE_NUMBER;
            if number == 0 { at / per_block } else { number / per_block }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_of_each_block_is_held() {
        let page = rustix::param::page_size();
        let mut memory = ProvidedMemory::new(32 << 20).unwrap()._held;
        let mut resident = vec![0; memory.len() / page];
        let start = memory.as_mut_ptr().cast();
        // SAFETY: the range is the mapping, and the vector has a byte for each of its pages.
        let answer = unsafe { libc::mincore(start, memory.len(), resident.as_mut_ptr()) };
        assert_eq!(answer, 0);
        let kept = resident.iter().filter(|flags| **flags & 1 == 1).count();
        assert!(kept >= memory.len() / BLOCK, "{kept} pages are kept");
        let blocks = blocks(&mut memory, page).unwrap();
        let kept: Vec<u64> = blocks
            .into_iter()
            .zip(resident)
            .filter_map(|(block, flags)| (flags & 1 == 1).then_some(block))
            .collect();
        let distinct: std::collections::HashSet<_> = kept.iter().collect();
        assert_eq!(distinct.len(), kept.len(), "two pages of a block are kept");
    }
}
