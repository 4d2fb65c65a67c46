//! `fslab stats`: shows the counters of a mount's layers.

mod listen;
mod prometheus;
mod table;
mod watch;

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fslab_layers::Report;
use fslab_sys::mounts::{self, MountEntry};
use serde::Deserialize;

use super::candidates;
use super::umount;
use crate::exit::Code;
use crate::{output, runtime, units};

/// Maximum size of a daemon's answer in bytes. Daemons of fslab send less.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;

/// The shortest interval of --watch.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Arguments of `fslab stats`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print in the text format of Prometheus, for a file or a textfile collector
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// Print JSON, with complete histograms
    #[arg(long)]
    json: bool,
    /// Print the counts of each interval, until interrupted
    #[arg(long, value_name = "INTERVAL", value_parser = parse_interval,
          conflicts_with_all = ["json", "prometheus"])]
    watch: Option<Duration>,
    /// Serve the metrics for Prometheus on a loopback address or a socket (unix:PATH), until
    /// interrupted
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["json", "prometheus", "watch"])]
    listen: Option<listen::Place>,
    /// The mount point
    #[arg(add = candidates::mount_points())]
    mount_point: PathBuf,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = units::parse_duration(text)?;
    let is_long_enough = interval >= INTERVAL_MIN;
    is_long_enough.then_some(interval).ok_or_else(|| "the shortest interval is 100ms".to_owned())
}

#[derive(Debug, Deserialize)]
struct Document {
    mount_point: String,
    layers: Vec<Report>,
}

impl Args {
    /// Requests the counters from the daemon and prints them.
    pub fn run(self) -> Result<()> {
        let (path, mount) = umount::mount_of_ours(&self.mount_point)?;
        if let Some(place) = &self.listen {
            return listen::serve(place, || {
                let document = parse(&ask(&path, &mount)?)?;
                Ok(prometheus::render(&document.mount_point, &document.layers))
            });
        }
        if let Some(interval) = self.watch {
            return watch(&path, &mount, interval);
        }
        let text = ask(&path, &mount)?;
        if self.json {
            let value: serde_json::Value = serde_json::from_str(&text)?;
            say!("{value:#}");
            return Ok(());
        }
        let document = parse(&text)?;
        if self.prometheus {
            output::print(prometheus::render(&document.mount_point, &document.layers));
        } else {
            output::print(table::render(&document.layers));
        }
        Ok(())
    }
}

fn parse(text: &str) -> Result<Document> {
    serde_json::from_str(text).context("the daemon's reply is not valid for this version of fslab")
}

/// Prints the counts of each interval until standard output is closed or the mount ends.
fn watch(path: &Path, mount: &MountEntry, interval: Duration) -> Result<()> {
    let mut before = parse(&ask(path, mount)?)?.layers;
    let mut asked = Instant::now();
    while !output::has_failed() {
        std::thread::sleep(interval.saturating_sub(asked.elapsed()));
        let answer = ask(path, mount);
        if answer.is_err() && !is_mounted(mount)? {
            eprintln!("fslab: the mount on {} has ended", path.display());
            return Ok(());
        }
        let (after, passed) = (parse(&answer?)?.layers, asked.elapsed());
        asked = Instant::now();
        say!("{}", watch::heading(passed));
        output::print(table::render(&watch::between(&before, &after)));
        say!("");
        before = after;
    }
    Ok(())
}

fn is_mounted(mount: &MountEntry) -> Result<bool> {
    let mounts = mounts::list().context("can't read the list of mounts")?;
    Ok(mounts.iter().any(|one| one.device == mount.device && one.target == mount.target))
}

fn ask(path: &Path, mount: &MountEntry) -> Result<String> {
    let shown = path.display();
    let nothing = || {
        Code::BadInput.error(format!(
            "no layer of {shown} has counters; mount with -l stats to count operations"
        ))
    };
    let socket = runtime::find_socket(mount, &shown, runtime::COUNTS)?.ok_or_else(nothing)?;
    let stream = match runtime::connect(&socket) {
        // A killed daemon left this socket. Its device number was reused for a mount without
        // sockets.
        Err(error)
            if error.kind() == ErrorKind::ConnectionRefused
                && umount::Daemon::of(mount).is_some() =>
        {
            return Err(nothing());
        }
        connected => connected.with_context(|| {
            format!("the daemon of {shown} does not answer on {}", socket.display())
        })?,
    };
    let mut text = String::new();
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    stream
        .take(DOCUMENT_BYTES_MAX)
        .read_to_string(&mut text)
        .context("can't read the daemon's reply")?;
    Ok(text)
}
