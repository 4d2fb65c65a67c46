//! `fslab upgrade`: replaces the daemon of a mount with `-o keep` by the installed version.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fslab_sys::mounts::MountEntry;

use super::candidates;
use super::mount::upgrade::{ASKED, INSTALLED, REPLACE, SERVICE, VERSION};
use super::umount::mount_of_ours;
use crate::runtime;

/// The time in which the new daemon must answer.
const WAIT_MAX: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// The time in which a daemon must check the installed program.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// Time limit for a version request. A daemon that is being replaced no longer answers, although
/// its socket still exists for a moment.
const VERSION_TIME_MAX: Duration = Duration::from_millis(500);

/// Maximum length of an answer in bytes; an answer is one line.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Arguments of `fslab upgrade`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The mount point of a mount made with -o keep
    #[arg(add = candidates::mount_points())]
    mount_point: PathBuf,
}

const HELP: &str = "\
Install the new version first, at the path of the program that made the mount. The new program
checks whether it can serve the mount before it takes over; if it can't, nothing changes. Programs
that use the mount notice a pause.";

impl Args {
    /// Requests the replacement of the daemon, and waits for the new daemon.
    pub fn run(self) -> Result<()> {
        let (path, mount) = mount_of_ours(&self.mount_point)?;
        let shown = path.display();
        let before = serving(&path, &mount)
            .with_context(|| format!("can't get the version of the daemon of {shown}"))?;
        let answer = ask(&path, &mount, REPLACE, ANSWER_TIME_MAX)?;
        if answer != ASKED {
            bail!("{shown} was not upgraded: {answer}");
        }
        let asked = Instant::now();
        while asked.elapsed() < WAIT_MAX {
            std::thread::sleep(PAUSE);
            let Ok(after) = serving(&path, &mount) else { continue };
            if after.process == before.process {
                continue;
            }
            if !after.is_installed {
                bail!(
                    "{shown} is still served by the previous program, because the new one failed"
                );
            }
            say!("{shown}: fslab {} took over from fslab {}", after.version, before.version);
            return Ok(());
        }
        bail!("no new daemon of {shown} replied within {} s; see its log", WAIT_MAX.as_secs())
    }
}

/// The process that serves a mount.
struct Serving {
    process: u32,
    is_installed: bool,
    version: String,
}

fn serving(path: &Path, mount: &MountEntry) -> Result<Serving> {
    let answer = ask(path, mount, VERSION, VERSION_TIME_MAX)?;
    let parts: Vec<_> = answer.splitn(3, ' ').collect();
    let [process, is_installed, version] = parts[..] else {
        bail!("the daemon's reply is invalid: '{answer}'");
    };
    Ok(Serving {
        process: process.parse()?,
        is_installed: is_installed == INSTALLED,
        version: version.to_owned(),
    })
}

fn ask(path: &Path, mount: &MountEntry, question: &str, time_max: Duration) -> Result<String> {
    let shown = path.display();
    let Some(socket) = runtime::find_socket(mount, &shown, SERVICE)? else {
        bail_as!(
            BadInput,
            "{shown} is mounted without -o keep; unmount it, and mount it with the new version"
        );
    };
    let mut stream = UnixStream::connect(&socket)
        .with_context(|| format!("the daemon does not answer on {}", socket.display()))?;
    stream.set_read_timeout(Some(time_max))?;
    writeln!(stream, "{question}").context("can't send the request to the daemon")?;
    let mut answer = String::new();
    // Only one line is read, because the stream stays open until the new daemon closes the old
    // daemon's files.
    let mut told = BufReader::new(stream.take(ANSWER_BYTES_MAX));
    told.read_line(&mut answer).context("can't read the daemon's reply")?;
    Ok(answer.trim_end().to_owned())
}
