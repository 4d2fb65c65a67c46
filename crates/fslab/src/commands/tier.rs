//! `fslab tier`: moves files to archives and back.
//!
//! If the tree is mounted, the daemon of the mount executes the command; otherwise this process
//! opens the tree. The [`Command`]s and [events](fslab_tier::command::Event) are the same in both
//! cases.

mod access;
mod as_user;
pub mod export;
mod making;
mod plan;
mod prices;
mod query;
mod show;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_tier::closed_root;
use fslab_tier::command::{Command, Grouping};
use fslab_tier::stored::Marks;
use fslab_vfs::{HostFs, HostOptions, Size};

use crate::exit::Code;
use crate::runtime;
use access::Access;
use prices::Prices;

const HELP: &str = "\
To end a tier, recall all files, unmount the tree, and restore the mode of its directory:
  fslab tier recall ~/photos
  fslab tier state -r ~/photos      # no file is offline or partly-resident
  fslab umount ~/photos
  chmod \"$(getfattr --only-values -n trusted.fslab.tier.mode ~/photos)\" ~/photos
  setfattr -x trusted.fslab.tier.mode ~/photos
If an ordinary user made the tier, the xattr is user.fslab.tier.mode. Now all files are ordinary
files, and you can delete the tier's home and its archives.";

/// Arguments of `fslab tier`. Experimental: keep other copies of the files in the tree.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Print JSON, one object per line
    #[arg(long, global = true)]
    json: bool,
    /// Print a line for each file, in addition to the totals
    #[arg(short, long, global = true, conflicts_with_all = ["quiet", "json"])]
    verbose: bool,
    /// Print errors only
    #[arg(short, long, global = true, conflicts_with = "json")]
    quiet: bool,
    #[command(subcommand)]
    action: Action,
}

