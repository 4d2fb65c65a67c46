//! `fslab ext2 repair`: repairs the problems that can be repaired without losing data.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use fslab_ext2::check::{Repaired, repair};
use fslab_vfs::{BlockDevice, Timestamp};
use serde_json::{Value, json};

use super::check::as_finding;
use super::rehearsal;
use crate::leaves::open_device;
use crate::units::counted;

/// Arguments of `fslab ext2 repair`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the planned repairs, without making them
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image or device, which must not be mounted
    image: PathBuf,
}

impl Args {
    /// Prints a line for each repair, and for each remaining problem.
    pub fn run(self) -> Result<()> {
        let shown = self.image.display().to_string();
        let device: Arc<dyn BlockDevice> = match self.dry_run {
            true => Arc::new(rehearsal::open(&self.image, None)?),
            false => Arc::new(open_device(&self.image, false)?),
        };
        let now = Timestamp::from(SystemTime::now());
        let repaired = repair(&device, now).with_context(|| shown.clone())?;
        if self.json {
            say!("{:#}", as_json(&repaired, self.dry_run));
        } else {
            self.show(&shown, &repaired);
        }
        if repaired.left.is_clean() {
            return Ok(());
        }
        let verb = if self.dry_run { "would still be" } else { "is still" };
        bail!("{shown} {verb} damaged; 'e2fsck {shown}' can repair more")
    }

    fn show(&self, shown: &str, repaired: &Repaired) {
        let done = if self.dry_run { "would repair" } else { "repaired" };
        repaired.mended.iter().for_each(|finding| say!("{done}: {finding}"));
        repaired.left.findings.iter().for_each(|finding| say!("left: {finding}"));
        if !repaired.left.is_clean() {
            return;
        }
        let problems = counted(repaired.mended.len() as u64, "problem");
        match self.dry_run {
            true => say!("{shown}: {problems} would be repaired; nothing was changed"),
            false => say!("{shown}: clean; {problems} repaired"),
        }
    }
}

fn as_json(repaired: &Repaired, is_dry_run: bool) -> Value {
    json!({
        "dry_run": is_dry_run,
        "repaired": repaired.mended.iter().map(as_finding).collect::<Vec<_>>(),
        "left": repaired.left.findings.iter().map(as_finding).collect::<Vec<_>>(),
        "clean": repaired.left.is_clean(),
    })
}
