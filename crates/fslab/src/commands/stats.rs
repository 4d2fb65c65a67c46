//! `fslab stats`: what the layers of a mount have counted.

mod prometheus;
mod table;

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use fslab_layers::Report;
use fslab_sys::mounts::MountEntry;
use serde::Deserialize;

use super::umount;
use crate::exit::Code;
use crate::{output, runtime};

/// No daemon of ours tells more.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;

const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Arguments of `fslab stats`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// Print JSON, with whole histograms
    #[arg(long)]
    json: bool,
    /// Where it is mounted
    mount_point: PathBuf,
}

/// What a daemon tells.
#[derive(Debug, Deserialize)]
struct Document {
    mount_point: String,
    layers: Vec<Report>,
}

impl Args {
    /// Asks the daemon and prints.
    pub fn run(self) -> Result<()> {
        let (path, mount) = umount::mount_of_ours(&self.mount_point)?;
        let text = ask(&path, &mount)?;
        if self.json {
            let value: serde_json::Value = serde_json::from_str(&text)?;
            say!("{value:#}");
            return Ok(());
        }
        let document: Document = serde_json::from_str(&text)
            .context("the daemon answers what this fslab does not understand")?;
        if self.prometheus {
            output::print(prometheus::render(&document.mount_point, &document.layers));
        } else {
            output::print(table::render(&document.layers));
        }
        Ok(())
    }
}

/// What the daemon of a mount tells.
fn ask(path: &std::path::Path, mount: &MountEntry) -> Result<String> {
    let shown = path.display();
    let nothing = || {
        Code::BadInput.error(format!(
            "no layer of {shown} has anything to tell; mount with -l stats to count operations"
        ))
    };
    let socket = runtime::find_socket(mount, &shown, runtime::COUNTS)?.ok_or_else(nothing)?;
    let stream = match UnixStream::connect(&socket) {
        // A daemon that was killed left the socket; its number went to a mount that has none.
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
    stream.take(DOCUMENT_BYTES_MAX).read_to_string(&mut text).context("asking the daemon")?;
    Ok(text)
}
