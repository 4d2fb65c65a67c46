//! A target that is a file system within this process, without a mount. The kernel's page cache is
//! not involved.

use fslab_vfs::FileSystem;

use super::Target;
use crate::error::Result;
use crate::tree::{StackTree, Tree};
use fslab_report::sample::TargetRecord;

pub(super) fn make(
    name: &str,
    specification: &str,
    file_system: Box<dyn FileSystem>,
) -> (Box<dyn Target>, TargetRecord) {
    let record = TargetRecord {
        name: name.to_owned(),
        description: format!("{specification} inside the fslab process, without a mount"),
        in_process: true,
        ..TargetRecord::default()
    };
    (Box::new(InProcess { tree: StackTree::new(file_system) }), record)
}

struct InProcess {
    tree: StackTree,
}

impl Target for InProcess {
    fn tree(&self) -> Result<&dyn Tree> {
        Ok(&self.tree)
    }

    fn tear_down(self: Box<Self>) -> Result<Vec<String>> {
        self.tree.shut_down()?;
        Ok(Vec::new())
    }
}
