//! `fslab age profile`: makes a workload from a named profile; options replace values of the
//! profile.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_age::profile::geriatrix::{Ageing, GeriatrixGenerator};
use fslab_age::profile::{Generator, PARAMETERS, PROFILES, Profile, find};
use fslab_age::workload::{self, Operation, Provenance};
use fslab_vfs::Size;

use crate::commands::candidates;
use crate::units::bytes;

/// Owner of the files in a generated workload. It is fixed, so the same command makes the same
/// workload file for every user. If a user other than root replays the workload, all files belong
/// to that user.
const OWNER: (u32, u32) = (0, 0);

/// Arguments of `fslab age profile`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// List the profiles and their values
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    chosen: Chosen,
    /// Instead of a profile, use the distributions of ages, sizes and depths in this directory.
    /// They are in Geriatrix's format: age_distribution.txt, size_distribution.txt and
    /// dir_distribution.txt
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["name", "set", "filled_at_first"])]
    geriatrix: Option<PathBuf>,
    /// The profile
    #[arg(required_unless_present_any = ["list", "geriatrix"],
          add = candidates::of_section("profiles"))]
    name: Option<String>,
    /// The workload file to write
    #[arg(short, long, required_unless_present = "list", value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Values that replace those of a profile.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Chosen {
    /// Size of the file system
    #[arg(long, value_name = "SIZE")]
    pub volume: Option<Size>,
    /// Days of use
    #[arg(long)]
    pub days: Option<u32>,
    /// Share of the volume that files use at the end, such as 0.8
    #[arg(long, value_name = "SHARE")]
    pub utilisation: Option<f64>,
    /// Share of the volume that files use at the beginning
    #[arg(long, value_name = "SHARE")]
    pub filled_at_first: Option<f64>,
    /// Replace another value of the profile; `fslab age profile --list` lists the values
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub set: Vec<(String, f64)>,
    /// Seed for all random choices of the profile
    #[arg(long, default_value_t = 1997)]
    pub seed: u64,
}

impl Chosen {
    /// Returns the generator for the profile of this name.
    pub fn generator(&self, name: &str) -> Result<Generator> {
        Ok(Generator::new(self.profile(name)?, self.seed, OWNER)?)
    }

    fn geriatrix(&self, directory: &Path) -> Result<GeriatrixGenerator> {
        let ageing = Ageing {
            volume_bytes: self.volume.map_or(1 << 30, |size| size.bytes()),
            utilisation: self.utilisation.unwrap_or(0.8),
            days: self.days.unwrap_or(180),
            seed: self.seed,
            owner: OWNER,
        };
        Ok(GeriatrixGenerator::read(directory, ageing)?)
    }

    /// Returns the profile with the user's values.
    pub fn profile(&self, name: &str) -> Result<Profile> {
        let mut profile = find(name)?.clone();
        if let Some(size) = self.volume {
            profile = profile.on_volume(size.bytes());
        }
        profile.days = self.days.unwrap_or(profile.days);
        profile.utilisation = self.utilisation.unwrap_or(profile.utilisation);
        profile.filled_at_first = self.filled_at_first.unwrap_or(profile.filled_at_first);
        for (name, value) in &self.set {
            profile.set(name, *value)?;
        }
        profile.check()?;
        Ok(profile)
    }
}

fn parse_pair(text: &str) -> Result<(String, f64), String> {
    let unfit = || format!("'{text}' is not NAME=VALUE with a number for VALUE");
    let (name, value) = text.split_once('=').ok_or_else(unfit)?;
    let value = value.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(unfit)?;
    Ok((name.to_owned(), value))
}

impl Args {
    /// Writes the workload, or lists the profiles.
    pub fn run(self) -> Result<()> {
        if let (Some(directory), Some(output), false) = (&self.geriatrix, &self.output, self.list) {
            let generator = self.chosen.geriatrix(directory)?;
            return write(output, &generator.provenance(), generator);
        }
        let (Some(name), Some(output), false) = (&self.name, &self.output, self.list) else {
            for profile in PROFILES {
                say!("{:<12} {}", profile.name, profile.help);
            }
            say!("\nvalues that --set NAME=VALUE can replace:");
            for parameter in PARAMETERS {
                say!("{:<20} {}", parameter.name, parameter.help);
            }
            return Ok(());
        };
        let generator = self.chosen.generator(name)?;
        write(output, &generator.provenance(), generator)
    }
}

/// Refuses to write over a file that is not a workload.
fn check_output(output: &Path) -> Result<()> {
    if output.exists() && workload::WorkloadReader::open(output).is_err() {
        bail_as!(
            BadInput,
            "{} exists and is not a workload; choose another file",
            output.display()
        );
    }
    Ok(())
}

fn write(
    output: &Path,
    provenance: &Provenance,
    operations: impl Iterator<Item = fslab_age::Result<Operation>>,
) -> Result<()> {
    check_output(output)?;
    let operations = workload::write(output, provenance, operations)?;
    let size = std::fs::metadata(output).with_context(|| output.display().to_string())?.len();
    say!("{operations} operations in {}, {}", output.display(), bytes(size));
    say!("hash {}", workload::identity_of_file(output)?);
    Ok(())
}
