//! The parameters of a profile by name, for `--set NAME=VALUE`.

use super::{Directories, Profile, Sizes};
use crate::error::{Error, Result};

/// A parameter that a user may set.
#[derive(Debug)]
pub struct Parameter {
    /// The name of the parameter.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Sets the value in a profile. Returns `None` if this profile does not have the parameter.
    set: fn(&mut Profile, f64) -> Option<()>,
}

const fn of(
    name: &'static str,
    help: &'static str,
    set: fn(&mut Profile, f64) -> Option<()>,
) -> Parameter {
    Parameter { name, help, set }
}

/// Makes a parameter for the [`Profile`] field with the same name.
macro_rules! parameter {
    ($name:ident as $type:ty, $help:literal) => {
        of(stringify!($name), $help, |profile, value| {
            profile.$name = value as $type;
            Some(())
        })
    };
    ($name:ident, $help:literal) => {
        parameter!($name as f64, $help)
    };
}

/// All parameters.
pub const PARAMETERS: &[Parameter] = &[
    parameter!(filled_at_first, "share of the volume that files use at the beginning"),
    parameter!(utilisation, "share of the volume that files use at the end"),
    parameter!(
        creates_per_file,
        "number of long-lived files created per day, for each existing file"
    ),
    parameter!(changes_per_file, "number of files changed per day, for each existing file"),
    parameter!(rewrites, "share of changes that rewrite the whole file"),
    parameter!(
        operations_per_file,
        "number of operations per day, for each file that exists at the end"
    ),
    parameter!(writes_per_volume, "bytes written per day, as a share of the volume"),
    parameter!(short_sigma, "spread of the sizes of files that live less than a day"),
    parameter!(day_sigma, "spread of the activity between days"),
    parameter!(idle_days, "share of days without operations"),
    parameter!(directory_sigma, "spread of the numbers of new files between directories"),
    parameter!(
        change_candidates as u32,
        "number of randomly chosen files; the largest of them is changed"
    ),
    of("size_mu", "mean of the logarithm of sizes, if sizes are lognormal", |profile, value| {
        lognormal(profile).map(|(mu, _)| *mu = value)
    }),
    of(
        "size_sigma",
        "spread of the logarithm of sizes, if sizes are lognormal",
        |profile, value| lognormal(profile).map(|(_, sigma)| *sigma = value),
    ),
    of("directory_bytes", FLAT, |profile, value| match &mut profile.directories {
        Directories::Flat { bytes_each } => {
            *bytes_each = value.max(1.0) as u64;
            Some(())
        }
        Directories::Tree { .. } => None,
    }),
    of(
        "files_per_directory",
        "number of files per directory, if directories form a tree",
        |profile, value| tree(profile).map(|(files, _)| *files = value),
    ),
    of("depth_max", "maximum depth of directories, if they form a tree", |profile, value| {
        tree(profile).map(|(_, depth)| *depth = value as u32)
    }),
];
const FLAT: &str = "volume size divided by the number of directories, if all directories are in \
                    the root";

fn lognormal(profile: &mut Profile) -> Option<(&mut f64, &mut f64)> {
    match &mut profile.sizes {
        Sizes::Lognormal { mu, sigma, .. } | Sizes::LognormalTail { mu, sigma, .. } => {
            Some((mu, sigma))
        }
        Sizes::Table(_) => None,
    }
}

fn tree(profile: &mut Profile) -> Option<(&mut f64, &mut u32)> {
    match &mut profile.directories {
        Directories::Tree { files_each, depth_max } => Some((files_each, depth_max)),
        Directories::Flat { .. } => None,
    }
}

impl Profile {
    /// Sets a parameter; call [`check`](Self::check) to validate it.
    ///
    /// # Errors
    /// Fails if the parameter does not exist, or if this profile does not have it.
    pub fn set(&mut self, name: &str, value: f64) -> Result<()> {
        let Some(parameter) = PARAMETERS.iter().find(|parameter| parameter.name == name) else {
            let names: Vec<_> = PARAMETERS.iter().map(|parameter| parameter.name).collect();
            let names = names.join(", ");
            return Err(Error::parameter(format!(
                "there is no parameter '{name}'; use one of {names}"
            )));
        };
        let profile = self.name;
        let unfit = || Error::parameter(format!("the profile {profile} has no parameter {name}"));
        (parameter.set)(self, value).ok_or_else(unfit)
    }
}
