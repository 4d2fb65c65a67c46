//! Reading a version from archives without restoring it.

use fslab_vfs::Request;

use crate::catalogue::ObjectState;
use crate::engine::Tier;
use crate::engine::copies::combined::CombinedCopies;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::stored::format::blocks_of;
use crate::stored::{BLOCK_BYTES, Version};

/// Receives a block of a version: its offset, its length, and its bytes, which are `None` if all of
/// them are zeros.
type BlockSink<'a> = dyn FnMut(u64, u64, Option<&[u8]>) -> Result<()> + 'a;

impl Tier {
    /// Reads a version from archives, and calls `visit` with its blocks in ascending order. Each
    /// block was verified.
    ///
    /// # Errors
    /// If there is no such version, or it is no longer kept; if a block can't be read from any
    /// archive; errors of `visit`; [`Error::Interrupted`].
    pub(crate) fn read_version(
        &self,
        object: Id,
        request: &Request,
        visit: &mut BlockSink<'_>,
    ) -> Result<()> {
        let row = self.catalogue.get(object)?;
        let row =
            row.filter(|row| !matches!(row.state, ObjectState::Pending | ObjectState::Source));
        let version = row.map(|row| row.version).ok_or_else(|| Error::Refused {
            what: format!(
                "version {object} does not exist or is no longer kept; see `fslab tier versions`"
            ),
        })?;
        for block in 0..blocks_of(version.size) {
            self.check_going(request)?;
            let offset = block * BLOCK_BYTES;
            let bytes = (version.size - offset).min(BLOCK_BYTES);
            visit(offset, bytes, self.block_of_version(&version, block)?.as_deref())?;
        }
        Ok(())
    }

    /// Returns a block of a version; `None` if it contains only zeros.
    fn block_of_version(&self, version: &Version, block: u64) -> Result<Option<Vec<u8>>> {
        let read = self.ask_holders(version, |archive| {
            let reader = self.reader(archive, version)?;
            if reader.is_zeros(block)? { Ok(None) } else { reader.block(block).map(Some) }
        });
        match read {
            Err(Error::Interrupted) => Err(Error::Interrupted),
            // No copy is intact, but the intact parts of several copies may suffice.
            Err(error) if self.holders(version).len() > 1 => {
                let block = CombinedCopies::block(self.holders(version), version, block);
                block.map(Some).or(Err(error))
            }
            read => read,
        }
    }
}
