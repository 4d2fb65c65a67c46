//! `fslab sca`: tools for the stored files of codec layers. They work on a lower directory while it
//! is not mounted.

mod compact;
mod convert;
mod mounted;
mod recovery;
mod stat;
mod verify;
mod walk;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fslab_sca::{Depth, Salvaged, Tool};

use crate::output::output;

/// Arguments of `fslab sca`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show sizes and compression ratios of stored files
    Stat(stat::Stat),
    /// Check the structure of stored files, without reading their content
    ///
    /// Checks the superblock, the header of every frame, and the index. `fslab sca verify` reads
    /// the content too.
    Check(verify::Verify),
    /// Verify stored files: read everything, compare checksums, and decode the content
    Verify(verify::Verify),
    /// Write the content of a stored file to standard output
    Cat {
        /// A stored file, by its path in the lower directory
        file: PathBuf,
    },
    /// List all frames of a stored file
    Dump {
        /// A stored file, by its path in the lower directory
        file: PathBuf,
    },
    /// Compact stored files, which frees their garbage
    #[command(alias = "pack")]
    Compact(compact::Compact),
    /// Encode the files of a directory in place
    ///
    /// Mounting the layer then shows every file with its original content, even files that looked
    /// like stored files. If a layer was mounted over the directory before, files that look like
    /// stored files are treated as already encoded. Run the command again to resume an interrupted
    /// run. Ordinary users can convert their own files.
    Encode(convert::Encode),
    /// Decode the stored files of a directory in place
    ///
    /// Decoding restores an encoded directory to its state before encoding: content, times, modes,
    /// owners, xattrs, ACLs and links. Run the command again to resume an interrupted run.
    Decode(convert::Decode),
    /// Benchmark the recovery of a file after a crash
    ///
    /// Makes a file, and removes it at the end. Measures how long it takes to locate all content of
    /// the file without its index, and how long to read the whole file.
    Recovery(recovery::Recovery),
    /// Save the readable content of a damaged stored file in a new, plain file
    Repair {
        /// A stored file, by its path in the lower directory; it is not changed
        file: PathBuf,
        /// The new file, which must not exist
        #[arg(short, long)]
        output: PathBuf,
    },
}

impl Args {
    /// Runs the chosen subcommand.
    pub fn run(self) -> Result<()> {
        let encodes = matches!(self.command, Command::Encode(_) | Command::Decode(_));
        mounted::refuse(&self.command.paths(), encodes)?;
        match self.command {
            Command::Stat(args) => args.run(),
            Command::Check(args) => args.run(Depth::Structure),
            Command::Verify(args) => args.run(Depth::Everything),
            Command::Cat { file } => {
                let mut out = output();
                Tool::open(&file)?.cat(&mut out)?;
                out.flush().context("can't write to standard output")
            }
            Command::Dump { file } => Ok(Tool::open(&file)?.dump(&mut output())?),
            Command::Encode(args) => args.run(),
            Command::Decode(args) => args.run(),
            Command::Compact(args) => args.run(),
            Command::Recovery(args) => args.run(),
            Command::Repair { file, output } => repair(&file, &output),
        }
    }
}

impl Command {
    /// Returns the stored files, or directories of them, that the command uses.
    fn paths(&self) -> Vec<&PathBuf> {
        match self {
            Self::Stat(args) => args.paths.iter().collect(),
            Self::Check(args) | Self::Verify(args) => args.paths.iter().collect(),
            Self::Compact(args) => args.paths.iter().collect(),
            Self::Encode(args) => vec![&args.tree],
            Self::Decode(args) => vec![&args.tree],
            Self::Cat { file } | Self::Dump { file } | Self::Repair { file, .. } => vec![file],
            Self::Recovery(_) => Vec::new(),
        }
    }
}

fn salvage(tool: &Tool, target: &File, output: &Path) -> Result<Salvaged> {
    let saved = tool.salvage(&mut |offset, content| target.write_all_at(content, offset))?;
    let written = target.set_len(saved.size).and_then(|()| target.sync_all());
    written.with_context(|| format!("can't write {}", output.display()))?;
    Ok(saved)
}

fn repair(file: &Path, output: &Path) -> Result<()> {
    let tool = Tool::open(file)?;
    let shown = output.display();
    let target = File::create_new(output).with_context(|| format!("can't create {shown}"))?;
    let saved = salvage(&tool, &target, output).map_err(|error| match fs::remove_file(output) {
        // The partial file is removed, so that the command can be repeated.
        Ok(()) => error,
        Err(removal) => error.context(format!("can't remove the partial {shown}: {removal}")),
    })?;
    for lost in &saved.lost {
        let end = (lost.offset + saved.chunk_bytes).min(saved.size);
        say!(
            "lost: bytes {} to {end}, which are zeros in the new file: {}",
            lost.offset,
            lost.what
        );
    }
    for missing in &saved.missing {
        say!("missing: at offset {} of the stored file: {}", missing.offset, missing.what);
    }
    say!("{shown}: {} bytes", saved.size);
    match saved.lost.len() {
        0 if saved.missing.is_empty() => Ok(()),
        0 => bail!("not all frames were found; the stored file was not changed"),
        lost => bail!("{lost} chunks were lost; the stored file was not changed"),
    }
}
