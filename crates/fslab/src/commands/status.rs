//! `fslab status`: shows the mounts of fslab, their layers, uptimes and health.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use comfy_table::{Cell, Color};
use fslab_sys::dead_mount::DeadMount;
use fslab_sys::mounts::{self, MountEntry};
use serde_json::{Value, json};

use super::candidates;
use super::mount::description::{Description, SERVICE};
use super::umount::{Daemon, mount_of_ours};
use crate::output::{harmless, plain_table, print_table};
use crate::{runtime, units};

/// How long a daemon may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Maximum length of an answer in bytes; an answer is one line.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Arguments of `fslab status`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show all details of this mount [default: all mounts, one line each]
    #[arg(add = candidates::mount_points())]
    mount_point: Option<PathBuf>,
}

const HELP: &str = "\
Health is one of:
  ok         the daemon answers
  no answer  there is a daemon, but it does not answer within two seconds
  dead       the daemon has exited; use `fslab umount` or `fslab mount -o replace`
  unknown    the daemon has no socket for this: it has just started, is an older version, or
             could not make a directory for the socket
Root sees the mounts of all users, other users see their own.";

struct Status {
    mount: MountEntry,
    health: Health,
    description: Option<Description>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Ok,
    NoAnswer,
    Dead,
    Unknown,
}

impl Args {
    /// Prints the mounts.
    pub fn run(self) -> Result<()> {
        if let Some(path) = &self.mount_point {
            let (_, mount) = mount_of_ours(path)?;
            if !is_visible(&mount) {
                let (path, owner) = (path.display(), mount.option("user_id").unwrap_or("0"));
                bail_as!(
                    BadInput,
                    "{path} was mounted by user {owner}; only that user and root may see its status"
                );
            }
            let status = Status::of(mount);
            if self.json {
                say!("{:#}", status.as_json());
            } else {
                status.show();
            }
            return Ok(());
        }
        let mounts = mounts::list().context("can't read the list of mounts")?;
        let own = mounts.into_iter().filter(|mount| mount.file_system == "fuse.fslab");
        let all: Vec<Status> = own.filter(is_visible).map(Status::of).collect();
        if self.json {
            say!("{:#}", json!({ "mounts": all.iter().map(Status::as_json).collect::<Vec<_>>() }));
        } else if all.is_empty() {
            say!("no mounts; use `fslab mount` to make one");
        } else {
            show_all(&all);
        }
        Ok(())
    }
}

/// Returns whether the current user may see the status of a mount.
fn is_visible(mount: &MountEntry) -> bool {
    let own = rustix::process::geteuid();
    own.is_root() || mount.option("user_id") == Some(&own.as_raw().to_string())
}

impl Health {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NoAnswer => "no answer",
            Self::Dead => "dead",
            Self::Unknown => "unknown",
        }
    }
}

impl Status {
    fn of(mount: MountEntry) -> Self {
        let (health, description) = match ask(&mount) {
            Ok(Some(description)) => (Health::Ok, Some(description)),
            _ if is_dead(&mount) => (Health::Dead, None),
            Ok(None) => (Health::Unknown, None),
            Err(error) => {
                tracing::debug!(%error, "can't ask the daemon of {}", mount.target.display());
                (Health::NoAnswer, None)
            }
        };
        Self { mount, health, description }
    }

    fn layers(&self) -> String {
        let layers = self.description.as_ref().map(|known| known.layers.join(" / "));
        layers.filter(|layers| !layers.is_empty()).unwrap_or_else(|| "-".to_owned())
    }

    fn lower(&self) -> String {
        let lower = self.description.as_ref().map(|known| known.lower.clone());
        lower.unwrap_or_else(|| self.mount.source.to_string_lossy().into_owned())
    }

    fn since(&self) -> Option<jiff::Timestamp> {
        let since = self.description.as_ref()?.since;
        jiff::Timestamp::from_second(since as i64).ok()
    }

    fn as_json(&self) -> Value {
        json!({
            "mount_point": self.mount.target.to_string_lossy(),
            "lower": self.lower(),
            "user": self.mount.option("user_id").and_then(|user| user.parse::<u32>().ok()),
            "health": self.health.name(),
            "daemon": self.description,
        })
    }

    fn row(&self) -> [Cell; 5] {
        let colour = if self.health == Health::Ok { Color::Green } else { Color::Red };
        let [place, layers, lower, since] = [
            harmless(&self.mount.target.to_string_lossy()).into_owned(),
            harmless(&self.layers()).into_owned(),
            harmless(&self.lower()).into_owned(),
            self.since().map_or_else(|| "-".to_owned(), units::ago),
        ];
        let health = Cell::new(self.health.name()).fg(colour);
        [Cell::new(place), Cell::new(layers), Cell::new(lower), Cell::new(since), health]
    }

    fn show(&self) {
        let line = |name: &str, value: &str| say!("{name:<12} {}", harmless(value));
        line("mount point", &self.mount.target.to_string_lossy());
        line("layers", &self.layers());
        line("lower", &self.lower());
        line("health", self.health.name());
        let Some(known) = &self.description else { return };
        if let Some(since) = self.since() {
            line("since", &format!("{since} ({})", units::ago(since)));
        }
        line("daemon", &format!("process {}, fslab {}", known.pid, known.version));
        if !known.modes.is_empty() {
            line("modes", &known.modes.join(", "));
        }
        known.cautions.iter().for_each(|caution| line("caution", caution));
    }
}

fn show_all(all: &[Status]) {
    let mut table = plain_table(["mount point", "layers", "lower", "since", "health"]);
    table.add_rows(all.iter().map(Status::row));
    print_table(&table);
    let mut cautions: Vec<&String> =
        all.iter().filter_map(|one| one.description.as_ref()).flat_map(|d| &d.cautions).collect();
    cautions.sort();
    cautions.dedup();
    cautions.iter().for_each(|caution| say!("caution: {}", harmless(caution)));
}

/// Returns whether a mount is dead. The mount is accessed only if no daemon was found: if a daemon
/// exists but is stopped, an access would hang.
fn is_dead(mount: &MountEntry) -> bool {
    Daemon::of(mount).is_none() && matches!(DeadMount::on(&mount.target, "fuse.fslab"), Ok(Some(_)))
}

/// Returns the layers of a mount of fslab, top first; `None` if its daemon has no status socket.
///
/// # Errors
/// Fails if the daemon does not answer, or may not answer the current user.
pub fn layers_of(mount: &MountEntry) -> Result<Option<Vec<String>>> {
    Ok(ask(mount)?.map(|known| known.layers))
}

fn ask(mount: &MountEntry) -> Result<Option<Description>> {
    let shown = mount.target.display();
    let Some(socket) = runtime::find_socket(mount, &shown, SERVICE)? else { return Ok(None) };
    describe(&socket).map(Some)
}

fn describe(socket: &Path) -> Result<Description> {
    let end = Instant::now() + ANSWER_TIME_MAX;
    let mut stream = runtime::connect(socket)?;
    writeln!(stream)?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while !answer.ends_with(b"\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || answer.len() > ANSWER_BYTES_MAX {
            bail!("the daemon's reply is incomplete after the time limit, or too long");
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => break,
            count => answer.extend_from_slice(&piece[..count]),
        }
    }
    if answer.is_empty() {
        bail!("the daemon has closed the connection");
    }
    serde_json::from_slice(&answer)
        .context("the daemon's reply is not valid for this version of fslab")
}
