//! `fslab mount`: mounts layers over a directory. A daemon serves the mount.
//!
//! The calling process starts the daemon and waits until the mount works or has failed. So every
//! failure is reported to the caller, and the exit code shows it.

mod daemon;
pub(super) mod description;
pub(super) mod ending;
mod messages;
mod notify;
mod options;
mod preflight;
mod reports;
mod serve;
mod services;
mod supervisor;
pub(super) mod upgrade;
mod utab;
mod wait;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use fslab_layers::{LayerChoice, Leaf, Stack};
use fslab_sys::dead_mount::DeadMount;

use options::Options;
use serve::Ready;
use upgrade::Resumed;

use super::candidates;
use crate::layers;
use crate::leaves::FOREIGN;

/// Arguments of `fslab mount`.
#[derive(Debug, clap::Args)]
#[command(after_help = options::HELP)]
pub struct Args {
    /// A layer, NAME[:key=value,...]; the first is the top layer. `fslab list layers` lists them
    #[arg(short, long = "layer", value_name = "LAYER", value_parser = parse_layer,
          add = candidates::layers())]
    layers: Vec<LayerChoice>,
    /// A TOML file of layers, one `[[layer]]` table each, under the layers of --layer
    #[arg(long, value_name = "FILE")]
    layers_file: Option<PathBuf>,
    /// Mount options, separated by commas; listed below
    #[arg(short, long, value_name = "OPTIONS", add = candidates::mount_options())]
    options: Vec<String>,
    /// Stay in the foreground
    #[arg(long, short)]
    foreground: bool,
    /// Check options, layers and directories, without opening or mounting anything
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Do not print warnings about experimental layers
    #[arg(short, long)]
    quiet: bool,
    /// Ignore unknown mount options
    #[arg(long)]
    sloppy: bool,
    /// Run as the daemon of a waiting `fslab mount`
    #[arg(long, hide = true)]
    daemon: bool,
    /// The state of a mount with -o keep, passed by the previous version of the program
    #[arg(long, hide = true)]
    resumed: Option<OsString>,
    /// The lower file system: a directory, mem: for memory, or ext2:IMAGE
    #[arg(value_parser = parse_leaf)]
    lower: Leaf,
    /// The mount point; may be LOWER itself
    mount_point: PathBuf,
}

/// Parses a lower file system from the command line.
pub(super) fn parse_leaf(text: &str) -> Result<Leaf, std::convert::Infallible> {
    Ok(Leaf::parse(text, FOREIGN))
}

/// Parses a layer and its options from the command line.
pub(super) fn parse_layer(text: &str) -> Result<LayerChoice, fslab_layers::Error> {
    LayerChoice::parse(text, layers::FOREIGN)
}

/// A mount, checked and ready to be made.
struct Plan {
    stack: Stack,
    options: Options,
    mount_point: PathBuf,
    /// The dead mount (its daemon has exited) at the mount point, which this mount replaces.
    dead: Option<DeadMount>,
    /// A mount with `-o keep` that this program takes over from a previous program.
    resumed: Option<Resumed>,
    is_quiet: bool,
}

impl Plan {
    /// Reports that the mount is possible. If this program would take over a mount, checks instead
    /// whether it can read the state of that mount.
    fn rehearse(&self) -> Result<()> {
        if let Some(resumed) = &self.resumed {
            return resumed.look();
        }
        if !self.is_quiet {
            let (lower, point) = (&self.stack.leaf, self.mount_point.display());
            say!("{lower} can be mounted on {point}; nothing was mounted");
        }
        Ok(())
    }
}

impl Args {
    /// Mounts. Returns once the mount works. With `--foreground`, returns once the mount has ended.
    pub fn run(self) -> Result<()> {
        let (foreground, dry_run, daemon) = (self.foreground, self.dry_run, self.daemon);
        let plan = self.plan()?;
        let tree = layers::owners_tree(&plan.stack.layers, &plan.stack.leaf).map(Path::to_owned);
        // A resumed mount is still in use, so the root of its tree must not get mode 0400 here.
        let tree = tree.filter(|_| plan.resumed.is_none());
        let done = if dry_run {
            plan.rehearse()
        } else if daemon {
            messages::start(true);
            if plan.options.mount.keep && plan.resumed.is_none() {
                daemon::leave_session()?;
            }
            serve::serve(plan, Ready { first: daemon::report_ready, again: daemon::leave_again })
        } else if foreground {
            messages::start(plan.options.log.is_some());
            let first = |log| serve::send_messages_to(log).and_then(|()| notify::ready());
            serve::serve(plan, Ready { first, again: |_log| Ok(()) })
        } else {
            daemon::start()
        };
        let is_left = dry_run || done.is_err();
        tree.iter().filter(|_| is_left).for_each(|tree| layers::close_owners_tree(tree));
        done
    }

    fn plan(self) -> Result<Plan> {
        let mut options = Options::parse(&self.options, self.sloppy)?;
        let mut layers = self.layers;
        layers.extend(options.layers.iter().cloned());
        if let Some(path) = &self.layers_file {
            layers.extend(Stack::read_layers(path, layers::FOREIGN)?);
        }
        let stack = Stack { layers, leaf: self.lower };
        stack.check()?;
        options.apply_to(&stack)?;
        let mount_point = self.mount_point;
        let resumed = self.resumed.as_ref().map(Resumed::parse).transpose()?;
        if resumed.is_some() {
            // The directories were checked before the first daemon mounted.
            return Ok(Plan { stack, options, mount_point, dead: None, resumed, is_quiet: true });
        }
        // An error is ignored here, because later checks of the directories report it.
        let dead = DeadMount::on(&mount_point, "fuse.fslab").ok().flatten();
        let dead = dead.filter(|_| options.replace);
        if let Some(tree) = layers::owners_tree(&stack.layers, &stack.leaf) {
            layers::open_owners_tree(tree, options.mount.read_only)?;
        }
        let places = preflight::Places {
            lower: &stack.leaf,
            mount_point: &mount_point,
            dead: dead.as_ref(),
        };
        places.check(options.non_empty)?;
        places.check_layers(&stack.layers)?;
        Ok(Plan { stack, options, mount_point, dead, resumed, is_quiet: self.quiet })
    }
}
