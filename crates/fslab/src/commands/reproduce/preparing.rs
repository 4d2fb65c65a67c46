//! Makes files that plans need, if they are missing: aged images, and the workload that aged them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use fslab_age::workload::identity_of_file;
use fslab_compare::Plan;
use fslab_compare::plan::Form;
use fslab_reproduce::Preparation;
use fslab_sys::signals::Interrupt;

use super::asking;

/// The folder of these files, within the directory of a run.
pub(super) const FOLDER: &str = "prepared";

/// Makes the files that are missing in the current directory. They are made in order, because a
/// file may need those before it. If a file can't be made, prints the reason. Returns the names of
/// these files; the targets that need them are not measured.
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

/// Makes an argument absolute if it is a prepared file in the current directory. The command runs
/// in another directory.
fn from_here(word: &str, preparations: &[&Preparation]) -> String {
    let is_file = preparations.iter().any(|one| one.file == word) && Path::new(word).exists();
    let whole = is_file.then(|| std::path::absolute(word).ok()).flatten();
    whole.map_or_else(|| word.to_owned(), |path| path.display().to_string())
}

/// Changes a plan so that it uses the prepared files. From then on, the plan requires that all
/// images, including the user's, were aged by the current workload.
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
