//! Shows how to write an allocation policy, with first fit as the example. See
//! docs/guide/src/how-to/write-an-allocator.md for a walk-through.
//!
//! `cargo run -p fslab-ext2 --example allocator`

use fslab_ext2::alloc::volume::Volume;
use fslab_ext2::alloc::{
    BlockRequest, Clustering, FileState, InodeRequest, MemorySpace, POLICIES, Policy, PolicySpec,
    Preference, Run, Space,
};
use fslab_ext2::{BlockSize, Geometry, GroupNo, InodeNo, Result};

/// The declaration of the policy. In fslab, each policy has a separate file and one line in
/// `POLICIES`.
pub const SPEC: PolicySpec = PolicySpec {
    name: "first-fit",
    help: "uses the first free blocks of the file system for every file",
    build: |_geometry, _seed| Box::new(FirstFit),
};

/// The first-fit policy, which needs no state.
struct FirstFit;

impl Policy for FirstFit {
    fn place_inode(
        &mut self,
        space: &mut dyn Space,
        _request: &InodeRequest,
    ) -> Result<Option<InodeNo>> {
        let geometry = *space.geometry();
        for group in geometry.all_groups() {
            if let Some(bit) = space.inodes(group)?.next_free(0) {
                return Ok(Some(geometry.inode_at(group, bit)));
            }
        }
        Ok(None)
    }

    fn place_blocks(
        &mut self,
        space: &mut dyn Space,
        _file: &mut FileState,
        request: &BlockRequest,
    ) -> Result<Option<Run>> {
        let geometry = *space.geometry();
        for group in geometry.all_groups() {
            let blocks = space.blocks(group)?;
            if let Some(bit) = blocks.next_free(0) {
                let most = bit.saturating_add(request.missing + request.wanted);
                let end = blocks.run_end(bit, most.min(blocks.length()));
                return Ok(Some(Run { start: geometry.block_at(group, bit), length: end - bit }));
            }
        }
        Ok(None)
    }

    /// A cluster may be moved to the first free run in the file system that is long enough.
    fn preference(&self, _space: &dyn Space, _request: &BlockRequest) -> Preference {
        Preference { group: GroupNo(0), block: None }
    }
}

/// The geometry of a file system of 64 MiB, with groups of 8 MiB and blocks of 4 KiB.
fn geometry() -> Option<Geometry> {
    Some(Geometry {
        block_size: BlockSize::new(4096)?,
        blocks: 16384,
        first_data_block: 0,
        blocks_per_group: 2048,
        inodes_per_group: 512,
        inode_size: 128,
        first_inode: InodeNo(11),
        groups: 8,
        sparse_super: false,
        sparse_super2: false,
        reserved_descriptor_blocks: 0,
    })
}

/// Alternately appends to two files; returns the number of contiguous pieces of the first file.
fn pieces(spec: &PolicySpec, geometry: Geometry) -> Result<usize> {
    let space = MemorySpace::new(geometry, geometry.overhead(GroupNo(1)), 11);
    let mut volume = Volume::new(space, (spec.build)(&geometry, 1), Clustering::Dumb);
    let request = InodeRequest { parent: InodeNo::ROOT, directory: false, top_level: true };
    let files = [volume.create(&request)?, volume.create(&request)?];
    for _turn in 0..20 {
        for file in files.into_iter().flatten() {
            volume.append(file, 2, true)?;
        }
    }
    let first = files[0].map(|file| volume.blocks(file)).unwrap_or_default();
    Ok(first.chunk_by(|one, next| one.0 + 1 == next.0).count())
}

fn main() -> Result<()> {
    let Some(geometry) = geometry() else { return Ok(()) };
    for spec in POLICIES.iter().chain([&SPEC]) {
        println!("{:<14} {} pieces", spec.name, pieces(spec, geometry)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_reduce_fragmentation_of_interleaved_files() {
        let geometry = geometry().unwrap();
        let of = |name| {
            let spec = POLICIES.iter().chain([&SPEC]).find(|spec| spec.name == name).unwrap();
            pieces(spec, geometry).unwrap()
        };
        assert!(of("first-fit") >= 20, "{}", of("first-fit"));
        assert!(of("ext2") < of("first-fit"), "{} {}", of("ext2"), of("first-fit"));
    }
}
