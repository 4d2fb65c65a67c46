//! `fslab ext2 undelete`: lists deleted files whose bytes are still there, and gets them back.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_ext2::{Deleted, InodeNo};

use super::files::show_time;
use super::walk::Image;
use crate::exit::{Code, Coded};
use crate::output::output;

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// Arguments of `fslab ext2 undelete`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The image or device; nothing is written to it
    image: PathBuf,
    /// The inode of a deleted file [list them all]
    #[arg(requires = "target")]
    inode: Option<u32>,
    /// The file of the host that its bytes go to, which must not be there
    target: Option<PathBuf>,
}

impl Args {
    /// Prints a line for each deleted file, or copies one out.
    pub fn run(self) -> Result<()> {
        let image = Image::read(&self.image)?;
        let deleted = image.ext2.deleted().with_context(|| self.image.display().to_string())?;
        match (self.inode, &self.target) {
            (Some(inode), Some(target)) => {
                let found = deleted.iter().find(|one| one.inode == InodeNo(inode));
                let found = found.ok_or_else(|| Coded {
                    code: Code::BadInput,
                    message: format!("inode {inode} holds no deleted file that can be found"),
                })?;
                get_back(&image, found, target)
            }
            _ => list(&deleted),
        }
    }
}

fn list(deleted: &[Deleted]) -> Result<()> {
    let mut out = output();
    for one in deleted {
        let lost = if one.is_whole() { "" } else { ", others are used again" };
        writeln!(
            out,
            "inode {:<8} {:>12} bytes, deleted {}; {} of {} blocks are free{lost}",
            one.inode.0,
            one.size,
            show_time(one.time),
            one.free,
            one.blocks,
        )?;
    }
    Ok(())
}

fn get_back(image: &Image, deleted: &Deleted, target: &Path) -> Result<()> {
    let shown = target.display().to_string();
    if !deleted.is_whole() {
        let message = format!(
            "inode {}: {} of its {} blocks belong to other files by now",
            deleted.inode.0,
            deleted.blocks - deleted.free,
            deleted.blocks
        );
        return Err(Coded { code: Code::Failure, message }.into());
    }
    let mut file = File::create_new(target).with_context(|| shown.clone())?;
    let answer = copy(image, deleted, &mut file);
    if answer.is_err() {
        std::fs::remove_file(target).with_context(|| format!("removing {shown}"))?;
    }
    answer.context(shown)
}

fn copy(image: &Image, deleted: &Deleted, file: &mut File) -> Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut offset = 0;
    while offset < deleted.size {
        let length = image.ext2.read_deleted(deleted.inode, offset, &mut buffer)?;
        if length == 0 {
            break;
        }
        file.write_all(&buffer[..length])?;
        offset += length as u64;
    }
    Ok(file.sync_all()?)
}
