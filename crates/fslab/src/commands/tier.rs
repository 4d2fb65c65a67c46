//! `fslab tier`: files that go to archives and come back.
//!
//! Where the tree is mounted, its daemon is asked; else the tree is opened here. Both do the same
//! [`Command`]s and tell the same [events](fslab_tier::command::Event).

mod access;
mod making;
mod show;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_tier::closed_root;
use fslab_tier::command::Command;
use fslab_tier::stored::Marks;
use fslab_vfs::{HostFs, HostOptions, Size};

use crate::exit::{Code, Coded};
use crate::runtime;
use access::Access;

/// Arguments of `fslab tier`. Experimental: keep other copies of what is in the tree.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON, a line for each thing that is told
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a tier of a directory: then mount it with `-l tier`
    Init(making::Init),
    /// Add an archive to a tier that is not mounted
    Attach(making::Attach),
    /// Make a key for archives that are encrypted
    Key(making::MakeKey),
    /// Make a tree again from archives alone; files are recalled when they are read
    Rebuild(making::Rebuild),
    /// Copy files into archives; directories mean all that is in them
    Archive {
        /// Files and directories, in the mount or in a tree that is not mounted
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Bytes a second at most, written and read back, beside the limit of the mount; 0 for any
        #[arg(long, value_name = "SIZE", default_value = "0")]
        rate: Size,
        /// Files up to this size go out together, in one object, 0 for none; as the tier has it if
        /// not given
        #[arg(long, value_name = "SIZE", value_parser = parse_bundled)]
        bundle: Option<Size>,
    },
    /// Free the bytes of archived files
    Release {
        /// As of `fslab tier archive`
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// What stays of each file's beginning
        #[arg(long, value_name = "SIZE", default_value = "0")]
        keep: Size,
    },
    /// Bring bytes back, and wait until they are there
    Recall {
        /// As of `fslab tier archive`
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// A part of each file only, as OFFSET+LENGTH
        #[arg(long, value_parser = parse_range)]
        range: Option<(u64, u64)>,
        /// Bytes a second at most, beside the limit of the mount; 0 for any
        #[arg(long, value_name = "SIZE", default_value = "0")]
        rate: Size,
    },
    /// Wait until nothing of files is being recalled any more, and ask for nothing
    Wait {
        /// As of `fslab tier archive`
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Show where the bytes of files are
    #[command(visible_alias = "ls")]
    State {
        /// As of `fslab tier archive`; of directories, what is in them
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// And what is in directories below
        #[arg(short, long)]
        recursive: bool,
    },
    /// Show how much is where
    Du {
        /// Files and directories
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Show recalls that are waiting, and for whom
    Queue {
        /// The tree: where it is mounted
        tree: PathBuf,
    },
    /// End recalls that were not begun; who waits for one is answered ECANCELED
    Cancel {
        /// As of `fslab tier archive`
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Keep the bytes of files here, whatever the policy
    Pin {
        /// As of `fslab tier archive`; of directories, what is in them now and not what comes later
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Keep the bytes of files here no longer
    Unpin {
        /// As of `fslab tier archive`
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Show archived versions of a file, of the files in a directory, of those that were there
    Versions {
        /// The file or directory, which need not be there any more
        path: PathBuf,
    },
    /// Bring a version that was replaced or removed back, as a new file, or all that was removed
    Undelete {
        /// The version, as `fslab tier versions` shows it
        #[arg(required_unless_present = "recursive")]
        object: Option<fslab_tier::Id>,
        /// The new file
        #[arg(required_unless_present = "recursive")]
        path: Option<PathBuf>,
        /// In the place of both: bring the last version back of each file that was removed in a
        /// directory, or in those below, where nothing has its name
        #[arg(short, long, value_name = "DIR", conflicts_with_all = ["object", "path"])]
        recursive: Option<PathBuf>,
    },
    /// Do what the policy says
    Policy {
        /// The tree: where it is mounted, or its directory
        tree: PathBuf,
        /// The policy; the one in the tier's home if none is given
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Archive names and attributes of the whole tree, for `fslab tier rebuild`
    Tree {
        /// The tree: where it is mounted, or its directory
        tree: PathBuf,
    },
    /// Look at every file and what archives list, and make the catalogue anew; `scrub` reads copies
    Scan {
        /// The tree: where it is mounted, or its directory
        tree: PathBuf,
    },
    /// Read every copy, mend copies from each other, and make those that are missing
    Scrub {
        /// The tree: where it is mounted, or its directory
        tree: PathBuf,
        /// Bytes a second at most, read and written; 0 for any
        #[arg(long, value_name = "SIZE", default_value = "0")]
        rate: Size,
    },
    /// Show the archives of a tier: which are attached, and what they have
    Archives {
        /// The tree: where it is mounted, or its directory
        tree: PathBuf,
    },
    /// Remove what was replaced or removed longer ago than such is kept
    Expire {
        /// The tree: where it is mounted, or its directory
        tree: PathBuf,
    },
}

impl Args {
    /// Does what was asked.
    pub fn run(self) -> Result<()> {
        let json = self.json;
        // Ends of released files share blocks with files that stay open.
        runtime::raise_descriptor_limit();
        match self.action {
            Action::Init(init) => init.run(),
            Action::Attach(attach) => attach.run(),
            Action::Key(key) => key.run(),
            Action::Rebuild(rebuild) => rebuild.run(json),
            action => {
                let (access, command) = action.understood()?;
                show::run(access, &command, json)
            }
        }
    }
}

impl Action {
    /// What is asked, and of which tree.
    fn understood(self) -> Result<(Access, Command)> {
        let of_paths = |paths: &[PathBuf], make: &dyn Fn(Vec<Vec<u8>>) -> Command| {
            let (access, inner) = Access::to_all(paths)?;
            Ok((access, make(inner)))
        };
        let of_tree = |tree: PathBuf, command: Command| Ok((Access::to_all(&[tree])?.0, command));
        match self {
            Self::Archive { paths, rate, bundle } => {
                let (rate, bundled) = (rate.bytes(), bundle.map(|bundle| bundle.bytes()));
                of_paths(&paths, &|paths| Command::Archive { paths, rate, bundled })
            }
            Self::Release { paths, keep } => {
                let keep_bytes = keep.bytes();
                of_paths(&paths, &|paths| Command::Release { paths, keep_bytes })
            }
            Self::Recall { paths, range, rate } => {
                let rate = rate.bytes();
                of_paths(&paths, &|paths| Command::Recall { paths, range, rate })
            }
            Self::Wait { paths } => of_paths(&paths, &|paths| Command::Wait { paths }),
            Self::State { paths, recursive } => {
                of_paths(&paths, &|paths| Command::State { paths, recursive })
            }
            Self::Du { paths } => of_paths(&paths, &|paths| Command::Du { paths }),
            Self::Cancel { paths } => of_paths(&paths, &|paths| Command::Cancel { paths }),
            Self::Pin { paths } => of_paths(&paths, &|paths| Command::Pin { paths, stays: true }),
            Self::Unpin { paths } => {
                of_paths(&paths, &|paths| Command::Pin { paths, stays: false })
            }
            Self::Versions { path } => {
                let (access, path) = Access::to(&path)?;
                Ok((access, Command::Versions { path }))
            }
            Self::Undelete { object: Some(object), path: Some(path), .. } => {
                let (access, path) = Access::to(&path)?;
                Ok((access, Command::Undelete { object, path }))
            }
            Self::Undelete { recursive, .. } => {
                let (access, path) = Access::to(&recursive.context("no directory is given")?)?;
                Ok((access, Command::UndeleteAll { path }))
            }
            Self::Policy { tree, file, dry_run } => policy(tree, file, dry_run),
            Self::Queue { tree } => of_tree(tree, Command::Queue),
            Self::Tree { tree } => of_tree(tree, Command::Tree),
            Self::Scan { tree } => of_tree(tree, Command::Scan),
            Self::Scrub { tree, rate } => of_tree(tree, Command::Scrub { rate: rate.bytes() }),
            Self::Archives { tree } => of_tree(tree, Command::Archives),
            Self::Expire { tree } => of_tree(tree, Command::Expire),
            Self::Init(_) | Self::Attach(_) | Self::Key(_) | Self::Rebuild(_) => {
                Err(bad("this is not asked of a tree".to_owned()))
            }
        }
    }
}

fn policy(tree: PathBuf, file: Option<PathBuf>, dry_run: bool) -> Result<(Access, Command)> {
    let (access, _) = Access::to_all(&[tree])?;
    let read = |file: PathBuf| -> Result<_> {
        let origin = file.display().to_string();
        let rules = std::fs::read_to_string(&file);
        Ok((
            rules.map_err(|error| unusable(&format!("can't read the policy {origin}"), error))?,
            origin,
        ))
    };
    let rules = file.map(read).transpose()?;
    Ok((access, Command::Policy { rules, dry_run }))
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
    is_small.then_some(size).ok_or_else(|| "what is bundled is at most 1MiB".to_owned())
}

/// The file system of a directory.
fn host(path: &Path) -> Result<HostFs> {
    let host = HostFs::open(path, &HostOptions::default());
    host.map_err(|error| unusable(&format!("can't use {}", path.display()), error.errno().into()))
}

/// A tree that is to be worked on: its owner, who is not root, may enter it from here on.
fn own_tree(path: &Path) -> Result<HostFs> {
    let tree = host(path)?;
    let opened = closed_root::open_to_owner(&tree, Marks::of_this_process());
    opened.map_err(|error| {
        unusable(&format!("can't open {}", path.display()), error.errno().into())
    })?;
    Ok(tree)
}

/// What was given can't be used, or not by this user, or something went wrong with it.
fn unusable(what: &str, error: std::io::Error) -> anyhow::Error {
    Coded { code: Code::of_io(&error), message: format!("{what}: {error}") }.into()
}

fn bad(message: String) -> anyhow::Error {
    Coded { code: Code::BadInput, message }.into()
}
