//! The operations of a workload, from a profile or a file.

use std::path::PathBuf;

use fslab_age::workload::{Operation, WorkloadReader};

/// A source of operations that can be read repeatedly.
pub(super) enum Source {
    Made(Vec<Operation>),
    File(PathBuf),
}

impl Source {
    /// Returns all operations, in order.
    pub fn operations(
        &self,
    ) -> fslab_age::Result<Box<dyn Iterator<Item = fslab_age::Result<Operation>> + '_>> {
        Ok(match self {
            Self::Made(operations) => Box::new(operations.iter().cloned().map(Ok)),
            Self::File(path) => Box::new(WorkloadReader::open(path)?),
        })
    }

    /// Calls `call` with each operation, in order.
    pub fn each(
        &self,
        call: &mut dyn FnMut(&Operation) -> fslab_age::Result<()>,
    ) -> fslab_age::Result<()> {
        self.operations()?.try_for_each(|operation| call(&operation?))
    }
}