/// The files that a command works on.
#[derive(Debug, clap::Args)]
struct Paths {
    /// Files and directories, in the mount or in an unmounted tree
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// The option for a dry run.
#[derive(Debug, clap::Args)]
struct Dry {
    /// Print the planned changes, without making them
    #[arg(short = 'n', long)]
    dry_run: bool,
}

impl Dry {
    fn of(&self, command: Command) -> Command {
        if self.dry_run { Command::DryRun { of: Box::new(command) } } else { command }
    }
}

/// The options for a dry run that ends with a plan.
#[derive(Debug, clap::Args)]
struct Planned {
    /// Print the planned changes, requests, bytes and time; change nothing
    #[arg(short = 'n', long, visible_alias = "plan")]
    dry_run: bool,
    /// With -n: print the cost, too, by the prices in this file
    #[arg(long, value_name = "FILE", requires = "dry_run")]
    prices: Option<PathBuf>,
}

impl Planned {
    fn of(&self, command: Command) -> Command {
        Dry { dry_run: self.dry_run }.of(command)
    }
}

/// The tree that a command works on.
#[derive(Debug, clap::Args)]
struct Tree {
    /// The tree: its mount point or its directory
    tree: PathBuf,
}

/// A tree, and one of its archives.
#[derive(Debug, clap::Args)]
struct OneArchive {
    #[command(flatten)]
    on: Tree,
    /// The archive: its identity, path or URL, as `fslab tier archives` shows it
    archive: OsString,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Turn a directory into a tier, to be mounted with `-l tier`
    Init(making::Init),
    /// Add an archive, or send new copies to a retired or detached one again
    Attach(making::Attach),
    /// Send no new copies to an archive; its old copies remain in use
    Retire(OneArchive),
    /// Retire an archive, and copy to the other archives each object that they lack
    ///
    /// Run the command again to resume an interrupted run.
    Drain {
        #[command(flatten)]
        on: OneArchive,
        /// Maximum number of bytes read and written per second; 0 for no limit
        #[arg(long, value_name = "SIZE", default_value = "0")]
        rate: Size,
        #[command(flatten)]
        dry: Planned,
    },
    /// Stop using an archive; refused while it has copies that the other archives lack
    Detach(OneArchive),
    /// Make a key for encrypted archives
    Key(making::MakeKey),
    /// Rebuild a tree from its archives; files are recalled when they are read
    Rebuild(making::Rebuild),
    /// Copy files, or all files of directories, to the archives
    Archive {
        #[command(flatten)]
        on: Paths,
        /// Maximum number of bytes per second; the mount's limit applies too; 0 for no limit
        #[arg(long, value_name = "SIZE", default_value = "0")]
        rate: Size,
        /// Bundle files up to this size into one object; 0 for no bundles [default: as set for the
        /// tier]
        #[arg(long, value_name = "SIZE", value_parser = parse_bundled)]
        bundle: Option<Size>,
        #[command(flatten)]
        dry: Planned,
    },
    /// Free the disk space of archived files
    Release {
        #[command(flatten)]
        on: Paths,
        /// Keep this many bytes at the beginning of each file
        #[arg(long, value_name = "SIZE", default_value = "0")]
        keep: Size,
        #[command(flatten)]
        dry: Planned,
    },
    /// Recall files from the archives, and wait until they are resident
    Recall {
        #[command(flatten)]
        on: Paths,
        /// Only this part of each file, as OFFSET+LENGTH
        #[arg(long, value_parser = parse_range)]
        range: Option<(u64, u64)>,
        /// Maximum number of bytes per second; the mount's limit applies too; 0 for no limit
        #[arg(long, value_name = "SIZE", default_value = "0")]
        rate: Size,
        #[command(flatten)]
        dry: Planned,
    },
    /// Wait for running recalls of these files; start no recalls
    Wait(Paths),
    /// Show which files are resident, archived or offline
    ///
    /// Each line begins with a letter: - for a file that was never archived, c changed since it was
    /// archived, a archived and resident, p partly resident, A offline (only in archives), !
    /// damaged.
    #[command(visible_alias = "ls")]
    State {
        #[command(flatten)]
        on: Paths,
        /// Include subdirectories
        #[arg(short, long)]
        recursive: bool,
    },
    /// Find files by state, owner, size and age, also in subdirectories
    Find {
        #[command(flatten)]
        on: Paths,
        #[command(flatten)]
        selection: query::Selection,
    },
    /// Write a data set with a row for each file, for SQL engines
    Export(export::Export),
    /// Show how many bytes are resident, and how many are archived
    Du {
        #[command(flatten)]
        on: Paths,
        /// Print sums for groups of files, instead of one sum for each path
        #[arg(long, value_name = "PROPERTY", value_parser = query::groupings())]
        by: Option<Grouping>,
        #[command(flatten)]
        selection: query::Selection,
    },
    /// Show waiting recalls, and the programs that wait for them
    Queue(Tree),
    /// Cancel recalls that have not begun; waiting programs get ECANCELED
    Cancel(Paths),
    /// Never release these files, neither by a policy nor by a command
    ///
    /// For a directory, its present files are pinned; files added later are not.
    Pin(Paths),
    /// Allow the release of pinned files again
    Unpin(Paths),
    /// Show the archived versions of a file, or of all files of a directory
    ///
    /// With -v, also show the copies of each version: how each copy was proved when it was written,
    /// and when it was last read.
    Versions {
        /// The file or directory, which may have been removed
        path: PathBuf,
    },
    /// Print the content of a version, without restoring it
    Cat {
        /// The version, as `fslab tier versions` shows it
        object: fslab_tier::Id,
        #[command(flatten)]
        on: Tree,
    },
    /// Restore a replaced or removed version as a new file, or all removed files
    Undelete {
        /// The version, as `fslab tier versions` shows it
        #[arg(required_unless_present = "recursive")]
        object: Option<fslab_tier::Id>,
        /// The new file
        #[arg(required_unless_present = "recursive")]
        path: Option<PathBuf>,
        /// Restore the last version of each file that was removed from this directory or its
        /// subdirectories, unless another file now has the same path
        #[arg(short, long, value_name = "DIR", conflicts_with_all = ["object", "path"])]
        recursive: Option<PathBuf>,
        /// With --recursive: print the files to restore, without restoring them
        #[arg(short = 'n', long, requires = "recursive")]
        dry_run: bool,
    },
    /// Archive and release files by the rules of the policy
    Policy {
        #[command(flatten)]
        on: Tree,
        /// The policy file [default: the one in the tier's home]
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Print the planned changes, without making them
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
    /// Archive the names and attributes of all files, for `fslab tier rebuild`
    Tree(Tree),
    /// Rebuild the catalogue from all files and the lists of the archives
    Scan(Tree),
    /// Verify every copy, repair damaged ones, and make missing ones
    Scrub {
        #[command(flatten)]
        on: Tree,
        /// Maximum number of bytes read and written per second; 0 for no limit
        #[arg(long, value_name = "SIZE", default_value = "0")]
        rate: Size,
        #[command(flatten)]
        dry: Planned,
    },
    /// Show the archives of a tier: state, contents, and the requests and bytes so far
    Archives {
        #[command(flatten)]
        on: Tree,
        /// Print the cost, too, by the prices in this file
        #[arg(long, value_name = "FILE")]
        prices: Option<PathBuf>,
    },
    /// Delete old versions past their retention time
    Expire {
        #[command(flatten)]
        on: Tree,
        #[command(flatten)]
        dry: Dry,
    },
}

impl Args {
    /// Runs the chosen subcommand.
    pub fn run(self) -> Result<()> {
        // The poison text in released files shares blocks with source files. Each source file needs
        // a descriptor.
        runtime::raise_descriptor_limit();
        let detail = show::Detail::of(self.json, self.verbose, self.quiet);
        let prices = self.action.prices().map(Prices::read).transpose()?;
        let (access, command) = match self.action {
            Action::Init(init) => return init.run(detail),
            Action::Attach(attach) => match attach.of_mounted_tree()? {
                Some(asked) => asked,
                None => return attach.run(detail),
            },
            Action::Retire(one) => one.asked(|archive| Command::Retire { archive })?,
            Action::Drain { on, rate, dry } => {
                on.asked(|archive| dry.of(Command::Drain { archive, rate: rate.bytes() }))?
            }
            Action::Detach(one) => one.asked(|archive| Command::Detach { archive })?,
            Action::Key(key) => return key.run(detail),
            Action::Rebuild(rebuild) => return rebuild.run(detail),
            Action::Archive { on, rate, bundle, dry } => {
                let (rate, bundled) = (rate.bytes(), bundle.map(|bundle| bundle.bytes()));
                on.asked(|paths| dry.of(Command::Archive { paths, rate, bundled }))?
            }
            Action::Release { on, keep, dry } => {
                on.asked(|paths| dry.of(Command::Release { paths, keep_bytes: keep.bytes() }))?
            }
            Action::Recall { on, range, rate, dry } => {
                on.asked(|paths| dry.of(Command::Recall { paths, range, rate: rate.bytes() }))?
            }
            Action::Wait(on) => on.asked(|paths| Command::Wait { paths })?,
            Action::State { on, recursive } => {
                on.asked(|paths| Command::State { paths, recursive })?
            }
            Action::Find { on, selection } => {
                on.asked(|paths| Command::Find { paths, query: selection.query() })?
            }
            Action::Export(export) => return export.run(detail),
            Action::Du { on, by, selection } => {
                let query = selection.query();
                on.asked(|paths| Command::Du { paths, query, by })?
            }
            Action::Cancel(on) => on.asked(|paths| Command::Cancel { paths })?,
            Action::Pin(on) => on.asked(|paths| Command::Pin { paths, stays: true })?,
            Action::Unpin(on) => on.asked(|paths| Command::Pin { paths, stays: false })?,
            Action::Versions { path } => of_path(&path, |path| Command::Versions { path })?,
            Action::Cat { object, on } => (on.access()?, Command::Cat { object }),
            Action::Undelete { object: Some(object), path: Some(path), .. } => {
                of_path(&path, |path| Command::Undelete { object, path })?
            }
            Action::Undelete { recursive, dry_run, .. } => {
                let directory = recursive.context("no directory is given")?;
                of_path(&directory, |path| Dry { dry_run }.of(Command::UndeleteAll { path }))?
            }
            Action::Policy { on, file, dry_run } => {
                let access = on.access()?;
                let rules = file.as_deref().map(read_rules).transpose()?;
                (access, Command::Policy { rules, dry_run })
            }
            Action::Queue(on) => (on.access()?, Command::Queue),
            Action::Tree(on) => (on.access()?, Command::Tree),
            Action::Scan(on) => (on.access()?, Command::Scan),
            Action::Scrub { on, rate, dry } => {
                (on.access()?, dry.of(Command::Scrub { rate: rate.bytes() }))
            }
            Action::Archives { on, .. } => (on.access()?, Command::Archives),
            Action::Expire { on, dry } => (on.access()?, dry.of(Command::Expire)),
        };
        show::run(&access, &command, detail, prices)
    }
}

impl Action {
    /// Returns the file with prices, if one is given.
    fn prices(&self) -> Option<&Path> {
        match self {
            Self::Drain { dry, .. }
            | Self::Archive { dry, .. }
            | Self::Release { dry, .. }
            | Self::Recall { dry, .. }
            | Self::Scrub { dry, .. } => dry.prices.as_deref(),
            Self::Archives { prices, .. } => prices.as_deref(),
            _ => None,
        }
    }
}

impl Paths {
    /// Returns the tree that contains these paths, and the command for them.
    fn asked(&self, make: impl FnOnce(Vec<Vec<u8>>) -> Command) -> Result<(Access, Command)> {
        let (access, inner) = Access::to_all(&self.paths)?;
        Ok((access, make(inner)))
    }
}

impl OneArchive {
    /// Returns the tree to which this archive belongs, and the command for the archive.
    fn asked(&self, make: impl FnOnce(String) -> Command) -> Result<(Access, Command)> {
        let id = self.archive.to_str().and_then(|text| text.parse::<fslab_tier::Id>().ok());
        let name = match id {
            Some(id) => id.to_string(),
            None => making::address_of(&self.archive)?.to_string(),
        };
        Ok((self.on.access()?, make(name)))
    }
}

impl Tree {
    fn access(&self) -> Result<Access> {
        Ok(Access::to_all(std::slice::from_ref(&self.tree))?.0)
    }
}

/// Returns the tree that contains a path, and the command for it. The path need not exist.
fn of_path(path: &Path, make: impl FnOnce(Vec<u8>) -> Command) -> Result<(Access, Command)> {
    let (access, inner) = Access::to(path)?;
    Ok((access, make(inner)))
}

/// Reads the rules of a policy. Also returns the path of the file, for messages.
fn read_rules(file: &Path) -> Result<(String, String)> {
    let origin = file.display().to_string();
    let rules = std::fs::read_to_string(file)
        .map_err(|error| unusable(&format!("can't read the policy {origin}"), error))?;
    Ok((rules, origin))
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let size = |text: &str| text.parse::<Size>().ok().map(|size| size.bytes());
    let range = text.split_once('+').and_then(|(offset, length)| {
        Some((size(offset)?, size(length).filter(|length| *length > 0)?))
    });
    range.ok_or_else(|| "a range is OFFSET+LENGTH, such as 1MiB+64KiB".to_owned())
}

fn parse_bundled(text: &str) -> Result<Size, String> {
    let size = text.parse::<Size>()?;
    let is_small = size.bytes() <= fslab_tier::BUNDLED_BYTES_MAX;
    is_small.then_some(size).ok_or_else(|| "only files of at most 1MiB can be bundled".to_owned())
}

/// Opens a tree for changes. While the tree of an ordinary user is not in use, its root has mode
/// 0400. This function restores the owner's access.
fn own_tree(path: &Path) -> Result<HostFs> {
    let cant = |what: &str, error: fslab_vfs::Error| {
        unusable(&format!("can't {what} {}", path.display()), error.errno().into())
    };
    let tree = HostFs::open(path, &HostOptions::default()).map_err(|error| cant("use", error))?;
    let opened = closed_root::open_to_owner(&tree, Marks::of_this_process());
    opened.map_err(|error| cant("open", error))?;
    Ok(tree)
}

/// Returns an error with the message `what` and with the exit code for its cause.
fn unusable(what: &str, error: std::io::Error) -> anyhow::Error {
    Code::of_io(&error).error(format!("{what}: {error}"))
}
