//! `fslab ext2`: tools for ext2 images that need neither a mount nor root.

mod attributes;
mod capacity;
mod check;
mod dx;
mod files;
mod info;
mod layout;
mod map;
mod mkfs;
mod rehearsal;
mod repair;
mod resize;
mod tape;
mod tree;
mod tune;
mod undelete;
mod walk;

use anyhow::Result;
use clap::Subcommand;

/// Arguments of `fslab ext2`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a file system in a file or on a device
    Mkfs(mkfs::Args),
    /// Show the parameters of a file system, and its free space
    Info(info::Args),
    /// List a directory
    Ls(files::ListArgs),
    /// Write the content of a file to standard output
    Cat(files::CatArgs),
    /// Show the attributes and extents of a file
    Stat(files::StatArgs),
    /// Copy a file of the host into the image
    Put(files::PutArgs),
    /// Copy a file of the image to the host
    Get(files::GetArgs),
    /// Copy a tree of the host, or a tar archive, into the image
    Import(tree::ImportArgs),
    /// Copy a tree of the image to the host
    Export(tree::ExportArgs),
    /// Check the consistency of a file system, without writing to it
    Check(check::Args),
    /// Repair those problems that can be repaired without losing data
    Repair(repair::Args),
    /// Show the HTree index of a directory, and how full its blocks are
    Dx(dx::Args),
    /// Count how many names fit into a directory index
    Capacity(capacity::Args),
    /// Show how contiguous files are
    Layout(layout::Args),
    /// List deleted files that can be recovered, or recover one
    Undelete(undelete::Args),
    /// Grow or shrink a file system
    Resize(resize::Args),
    /// Change label, UUID or reserved blocks
    Tune(tune::Args),
}

impl Args {
    /// Runs the chosen subcommand.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Mkfs(args) => args.run(),
            Command::Info(args) => args.run(),
            Command::Ls(args) => args.run(),
            Command::Cat(args) => args.run(),
            Command::Stat(args) => args.run(),
            Command::Put(args) => args.run(),
            Command::Get(args) => args.run(),
            Command::Import(args) => args.run(),
            Command::Export(args) => args.run(),
            Command::Check(args) => args.run(),
            Command::Repair(args) => args.run(),
            Command::Dx(args) => args.run(),
            Command::Capacity(args) => args.run(),
            Command::Layout(args) => args.run(),
            Command::Undelete(args) => args.run(),
            Command::Resize(args) => args.run(),
            Command::Tune(args) => args.run(),
        }
    }
}
