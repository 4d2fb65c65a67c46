//! The built-in plans, and the built-in TOML files with the claims of each paper. Both are found by
//! name.

use std::path::Path;

use anyhow::Result;
use fslab_compare::Plan;
use fslab_compare::plan::Form;

/// A text file that is part of the program.
pub(super) struct Text {
    /// The name, without a suffix.
    pub name: &'static str,
    pub text: &'static str,
}

/// Includes the TOML files with these names from a folder of the project.
macro_rules! texts {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(Text {
            name: $name,
            text: include_str!(concat!("../../../../", $folder, "/", $name, ".toml")),
        }),+]
    };
}

/// The lists of claims of all papers, in the order of the papers' pages.
pub(super) const PAPERS: &[Text] =
    texts!("docs/reproduce": "fast-indexing", "aging", "dmfs", "htree", "attributes");

/// All plans.
pub(super) const PLANS: &[Text] = texts!(
    "plans": "default", "quick", "in-process", "null-stack", "kernel-boundary", "names",
    "names-sizes", "names-millions", "names-mounted", "sca", "copies", "chunks", "tails", "appends",
    "overwrites", "compile", "fast-indexing", "fast-indexing-tools", "dmfs", "aging",
    "aging-policies", "attributes", "applications", "transports",
);

impl Text {
    /// Parses the plan.
    ///
    /// # Errors
    /// Fails if the plan is invalid.
    pub fn plan(&self, form: Form) -> Result<Plan> {
        Ok(Plan::parse(&format!("plans/{}.toml", self.name), self.text, form)
            .map_err(fslab_compare::Error::from)?)
    }

    /// Returns the plan's title on one line, or the error of an invalid plan.
    pub fn title(&self) -> String {
        self.plan(Form::Full).map_or_else(|error| error.to_string(), |plan| plan.name)
    }
}

/// Returns the built-in plan of this name.
pub(super) fn find(name: &str) -> Option<&'static Text> {
    PLANS.iter().find(|plan| plan.name == name)
}

/// Returns the built-in plan of this name.
///
/// # Errors
/// Fails if there is no such plan; the error suggests the most similar name.
pub(super) fn plan_of(name: &str, form: Form) -> Result<Plan> {
    match find(name) {
        Some(text) => text.plan(form),
        None => bail_as!(
            BadInput,
            "there is neither a file nor a built-in plan '{name}' (`fslab list plans` lists the \
             built-in ones){}",
            fslab_report::suggestion(name, PLANS.iter().map(|plan| plan.name))
        ),
    }
}

/// Reads a plan file, or the built-in plan of this name if there is no such file.
///
/// # Errors
/// Fails if there is neither such a file nor such a plan, or if the plan is invalid. The error
/// suggests the most similar name.
pub(super) fn read(path: &Path, form: Form) -> Result<Plan> {
    let is_name = path.parent() == Some(Path::new("")) && path.extension().is_none();
    if path.is_file() || !is_name {
        return Ok(Plan::read(path, form)?);
    }
    plan_of(&path.to_string_lossy(), form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_file_is_built_in_and_parses() {
        let files = std::fs::read_dir("../../plans").unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> =
            files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        let mut names: Vec<_> = PLANS.iter().map(|plan| plan.name.to_owned()).collect();
        files.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, files);
        for plan in PLANS {
            for form in [Form::Full, Form::Quick] {
                plan.plan(form).unwrap_or_else(|error| panic!("{}: {error:#}", plan.name));
            }
        }
    }

    #[test]
    fn an_unknown_plan_is_refused_with_the_nearest_name() {
        let message = |name| read(Path::new(name), Form::Full).unwrap_err().to_string();
        assert!(message("dmsf").contains("did you mean dmfs?"), "{}", message("dmsf"));
        assert!(message("plans/dmfs").contains("plans/dmfs"), "{}", message("plans/dmfs"));
        assert!(read(Path::new("dmfs"), Form::Quick).is_ok());
    }
}
