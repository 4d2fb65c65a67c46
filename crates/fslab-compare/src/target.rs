//! Targets: what a plan compares, brought into being for one run and gone after it.
//!
//! Whatever a target attaches or mounts is held by guards: it goes on every exit path, in the
//! order opposite to its making.

mod bounded;
mod device;
mod directory;
mod engine;
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

use bounded::Bounded;
pub(crate) use eviction::drops_names;
pub(crate) use prepared::{Remounted, Target};

use crate::error::{Error, Result};
use crate::host::{Host, HostError};
use crate::plan::{ImagePlan, Over, TargetKind, TargetPlan};
use fslab_report::sample::TargetRecord;

/// What targets are made with.
#[derive(Clone, Copy)]
pub(crate) struct Workshop<'a> {
    pub host: &'a dyn Host,
    pub work_directory: &'a Path,
    pub image_size: u64,
}

/// Makes a target, and what there is to record of how.
pub(crate) fn make(
    plan: &TargetPlan,
    shop: Workshop<'_>,
) -> Result<(Box<dyn Target>, TargetRecord)> {
    let Some(limit) = plan.memory else { return make_unbounded(plan, shop) };
    let bound = MemoryBound::enter(limit)?;
    let (target, mut record) = make_unbounded(plan, shop)?;
    record.memory_limit = Some(bound.limit()?);
    Ok((Box::new(Bounded { target, bound }), record))
}

fn make_unbounded(
    plan: &TargetPlan,
    shop: Workshop<'_>,
) -> Result<(Box<dyn Target>, TargetRecord)> {
    match &plan.kind {
        TargetKind::Image { base, over } => {
            if let Over::Layers(layers) = over {
                let unknown = |source| unknown(plan, &layers.join(" / "), source);
                shop.host.check_layers(layers).map_err(unknown)?;
            }
            check_recorded(plan, base)?;
            image::make(&plan.name, base, over, shop)
        }
        TargetKind::Directory { path, cold } => directory::make(&plan.name, path, *cold),
        TargetKind::Engine { base, options } => {
            check_recorded(plan, base)?;
            engine::make(&plan.name, base, options, shop)
        }
        TargetKind::InProcess { specification } => {
            let made = shop.host.file_system(specification);
            let file_system = made.map_err(|source| unknown(plan, specification, source))?;
            Ok(in_process::make(&plan.name, specification, file_system))
        }
    }
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
        None => Error::InProcess { spec: specification.to_owned(), source },
    }
}
