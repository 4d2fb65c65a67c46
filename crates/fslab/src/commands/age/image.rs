//! `fslab age image`: file systems that a workload has aged, packed, for comparisons to begin with.

pub(super) mod ground;
mod make;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;
use fslab_age::image::{AgedImage, Identity, Packed, dump, pack};
use fslab_age::workload::identity_of_file;

use crate::exit::{Code, Coded};
use crate::units::bytes;

/// Arguments of `fslab age image`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a file system, do a workload's operations on it, and pack it
    Make(make::Args),
    /// Pack an image that was aged otherwise
    Pack(PackArgs),
    /// Make the image of a packed one; `zstd -d` does too
    Unpack(UnpackArgs),
    /// Tell what a packed image is of
    Info(InfoArgs),
}

#[derive(Debug, clap::Args)]
struct PackArgs {
    /// The workload that has aged it
    #[arg(long, value_name = "FILE")]
    workload: PathBuf,
    /// Where to write it
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The image, which nothing has mounted
    image: PathBuf,
}

#[derive(Debug, clap::Args)]
struct UnpackArgs {
    /// The packed image
    file: PathBuf,
    /// Where to write the image, which must not be there
    image: PathBuf,
}

#[derive(Debug, clap::Args)]
struct InfoArgs {
    /// The packed image
    file: PathBuf,
}

impl Args {
    /// Runs the chosen tool.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Make(args) => args.run(),
            Command::Pack(args) => args.run(),
            Command::Unpack(args) => args.run(),
            Command::Info(args) => args.run(),
        }
    }
}

impl PackArgs {
    fn run(self) -> Result<()> {
        // Whatever that was, it is said by whoever packs it.
        fslab_age::workload::WorkloadReader::open(&self.workload)?;
        let workload = identity_of_file(&self.workload)?;
        let identity = Identity { workload, ..Identity::default() };
        tell(&self.output, pack(&self.image, &self.output, &identity)?, &identity);
        Ok(())
    }
}

impl UnpackArgs {
    fn run(self) -> Result<()> {
        let packed = AgedImage::open(&self.file)?;
        let shown = self.image.display();
        let output = File::create_new(&self.image).map_err(|error| Coded {
            code: Code::BadInput,
            message: format!("{shown}: {error}"),
        })?;
        let unpacked = packed.unpack(&self.image, &output);
        if unpacked.is_err() {
            std::fs::remove_file(&self.image).context("removing what was begun")?;
        }
        Ok(unpacked?)
    }
}

impl InfoArgs {
    fn run(self) -> Result<()> {
        crate::output::print(format_args!("{}", dump(&AgedImage::open(&self.file)?)));
        Ok(())
    }
}

/// What was made.
fn tell(output: &Path, packed: Packed, identity: &Identity) {
    say!(
        "{}: {} for an image of {}, workload {}",
        output.display(),
        bytes(packed.file_bytes),
        bytes(packed.image_bytes),
        identity.workload,
    );
}
