//! The parameters of a profile by name, for `--set NAME=VALUE`.

use super::{Directories, Profile, Sizes};
use crate::error::{Error, Result};

/// A parameter that a user may set.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Puts a value into a profile; `false` where the profile has no such parameter.
    set: fn(&mut Profile, f64) -> bool,
}

/// A parameter for a field of [`Profile`] that has its name.
macro_rules! parameter {
    ($name:ident, $help:literal) => {
        Parameter {
            name: stringify!($name),
            help: $help,
            set: |profile, value| {
                profile.$name = value;
                true
            },
        }
    };
}

/// All of them.
pub const PARAMETERS: &[Parameter] = &[
    parameter!(filled_at_first, "share of the volume that files take when use begins"),
    parameter!(utilisation, "share of it at the end"),
    parameter!(creates_per_file, "files made a day that stay, for each there is"),
    parameter!(changes_per_file, "files changed a day, for each there is"),
    parameter!(rewrites, "share of changes that write the whole file anew"),
    parameter!(operations_per_file, "operations a day, for each file at the end"),
    parameter!(writes_per_volume, "bytes written a day, as a share of the volume"),
    parameter!(short_sigma, "spread of the sizes of files that live less than a day"),
    parameter!(day_sigma, "spread of how busy days are"),
    parameter!(idle_days, "share of days on which nothing happens"),
    parameter!(directory_sigma, "spread of how much directories are used"),
    Parameter {
        name: "change_candidates",
        help: "a changed file is the largest of so many",
        set: |profile, value| {
            profile.change_candidates = value as u32;
            true
        },
    },
    Parameter {
        name: "size_mu",
        help: "mean of the logarithm of sizes, where sizes are lognormal",
        set: |profile, value| lognormal(profile).map(|(mu, _)| *mu = value).is_some(),
    },
    Parameter {
        name: "size_sigma",
        help: "spread of the logarithm of sizes, where sizes are lognormal",
        set: |profile, value| lognormal(profile).map(|(_, sigma)| *sigma = value).is_some(),
    },
    Parameter {
        name: "directory_bytes",
        help: "bytes of the volume for each directory, where all lie in the root",
        set: |profile, value| match &mut profile.directories {
            Directories::Flat { bytes_each } => {
                *bytes_each = value.max(1.0) as u64;
                true
            }
            Directories::Tree { .. } => false,
        },
    },
    Parameter {
        name: "files_per_directory",
        help: "files for each directory, where directories are a tree",
        set: |profile, value| tree(profile).map(|(files, _)| *files = value).is_some(),
    },
    Parameter {
        name: "depth_max",
        help: "no directory lies deeper, where directories are a tree",
        set: |profile, value| tree(profile).map(|(_, depth)| *depth = value as u32).is_some(),
    },
];

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
    /// Sets a parameter; [`check`](Self::check) says whether it can be so.
    ///
    /// # Errors
    /// Where there is no such parameter, or this profile does not have it.
    pub fn set(&mut self, name: &str, value: f64) -> Result<()> {
        let Some(parameter) = PARAMETERS.iter().find(|parameter| parameter.name == name) else {
            let names: Vec<_> = PARAMETERS.iter().map(|parameter| parameter.name).collect();
            let names = names.join(", ");
            return Err(Error::parameter(format!("no parameter '{name}'; there are {names}")));
        };
        if (parameter.set)(self, value) {
            return Ok(());
        }
        Err(Error::parameter(format!("the profile {} has no {name}", self.name)))
    }
}
