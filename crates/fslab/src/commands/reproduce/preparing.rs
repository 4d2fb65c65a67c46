//! Makes files that plans name, where the user has none: aged images, and the workload they are of.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use fslab_age::workload::identity_of_file;
use fslab_compare::Plan;
use fslab_compare::plan::Form;
use fslab_reproduce::Preparation;
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
        let arguments = quick.unwrap_or(&preparation.run);
        let arguments: Vec<String> =
            arguments.iter().map(|word| from_here(word, preparations)).collect();
        if let Err(reason) = asking::make(&arguments, &folder) {
            eprintln!("{} was not made: {reason}", preparation.file);
            failed.push(preparation.file.clone());
        }
    }
    Ok(failed)
}

/// An argument that is a file which the current directory has, by its whole path: the command works
/// in another directory.
fn from_here(word: &str, preparations: &[&Preparation]) -> String {
    let is_file = preparations.iter().any(|one| one.file == word) && Path::new(word).exists();
    let whole = is_file.then(|| std::path::absolute(word).ok()).flatten();
    whole.map_or_else(|| word.to_owned(), |path| path.display().to_string())
}

/// Lets the targets of a plan, and its workloads, find what was made. Images, also those that the
/// user has, must be of the workload that is there.
pub(super) fn point_to(plan: &mut Plan, out: &Path, preparations: &[&Preparation]) -> Result<()> {
    let folder = out.join(FOLDER);
    for preparation in preparations {
        let (file, Some(workload)) = (Path::new(&preparation.file), &preparation.workload) else {
            continue;
        };
        let here = Path::new(workload).to_owned();
        let workload = if here.exists() { here } else { folder.join(&here) };
        if plan.has_recorded(file) && workload.exists() {
            plan.require_workload(file, &identity_of_file(&workload)?);
        }
    }
    plan.look_in(&folder);
    Ok(())
}
