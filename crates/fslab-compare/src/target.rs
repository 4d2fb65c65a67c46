//! Makes targets. Each target is made for one run of a comparison and removed after it.
//!
//! Guards own the loop devices and mounts of a target. Every exit path therefore removes them, in
//! reverse order.

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

/// The settings that all targets of a run share.
#[derive(Clone, Copy)]
pub(crate) struct Workshop<'a> {
    pub host: &'a dyn Host,
    pub work_directory: &'a Path,
    pub image_size: u64,
}

/// A target and the memory limit of its run. The limit covers this process, every daemon it starts,
/// and the page cache of the files they use. The target is dropped first, because its daemons
/// belong to the control group of the limit.
pub(crate) struct MadeTarget {
    pub target: Box<dyn Target>,
    bound: Option<MemoryBound>,
}

impl MadeTarget {
    /// Removes the target and returns notes about unexpected events.
    pub fn tear_down(self) -> Result<Vec<String>> {
        let notes = self.target.tear_down()?;
        self.bound.map_or(Ok(()), MemoryBound::leave)?;
        Ok(notes)
    }
}

/// Makes a target and the record of how it was made.
pub(crate) fn make(plan: &TargetPlan, shop: Workshop<'_>) -> Result<(MadeTarget, TargetRecord)> {
    let bound = plan.memory.map(MemoryBound::enter).transpose()?;
    let other = plan.program.as_ref().map(|program| OtherProgram { host: shop.host, program });
    // The layers of another program are not checked here; that program checks them.
    let shop = match &other {
        Some(other) => Workshop { host: other, ..shop },
        None => shop,
    };
    check_stack(plan, shop.host)?;
    let (target, mut record) = match &plan.kind {
        TargetKind::Image { base, over } => {
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

/// Checks the layers of a target, without making the target.
///
/// # Errors
/// Fails if a layer or leaf is unknown or its options are invalid. Layers of another program are
/// not checked, because only that program knows them.
pub fn check_stack(plan: &TargetPlan, host: &dyn Host) -> Result<()> {
    let (specification, checked) = match &plan.kind {
        _ if plan.program.is_some() => return Ok(()),
        TargetKind::Image { over: Over::Layers(layers), .. } => {
            (layers.join(" / "), host.check_layers(layers))
        }
        TargetKind::InProcess { specification } => {
            (specification.clone(), host.check_stack(specification))
        }
        TargetKind::Image { .. } | TargetKind::Directory { .. } => return Ok(()),
    };
    checked.map_err(|source| unknown(plan, &specification, source))
}

/// Fails with [`Error::Missing`] if the recorded image is missing and the plan allows that with
/// `needs`.
fn check_recorded(plan: &TargetPlan, base: &ImagePlan) -> Result<()> {
    if let (Some(recorded), Some(_)) = (&base.recorded, &plan.needs)
        && let Err(source) = std::fs::metadata(recorded)
    {
        let named = format!("{}: {source}", recorded.display());
        return Err(unknown(plan, "", named.into()));
    }
    Ok(())
}

/// Returns the error for an unknown specification: [`Error::Missing`] if the plan allows that with
/// `needs`, otherwise [`Error::Host`].
fn unknown(plan: &TargetPlan, specification: &str, source: HostError) -> Error {
    match &plan.needs {
        Some(needs) => Error::Missing { needs: needs.clone(), source },
        None => Error::Host { what: specification.to_owned(), source },
    }
}
