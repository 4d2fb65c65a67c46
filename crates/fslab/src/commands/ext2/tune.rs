//! `fslab ext2 tune`: changes the label, the UUID or the reserved blocks.

use std::path::PathBuf;

use anyhow::{Context, Result};
use fslab_ext2::Tuning;

use super::mkfs::parse_uuid;
use super::rehearsal;
use crate::leaves::open_device;

/// Arguments of `fslab ext2 tune`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Label, at most 16 bytes
    #[arg(long, short = 'L')]
    label: Option<String>,
    /// UUID, as 8-4-4-4-12 hexadecimal digits, or `random`
    #[arg(long, short = 'U')]
    uuid: Option<String>,
    /// Percentage of blocks that only root may use
    #[arg(long, short = 'm')]
    reserved_percent: Option<u8>,
    /// Check the changes without writing them
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// The image or device, which must not be mounted
    image: PathBuf,
}

impl Args {
    /// Changes the superblock and its copies.
    pub fn run(self) -> Result<()> {
        let uuid = self.uuid.as_deref().map(|text| {
            let given = Some(text).filter(|text| *text != "random");
            parse_uuid(given, "UUID")
        });
        let tuning = Tuning {
            label: self.label.map(String::into_bytes),
            uuid: uuid.transpose()?,
            reserved_percent: self.reserved_percent,
        };
        if tuning == Tuning::default() {
            bail_as!(BadInput, "nothing to change: use --label, --uuid or --reserved-percent");
        }
        let shown = || self.image.display().to_string();
        if self.dry_run {
            let device = rehearsal::open(&self.image, None)?;
            fslab_ext2::tune(&device, &tuning).with_context(shown)?;
            say!("{}: the changes are possible; nothing was changed", shown());
            return Ok(());
        }
        let device = open_device(&self.image, false)?;
        fslab_ext2::tune(&device, &tuning).with_context(shown)
    }
}
