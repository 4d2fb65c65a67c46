//! Bundling: the small files of an archiving run are written to one container.
//!
//! 1. The files are read, several at once; a file that changes while it is read is skipped
//!    (`archiver`).
//! 2. The catalogue records all objects of the bundle as pending, in one step.
//! 3. The bundle is written to the required number of archives. It is read back from each archive
//!    that does not prove it by a checksum.
//! 4. The files' xattrs durably refer to the new versions, except for files that a program has
//!    begun to change (`marking`).
//! 5. The catalogue records the objects as the latest versions of their files, in one step.

use std::sync::Arc;

use fslab_vfs::Request;

use crate::archive::Archive;
use crate::catalogue::ObjectRow;
use crate::engine::Tier;
use crate::engine::copies::put_container;
use crate::engine::outbound::archiving::{Block, Job};
use crate::error::Result;
use crate::id::Id;
use crate::object::bundle::{enclose, list_bytes};
use crate::object::writer::{BlockEncoder, Heading, ObjectWriter};
use crate::parallel::in_shares;
use crate::rate_limit::Pace;
use crate::stored::format::{BLOCK_BYTES, BUNDLE_BYTES_MAX, KIND_BUNDLE, MEMBERS_MAX};
use crate::stored::{Attributes, Location};

/// The highest permitted setting for the maximum size of bundled files, in bytes.
pub const BUNDLED_BYTES_MAX: u64 = BLOCK_BYTES;

/// Bundles with fewer files than this are read, encoded and recorded by one thread.
pub(super) const SHARED_MIN: usize = 64;

/// Number of files that several threads read in parallel before they are bundled.
const READ_TOGETHER: usize = 256;

/// A bundle is archived once it has this many bytes of files.
const BUNDLE_BYTES: usize = 8 << 20;

/// The rule by which small files are divided into bundles. An archiving run and its plan both use
/// it.
#[derive(Debug, Default)]
pub(in crate::engine) struct Filling {
    /// Number of files that were not read yet, and their bytes.
    waiting: (usize, usize),
    /// Number of files that were read, and their bytes.
    gathered: (usize, usize),
}

impl Filling {
    /// Adds a file that is not read yet.
    pub(in crate::engine) fn wait(&mut self, bytes: u64) {
        self.waiting = (self.waiting.0 + 1, self.waiting.1 + bytes as usize);
    }

    /// Returns whether the waiting files must be read now.
    pub(in crate::engine) fn must_read(&self) -> bool {
        self.waiting.0 == READ_TOGETHER || self.is_full()
    }

    /// Begins to read the waiting files.
    pub(in crate::engine) fn begin_reading(&mut self) {
        self.waiting = (0, 0);
    }

    /// Adds a file that was read, with the bytes of its contents and its metadata. Returns whether
    /// the gathered files must be archived now.
    pub(in crate::engine) fn gather(&mut self, bytes: usize) -> bool {
        self.gathered = (self.gathered.0 + 1, self.gathered.1 + bytes);
        self.gathered.1 >= BUNDLE_BYTES
    }

    /// Begins a new bundle, after the gathered files were archived.
    pub(in crate::engine) fn begin_bundle(&mut self) {
        self.gathered = (0, 0);
    }

    /// Returns whether the bundle is complete.
    pub(in crate::engine) fn is_full(&self) -> bool {
        let [files, bytes] = [self.waiting.0 + self.gathered.0, self.waiting.1 + self.gathered.1];
        bytes >= BUNDLE_BYTES || files >= MEMBERS_MAX
    }
}

/// Returns whether the bundle that is being collected is archived before a file of this size is
/// archived separately. Copying a large file may take hours, and the gathered files could not be
/// released meanwhile.
pub(in crate::engine) fn is_bundle_first(size: u64) -> bool {
    size >= BUNDLE_BYTES as u64
}

/// The parts of a file that are stored in a bundle.
pub(in crate::engine) struct Contents {
    pub(in crate::engine) attributes: Attributes,
    pub(in crate::engine) bytes: Vec<u8>,
}

