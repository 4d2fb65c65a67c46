//! Makes files that plans name, where the user has none: aged images, and the workload they are of.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_measure::Plan;
use fslab_measure::plan::{Form, TargetKind};
use fslab_measure::reproduce::Preparation;
use fslab_sys::signals::Interrupt;

use super::asking;

/// Where they are made, in the directory of a run.
pub(super) const FOLDER: &str = "prepared";

/// Makes what is not in the current directory, in order: later ones may be of earlier ones. What
/// can't be made says why, and is answered; the targets that need it are missing then.
pub(super) fn prepare(
    preparations: &[&Preparation],
    form: Form,
    out: &Path,
    interrupt: &Interrupt,
) -> Result<Vec<String>> {
    let mut failed = Vec::new();
    let folder = out.join(FOLDER);
    for preparation in preparations {
        if Path::new(&preparation.file).exists() || interrupt.is_raised() {
            continue;
        }
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let quick = preparation.quick.as_ref().filter(|_| form == Form::Quick);
        if let Err(reason) = asking::make(quick.unwrap_or(&preparation.run), &folder) {
            eprintln!("{} was not made: {reason}", preparation.file);
            failed.push(preparation.file.clone());
        }
    }
    Ok(failed)
}

/// Lets the targets of a plan find what was made.
pub(super) fn point_to(plan: &mut Plan, out: &Path) {
    for target in &mut plan.targets {
        let TargetKind::Image { base, .. } = &mut target.kind else { continue };
        let Some(recorded) = &base.recorded else { continue };
        let made: PathBuf = out.join(FOLDER).join(recorded);
        if !recorded.exists() && made.exists() {
            base.recorded = Some(made);
        }
    }
}
