//! `fslab ext2 resize`: makes a file system larger.

use std::fs::OpenOptions;
use std::path::PathBuf;

use anyhow::{Context, Result};
use bytesize::ByteSize;
use fslab_ext2::grow;
use fslab_vfs::BlockDevice;

use crate::exit::{Code, Coded};
use crate::leaves::{Part, open_device};

/// Arguments of `fslab ext2 resize`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The image or device; nobody may have it mounted
    image: PathBuf,
    /// The new size of the file, such as 128MiB [that which file or device have]
    size: Option<ByteSize>,
}

impl Args {
    /// Extends the file where a size is given, and the file system to its end.
    pub fn run(self) -> Result<()> {
        let shown = self.image.display().to_string();
        let device = open_device(&self.image, false)?;
        if let Some(size) = self.size {
            self.extend(size.as_u64(), device.size())?;
        }
        // Its size was taken when it was opened.
        drop(device);
        let device = open_device(&self.image, false)?;
        let grown = grow(&device).with_context(|| shown.clone())?;
        println!("{shown}: {} blocks, now {}", grown.from, grown.to);
        Ok(())
    }

    fn extend(&self, wanted: u64, present: u64) -> Result<()> {
        let shown = self.image.display();
        let bad = |message: String| Coded { code: Code::BadInput, message };
        if Part::parse(&self.image).file != self.image || !self.image.is_file() {
            return Err(bad(format!("{shown} is no file of its own and keeps its size")).into());
        }
        if wanted < present {
            let message =
                format!("{shown} can't be made smaller: make a smaller file system and copy");
            return Err(bad(message).into());
        }
        let file = OpenOptions::new().write(true).open(&self.image);
        let file = file.with_context(|| shown.to_string())?;
        file.set_len(wanted).with_context(|| format!("can't give {shown} {wanted} bytes"))
    }
}
