//! A PostgreSQL server for one run, created, started and stopped here. It listens only on a socket.
//!
//! PostgreSQL refuses to run as root. If this process is root, the server therefore runs as another
//! user. That user can't traverse directories that only root may traverse, so the server gets
//! capabilities for this. By default, access(2) ignores the capabilities of a process that is not
//! root; the securebit `no_setuid_fixup` prevents that.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use fslab_sys::signals::Interrupt;
use fslab_sys::usage::{ProcessorTime, family_time_of};
use fslab_sys::user_database;
use rustix::process::Signal;

use crate::error::{Error, Result};
use crate::workload::application::{find, require, word};
use crate::workload::program::{Program, Started};

/// The directory of Debian's server programs, one subdirectory per version. They are not in `PATH`.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The capabilities to work in a directory that only root may traverse.
const CAPABILITIES: &str = "+dac_override,+dac_read_search";

/// The database user, which needs no password on the socket.
const USER: &str = "fslab";

/// The time limit for a clean shutdown.
const PATIENCE: Duration = Duration::from_secs(60);

/// The maximum length of a socket path, in bytes.
const SOCKET_PATH_MOST: usize = 107;

/// The name of the socket in its directory.
const SOCKET: &str = ".s.PGSQL.5432";

/// Returns whether a subdirectory of this directory has a path short enough for a socket.
pub(super) fn fits(directory: &Path) -> bool {
    directory.join("pg123456").join(SOCKET).as_os_str().len() <= SOCKET_PATH_MOST
}

/// The installed PostgreSQL, and the user that runs it.
pub(super) struct Postgres {
    programs: PathBuf,
    /// The user and group that run the server, if this process is root.
    account: Option<(u32, u32)>,
    buffers: u64,
}

impl Postgres {
    /// Finds the installed PostgreSQL.
    ///
    /// # Errors
    /// Fails if PostgreSQL, or the user that is to run it, is missing.
    pub fn find(account: &str, buffers: u64) -> Result<Self> {
        let missing = Error::MissingProgram {
            workload: "pgbench",
            program: "postgres",
            package: "postgresql",
        };
        let programs = directories().into_iter().find(|directory| {
            ["initdb", "postgres", "pgbench", "psql"]
                .iter()
                .all(|one| directory.join(one).is_file())
        });
        let programs = programs.ok_or(missing)?;
        let account = match rustix::process::geteuid().is_root() {
            false => None,
            true => {
                require("pgbench", &[("setpriv", "util-linux")])?;
                Some(numbers_of(account)?)
            }
        };
        Ok(Self { programs, account, buffers })
    }

    /// Changes the owner of a file or directory to the server's user.
    pub fn give(&self, path: &Path) -> Result<()> {
        let Some((user, group)) = self.account else { return Ok(()) };
        chown(path, Some(user), Some(group)).map_err(Error::file(path))
    }

    /// Creates an empty database cluster in a new directory.
    pub fn make_database(&self, data: &Path, interrupt: &Interrupt) -> Result<()> {
        fs::create_dir(data).map_err(Error::file(data))?;
        self.give(data)?;
        let user = format!("--username={USER}");
        let options =
            [&user, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "--pgdata"];
        let mut words = self.words("initdb", &options)?;
        words.push(word(data)?);
        Program::new(&words, Path::new("/")).run(interrupt)
    }

    /// Starts the server and waits until it is ready.
    pub fn start<'a>(
        &'a self,
        data: &Path,
        socket: &'a Path,
        interrupt: &Interrupt,
    ) -> Result<Server<'a>> {
        let name = socket.join(SOCKET);
        if name.as_os_str().len() > SOCKET_PATH_MOST {
            return Err(Error::Failed(format!(
                "{}: the path is too long for a socket; set TMPDIR to a shorter one",
                name.display()
            )));
        }
        let settings = [
            "listen_addresses=".to_owned(),
            format!("unix_socket_directories={}", word(socket)?),
            format!("shared_buffers={}kB", self.buffers >> 10),
            "port=5432".to_owned(),
            // A killed server must leave nothing outside the target.
            "dynamic_shared_memory_type=mmap".to_owned(),
        ];
        let mut words = self.words("postgres", &["-D"])?;
        words.push(word(data)?);
        words.extend(settings.into_iter().flat_map(|one| ["-c".to_owned(), one]));
        let started = Program::new(&words, Path::new("/")).start()?;
        let mut server = Server { postgres: self, started: Some(started), socket };
        server.wait_until_ready(&data.join("postmaster.pid"), interrupt)?;
        Ok(server)
    }

    /// Returns the command line of a program that runs as the server's user.
    fn words(&self, program: &str, options: &[&str]) -> Result<Vec<String>> {
        let mut words = Vec::new();
        if let Some((user, group)) = self.account {
            words.push("setpriv".to_owned());
            words.extend([format!("--reuid={user}"), format!("--regid={group}")]);
            words.extend(["--clear-groups", "--securebits=+no_setuid_fixup"].map(str::to_owned));
            words.push(format!("--inh-caps={CAPABILITIES}"));
            words.push(format!("--ambient-caps={CAPABILITIES}"));
        }
        words.push(word(&self.programs.join(program))?);
        words.extend(options.iter().map(|option| (*option).to_owned()));
        Ok(words)
    }
}

