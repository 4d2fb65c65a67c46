//! Targets: what a plan compares, brought into being for one run and gone after it.
//!
//! Whatever a target attaches or mounts is held by guards: it goes on every exit path, in the
//! order opposite to its making.

mod device;
mod directory;
mod eviction;
pub(crate) mod fill;
pub(crate) mod foreign;
mod image;
mod image_file;
mod in_process;
pub(crate) mod leftovers;
mod prepared;
mod requests;
mod storage;
pub(crate) mod work_directory;

use std::path::Path;

use fslab_sys::memory_bound::MemoryBound;

pub(crate) use eviction::drops_names;
pub(crate) use prepared::{Remounted, Target};

use crate::error::{Error, Result};
use crate::host::{Host, HostError, OtherProgram};
use crate::plan::{ImagePlan, Over, TargetKind, TargetPlan};
use fslab_report::sample::TargetRecord;

/// What targets are made with.
#[derive(Clone, Copy)]
pub(crate) struct Workshop<'a> {
    pub host: &'a dyn Host,
    pub work_directory: &'a Path,
    pub image_size: u64,
}

/// A target that is made, and the bound on the memory of its run: of this process and every daemon
/// it starts, and of the page cache of what they read and write. Fields are dropped in this order:
/// daemons of the target are in the group.
pub(crate) struct MadeTarget {
    pub target: Box<dyn Target>,
    bound: Option<MemoryBound>,
}

impl MadeTarget {
    /// Ends it; answers what did not go as it should.
    pub fn tear_down(self) -> Result<Vec<String>> {
        let notes = self.target.tear_down()?;
        self.bound.map_or(Ok(()), MemoryBound::leave)?;
        Ok(notes)
    }
}

/// Makes a target, and what there is to record of how.
pub(crate) fn make(plan: &TargetPlan, shop: Workshop<'_>) -> Result<(MadeTarget, TargetRecord)> {
    let bound = plan.memory.map(MemoryBound::enter).transpose()?;
    let other = plan.program.as_ref().map(|program| OtherProgram { host: shop.host, program });
    // Which layers another program has, it says itself.
    let shop = match &other {
        Some(other) => Workshop { host: other, ..shop },
        None => shop,
    };
    let (target, mut record) = match &plan.kind {
        TargetKind::Image { base, over } => {
            if let Over::Layers(layers) = over {
                let unknown = |source| unknown(plan, &layers.join(" / "), source);
                shop.host.check_layers(layers).map_err(unknown)?;
            }
            check_recorded(plan, base)?;
            image::make(&plan.name, base, over, shop)?
        }
        TargetKind::Directory { path, cold } => directory::make(&plan.name, path, *cold)?,
        TargetKind::InProcess { specification } => {
            let made = shop.host.file_system(specification);
            let file_system = made.map_err(|source| unknown(plan, specification, source))?;
            in_process::make(&plan.name, specification, file_system)
        }
    };
    record.memory_limit = bound.as_ref().map(MemoryBound::limit).transpose()?;
    Ok((MadeTarget { target, bound }, record))
}

/// Says where an image is missing that the plan allows to be missing.
fn check_recorded(plan: &TargetPlan, base: &ImagePlan) -> Result<()> {
    if let (Some(recorded), Some(_)) = (&base.recorded, &plan.needs)
        && let Err(source) = std::fs::metadata(recorded)
    {
        let named = format!("{}: {source}", recorded.display());
        return Err(unknown(plan, "", named.into()));
    }
    Ok(())
}

/// The host does not know a specification: missing where the plan says that it may be, else wrong.
fn unknown(plan: &TargetPlan, specification: &str, source: HostError) -> Error {
    match &plan.needs {
        Some(needs) => Error::Missing { needs: needs.clone(), source },
        None => Error::Host { what: specification.to_owned(), source },
    }
}
