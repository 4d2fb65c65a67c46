//! `fslab ext2 repair`: mends what `check` finds, as far as nothing is lost by it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use fslab_ext2::check::repair;
use fslab_vfs::{BlockDevice, Timestamp};

use crate::leaves::open_device;

/// Arguments of `fslab ext2 repair`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The image or device; nobody may have it mounted
    image: PathBuf,
}

impl Args {
    /// Prints a line for each thing mended, and for each that is left.
    pub fn run(self) -> Result<()> {
        let shown = self.image.display().to_string();
        let device: Arc<dyn BlockDevice> = Arc::new(open_device(&self.image, false)?);
        let now = Timestamp::from(SystemTime::now());
        let repaired = repair(&device, now).with_context(|| shown.clone())?;
        repaired.mended.iter().for_each(|finding| say!("mended: {finding}"));
        repaired.left.findings.iter().for_each(|finding| say!("left: {finding}"));
        if repaired.left.is_clean() {
            say!("{shown}: clean; {} things mended", repaired.mended.len());
            return Ok(());
        }
        bail!("{shown} is still damaged; 'e2fsck {shown}' mends more")
    }
}
