//! `fslab ext2 undelete`: lists deleted files and recovers those whose blocks are still free.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fslab_ext2::{Deleted, InodeNo};
use serde_json::{Value, json};

use super::files::show_time;
use super::walk::{Image, copy_out, make_file};
use crate::output::output;

/// Arguments of `fslab ext2 undelete`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the list as JSON
    #[arg(long, conflicts_with = "inode")]
    json: bool,
    /// The image or device; nothing is written to it
    image: PathBuf,
    /// The inode of a deleted file [default: list all of them]
    #[arg(requires = "target")]
    inode: Option<u32>,
    /// The new file on the host that gets the recovered content
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
                let Some(found) = found else {
                    bail_as!(BadInput, "no deleted file was found in inode {inode}");
                };
                get_back(&image, found, target)
            }
            _ if self.json => {
                say!("{:#}", json!({ "deleted": deleted.iter().map(as_json).collect::<Vec<_>>() }));
                Ok(())
            }
            _ => list(&deleted),
        }
    }
}

fn as_json(deleted: &Deleted) -> Value {
    json!({
        "inode": deleted.inode.0,
        "size_bytes": deleted.size,
        "deleted": show_time(deleted.time),
        "blocks": deleted.blocks,
        "free_blocks": deleted.free,
        "is_whole": deleted.is_whole(),
    })
}

fn list(deleted: &[Deleted]) -> Result<()> {
    let mut out = output();
    for one in deleted {
        let lost = if one.is_whole() { "" } else { "; other files use the rest" };
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
    if !deleted.is_whole() {
        bail!(
            "inode {} can't be recovered: {} of its {} blocks now belong to other files",
            deleted.inode.0,
            deleted.blocks - deleted.free,
            deleted.blocks
        );
    }
    make_file(target, |file| {
        copy_out(file, |offset, buffer| {
            Ok(image.ext2.read_deleted(deleted.inode, offset, buffer)?)
        })
    })
}