impl Contents {
    pub(super) fn bundled_bytes(&self) -> usize {
        bundled_bytes(self.bytes.len(), &self.attributes)
    }
}

/// Returns the bytes of a file that count for the size of a bundle.
pub(in crate::engine) fn bundled_bytes(contents: usize, attributes: &Attributes) -> usize {
    contents + attributes.bytes()
}

impl Tier {
    /// Reads a small file.
    pub(super) fn read_whole(&self, job: &Job, request: &Request) -> Result<Contents> {
        drop(self.unchanged(job)?);
        let attributes = self.attributes(&job.attr, &job.path)?;
        let mut bytes = Vec::new();
        self.each_block(job, request, &mut |number, block| {
            match block {
                Block::Zeros(length) => bytes.resize(bytes.len() + length as usize, 0),
                Block::Bytes(block) => bytes.extend(block),
                Block::Offline(length) => {
                    bytes.extend(self.offline_block(job, number, length)?);
                }
            }
            Ok(())
        })?;
        // Checks that the file did not change while it was read, because the archived bytes must be
        // its contents at one moment.
        drop(self.unchanged(job)?);
        Ok(Contents { attributes, bytes })
    }

    /// Writes files to one container, in the order of their pending rows; returns the rows with
    /// their locations. If writing fails, the container is deleted from all archives that respond.
    pub(super) fn put_bundle<'a>(
        &self,
        mut rows: Vec<ObjectRow>,
        contents: impl Iterator<Item = &'a Contents>,
        archives: &[Arc<dyn Archive>],
        pace: Pace<'_>,
    ) -> Result<Vec<ObjectRow>> {
        let before = list_bytes(rows.len());
        let mut objects = Vec::new();
        let mut members: Vec<_> = rows.iter_mut().zip(contents).collect();
        let encoded = in_shares(&mut members, SHARED_MIN, |share| {
            self.encode_members(share).map(|encoded| (share.len(), encoded))
        });
        let mut rest = members.iter_mut();
        for encoded in encoded {
            let (count, encoded) = encoded?;
            let offset = before + objects.len() as u64;
            rest.by_ref().take(count).for_each(|(row, _)| row.version.location.offset += offset);
            objects.extend(encoded);
        }
        let Some(first) = rows.first() else { return Ok(rows) };
        let container = first.version.location.container;
        let (object, file) = (self.around.identities.make(), Id::default());
        let heading = Heading { kind: KIND_BUNDLE, object, file, size: 0, ..self.heading(first) };
        let places = rows.iter().map(|row| (row.version.object, row.version.location));
        let bundle = enclose(&heading, &places.collect::<Vec<_>>(), &objects)?;
        if bundle.len() as u64 > BUNDLE_BYTES_MAX {
            let what = "the files and their metadata are too large for one bundle".to_owned();
            return Err(crate::Error::Refused { what });
        }
        self.catalogue.put(&rows)?;
        let put = put_container(archives, container, &bundle, pace);
        let proofs = put.inspect_err(|_| self.take_back(&rows, archives))?;
        self.note_proofs(container, &proofs)?;
        Ok(rows)
    }

    /// Encodes files one after another. Their rows receive the offset in the result, the length and
    /// the root hash.
    fn encode_members(&self, members: &mut [(&mut ObjectRow, &Contents)]) -> Result<Vec<u8>> {
        let (mut objects, mut encoder) = (Vec::new(), BlockEncoder::new(self.settings.level));
        for (row, Contents { attributes, bytes }) in members.iter_mut() {
            let (heading, offset) = (self.heading(row), objects.len() as u64);
            let mut writer = ObjectWriter::begin(&mut objects, &heading, attributes, &mut encoder)?;
            bytes.chunks(BLOCK_BYTES as usize).try_for_each(|block| writer.block(block))?;
            let (length, root) = writer.finish()?;
            row.version.location = Location { offset, length, ..row.version.location };
            row.version.root = root;
        }
        Ok(objects)
    }
}