/// Returns the directories that may contain PostgreSQL's programs: first the directory in `PATH`
/// that contains `postgres`, then the directories of the installed versions, the latest first.
fn directories() -> Vec<PathBuf> {
    let in_path = find("postgres").and_then(|path| path.canonicalize().ok());
    let in_path = in_path.and_then(|path| path.parent().map(Path::to_owned));
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(VERSIONS)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.split('.').next()?.parse().ok()?;
            Some((number, entry.path().join("bin")))
        })
        .collect();
    versions.sort_unstable_by(|one, other| other.cmp(one));
    in_path.into_iter().chain(versions.into_iter().map(|(_, path)| path)).collect()
}

fn numbers_of(account: &str) -> Result<(u32, u32)> {
    let failed = || Error::file("/etc/passwd".as_ref());
    let user = user_database::user(account).map_err(failed())?;
    let group = user_database::group(account).map_err(failed())?;
    user.zip(group).filter(|(user, _)| *user != 0).ok_or_else(|| {
        Error::Failed(format!(
            "workload pgbench: `account`: {account:?} must be the name of a user and of a group, \
             and not root"
        ))
    })
}

/// A running server, which is stopped when dropped.
pub(super) struct Server<'a> {
    postgres: &'a Postgres,
    /// `None` after the server was stopped.
    started: Option<Started>,
    socket: &'a Path,
}

impl Server<'_> {
    /// Returns the directory of the socket.
    pub fn socket(&self) -> &Path {
        self.socket
    }

    /// Returns the command line of a client program that connects to this server.
    pub fn client(&self, program: &str, options: &[&str]) -> Result<Vec<String>> {
        let mut words = vec![word(&self.postgres.programs.join(program))?];
        words.extend(["-h".to_owned(), word(self.socket)?, "-p".to_owned(), "5432".to_owned()]);
        words.extend(["-U", USER].map(str::to_owned));
        words.extend(options.iter().map(|option| (*option).to_owned()));
        words.push("postgres".to_owned());
        Ok(words)
    }

    /// Returns the result of a query in psql's unaligned format.
    pub fn query(&self, query: &str, interrupt: &Interrupt) -> Result<String> {
        let words = self.client("psql", &["-X", "-A", "-t", "-q", "-c", query])?;
        let answer = Program::new(&words, self.socket).output_of(interrupt)?;
        Ok(String::from_utf8_lossy(&answer).trim().to_owned())
    }

    /// Returns the processor time of the server and of its backend processes that have exited.
    pub fn processor_time(&self) -> Result<ProcessorTime> {
        let Some(started) = &self.started else { return Ok(ProcessorTime::default()) };
        family_time_of(started.id()).map_err(Error::file("/proc".as_ref()))
    }

    /// Shuts the server down cleanly: all data is written to its files.
    pub fn stop(mut self) -> Result<()> {
        let Some(started) = self.started.take() else { return Ok(()) };
        let status = started.end(Signal::INT, PATIENCE)?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Failed(format!("the PostgreSQL server did not exit cleanly ({status})")))
    }

    /// Waits until the server is ready. Its state is in the eighth line of the file
    /// `postmaster.pid`.
    fn wait_until_ready(&mut self, file: &Path, interrupt: &Interrupt) -> Result<()> {
        loop {
            if let Some(started) = &mut self.started
                && let Some(status) = started.status()?
            {
                return Err(started.failure(status));
            }
            if interrupt.is_raised() {
                return Err(Error::Interrupted);
            }
            let text = fs::read_to_string(file).unwrap_or_default();
            if text.lines().nth(7).is_some_and(|line| line.trim() == "ready") {
                return Ok(());
            }
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server<'_> {
    /// Shuts the server down cleanly. Its other processes, which keep files of the target open,
    /// then exit too.
    fn drop(&mut self) {
        let Some(started) = self.started.take() else { return };
        if let Err(error) = started.end(Signal::INT, PATIENCE) {
            tracing::warn!("can't stop a PostgreSQL server: {error}");
        }
    }
}
