//! `fslab ext2 resize`: grows or shrinks a file system.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use fslab_ext2::check::shrink;
use fslab_ext2::{Resized, Superblock, grow};
use fslab_vfs::{BlockDevice, Size};

use super::rehearsal;
use crate::leaves::{LockedImage, Part, open_device};

/// Arguments of `fslab ext2 resize`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Try the change with a temporary file, without changing the image
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// The image or device, which must not be mounted
    image: PathBuf,
    /// The new size, such as 128MiB [default: the size of the file or device]. An image file gets
    /// this size too. A device or a part of an image keeps its size. In this case a smaller value
    /// shrinks only the file system, and a larger value is refused
    size: Option<Size>,
}

impl Args {
    /// Resizes the file system to the requested size, or to the size of its file or device.
    pub fn run(self) -> Result<()> {
        let shown = self.image.display().to_string();
        if self.dry_run {
            let Resized { from, to } = self.rehearse().with_context(|| shown.clone())?;
            let would = if from == to {
                format!("would keep its {from} blocks")
            } else {
                format!("would change from {from} to {to} blocks")
            };
            say!("{shown}: {would}; nothing was changed");
            return Ok(());
        }
        let image = LockedImage::open(&self.image, false)?;
        let present = image.device()?.size();
        let resized = match self.size.map(|size| size.bytes()) {
            Some(wanted) if wanted < present => self.make_smaller(&image, wanted),
            wanted => self.make_larger(&image, wanted.filter(|wanted| *wanted > present)),
        };
        let resized = resized.with_context(|| shown.clone())?;
        say!("{shown}: {} blocks, now {}", resized.from, resized.to);
        Ok(())
    }

    /// Resizes a copy-on-write device over the image. All changes go to a temporary file.
    fn rehearse(&self) -> Result<Resized> {
        let present = open_device(&self.image, true)?.size();
        match self.size.map(|size| size.bytes()) {
            Some(wanted) if wanted < present => {
                let device: Arc<dyn BlockDevice> = Arc::new(rehearsal::open(&self.image, None)?);
                Ok(shrink(&device, wanted)?)
            }
            wanted => {
                if wanted.is_some_and(|wanted| wanted > present) && !self.is_whole_file() {
                    bail_as!(
                        BadInput,
                        "is a device or a part of an image: its size can't be changed"
                    );
                }
                let device = rehearsal::open(&self.image, wanted)?;
                Superblock::read(&device)?.check_writable()?;
                Ok(grow(&device)?)
            }
        }
    }

    /// Shrinks the file system and then, if the image is a whole file, the file.
    fn make_smaller(&self, image: &LockedImage<'_>, wanted: u64) -> Result<Resized> {
        let device: Arc<dyn BlockDevice> = Arc::new(image.device()?);
        let resized = shrink(&device, wanted)?;
        if self.is_whole_file() {
            image.set_length(wanted)?;
        }
        Ok(resized)
    }

    /// Grows the file, if the image is a whole file, and then the file system. If the file system
    /// did not grow, the file is shortened to its old length.
    fn make_larger(&self, image: &LockedImage<'_>, wanted: Option<u64>) -> Result<Resized> {
        let device = image.device()?;
        Superblock::read(&device)?.check_writable()?;
        let Some(wanted) = wanted else { return Ok(grow(&device)?) };
        if !self.is_whole_file() {
            bail_as!(BadInput, "is a device or a part of an image: its size can't be changed");
        }
        image.set_length(wanted)?;
        let grown = image.device().and_then(|device| Ok(grow(&device)?));
        // Even after a failure, the superblock may describe the larger file system. The file must
        // then keep its new length.
        let fits_before = || Superblock::read(&device).is_ok();
        match grown {
            Err(error) if fits_before() => match image.set_length(device.size()) {
                Ok(()) => Err(error),
                Err(length) => Err(error.context(format!(
                    "the file system did not grow, and the image file can't be shortened to \
                         its old length: {length:#}"
                ))),
            },
            grown => grown,
        }
    }

    fn is_whole_file(&self) -> bool {
        Part::parse(&self.image).file == self.image && self.image.is_file()
    }
}
