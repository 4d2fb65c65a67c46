//! An existing directory as a target. Workloads use a new subdirectory, which is removed at the end
//! of the run. The directory is never remounted. With `cold`, the cached pages of its files are
//! dropped before cold phases.

use std::path::Path;

use tempfile::TempDir;

use super::{Remounted, Target, eviction};
use crate::error::{Error, Result};
use crate::tree::{HostTree, Tree};
use fslab_report::sample::TargetRecord;

pub(super) fn make(name: &str, path: &Path, cold: bool) -> Result<(Box<dyn Target>, TargetRecord)> {
    let directory = TempDir::with_prefix_in("fslab-target-", path).map_err(Error::file(path))?;
    if cold {
        eviction::check(directory.path())?;
    }
    let made = if cold { ", made cold by dropping its cached pages" } else { "" };
    let record = TargetRecord {
        name: name.to_owned(),
        description: format!("directory {}{made}", path.display()),
        ..TargetRecord::default()
    };
    let tree = HostTree::open(directory.path())?;
    Ok((Box::new(Directory { tree, directory, cold }), record))
}

struct Directory {
    tree: HostTree,
    directory: TempDir,
    cold: bool,
}

impl Target for Directory {
    fn tree(&self) -> Result<&dyn Tree> {
        Ok(&self.tree)
    }

    fn remount(&mut self) -> Result<Option<Remounted>> {
        if !self.cold {
            return Ok(None);
        }
        eviction::evict(self.directory.path())?;
        Ok(Some(Remounted { evicted: true, device_pages: None }))
    }

    fn tear_down(self: Box<Self>) -> Result<Vec<String>> {
        let Self { tree, directory, .. } = *self;
        drop(tree);
        let path = directory.path().to_owned();
        directory.close().map_err(Error::file(&path))?;
        Ok(Vec::new())
    }
}
