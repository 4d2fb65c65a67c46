//! `fslab age image`: makes, packs and unpacks images of aged file systems, from which comparisons
//! can start.

pub(super) mod ground;
mod make;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;
use fslab_age::image::{AgedImage, Identity, Packed, dump, pack};
use fslab_age::workload::{WorkloadReader, identity_of_file};

use crate::exit::Code;
use crate::units::bytes;

/// Arguments of `fslab age image`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a file system, replay a workload on it, and pack it
    Make(make::Args),
    /// Pack an image that was aged in another way
    Pack {
        /// The workload that aged the image
        #[arg(long, value_name = "FILE")]
        workload: PathBuf,
        /// The packed image to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// The image, which must not be mounted
        image: PathBuf,
    },
    /// Unpack an image; `zstd -d` does the same
    Unpack {
        /// The packed image
        file: PathBuf,
        /// The new file for the image
        image: PathBuf,
    },
    /// Show the header of a packed image
    Info {
        /// The packed image
        file: PathBuf,
    },
}

impl Args {
    /// Runs the chosen subcommand.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Make(args) => args.run(),
            Command::Pack { workload, output, image } => {
                // This checks only that the file is a workload. It can't check that this workload
                // aged the image.
                WorkloadReader::open(&workload)?;
                let workload = identity_of_file(&workload)?;
                let identity = Identity { workload, ..Identity::default() };
                tell(&output, pack(&image, &output, &identity)?, &identity);
                Ok(())
            }
            Command::Unpack { file, image } => unpack(AgedImage::open(&file)?, &image),
            Command::Info { file } => {
                crate::output::print(format_args!("{}", dump(&AgedImage::open(&file)?)));
                Ok(())
            }
        }
    }
}

fn unpack(packed: AgedImage, image: &Path) -> Result<()> {
    let refused = |error| Code::BadInput.error(format!("{}: {error}", image.display()));
    let output = File::create_new(image).map_err(refused)?;
    let unpacked = packed.unpack(image, &output);
    if unpacked.is_err() {
        std::fs::remove_file(image).context("can't remove the unfinished file")?;
    }
    Ok(unpacked?)
}

/// Reports a packed image: its sizes and its workload.
fn tell(output: &Path, packed: Packed, identity: &Identity) {
    say!(
        "{}: {} for an image of {}, workload {}",
        output.display(),
        bytes(packed.file_bytes),
        bytes(packed.image_bytes),
        identity.workload,
    );
}
