//! Real servers on loopback: SeaweedFS and moto, which honour conditions, and rclone, which ignores
//! them.
//!
//! A server must not outlive its test. So `setpriv` makes the kernel kill the server when the
//! thread that started it ends. A separate thread starts each server and lives until the server is
//! dropped.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::random::random;

/// The access key of the servers.
pub const ACCESS_KEY: &str = "fslabtest";
/// The secret key of the servers.
pub const SECRET_KEY: &str = "fslabtestsecret";
/// A bucket that exists on the servers.
pub const BUCKET: &str = "fslab-test";

/// The time limit for a server's start, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The number of attempts to start a server, because another process may take its port first.
const STARTS: u32 = 5;
/// For each of its ports, SeaweedFS also uses a second port, whose number is higher by this value.
const SECOND_PORTS: u16 = 10_000;
/// The number of consecutive ports that SeaweedFS uses.
const SEAWEED_PORTS: u16 = 6;

/// A server that runs until it is dropped.
pub struct Server {
    port: u16,
    end: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Server {
    /// Starts SeaweedFS.
    ///
    /// # Errors
    /// Fails if it is not installed or does not start.
    pub fn seaweedfs() -> io::Result<Self> {
        Self::start("weed", SEAWEED_PORTS, |folder, base| {
            let config = folder.join("s3.json");
            let identity = format!(
                r#"{{"identities":[{{"name":"fslab","credentials":[{{"accessKey":"{ACCESS_KEY}",
                "secretKey":"{SECRET_KEY}"}}],"actions":["Admin","Read","Write","List"]}}]}}"#
            );
            fs::write(&config, identity)?;
            let mut arguments = vec!["mini".to_owned()];
            let mut set = |name: &str, value: String| arguments.push(format!("-{name}={value}"));
            set("dir", folder.display().to_string());
            set("ip", "127.0.0.1".to_owned());
            set("ip.bind", "127.0.0.1".to_owned());
            for (number, part) in ["s3", "master", "filer", "volume", "admin"].iter().enumerate() {
                set(&format!("{part}.port"), (base + number as u16).to_string());
            }
            set("s3.port.iceberg", "0".to_owned());
            set("s3.port.lance", "0".to_owned());
            set("master.telemetry", "false".to_owned());
            set("admin.ui", "false".to_owned());
            set("webdav", "false".to_owned());
            set("s3.config", config.display().to_string());
            set("bucket", BUCKET.to_owned());
            Ok(arguments)
        })
    }

    /// Starts moto. It has no bucket at first.
    ///
    /// # Errors
    /// Fails if it is not installed or does not start.
    pub fn moto() -> io::Result<Self> {
        Self::start("moto_server", 1, |_, base| {
            let port = base.to_string();
            Ok(["-H", "127.0.0.1", "-p", &port].into_iter().map(str::to_owned).collect())
        })
    }

    /// Starts the S3 server of rclone.
    ///
    /// # Errors
    /// Fails if it is not installed or does not start.
    pub fn rclone() -> io::Result<Self> {
        Self::start("rclone", 1, |folder, base| {
            fs::create_dir(folder.join(BUCKET))?;
            Ok(["serve", "s3", "--addr", &format!("127.0.0.1:{base}"), "--auth-key"]
                .into_iter()
                .map(str::to_owned)
                .chain([format!("{ACCESS_KEY},{SECRET_KEY}"), folder.display().to_string()])
                .collect())
        })
    }

    /// Returns the port of the server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    fn start(
        name: &str,
        ports: u16,
        arguments: impl Fn(&Path, u16) -> io::Result<Vec<String>>,
    ) -> io::Result<Self> {
        let missing =
            || io::Error::new(io::ErrorKind::NotFound, format!("{name} is not installed"));
        let program = super::program(name).ok_or_else(missing)?;
        let mut last = io::Error::other("the server was not started");
        for _ in 0..STARTS {
            let folder = tempfile::tempdir()?;
            let base = free_ports(ports)?;
            let arguments = arguments(folder.path(), base)?;
            match keep(&program, &arguments, folder.path(), base) {
                Ok((end, keeper)) => {
                    let (end, keeper) = (Some(end), Some(keeper));
                    return Ok(Self { port: base, end, keeper, _folder: folder });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.end.take());
        // If the keeper thread panicked, the kernel has killed its server.
        self.keeper.take().map_or(Ok(()), JoinHandle::join).unwrap_or_default();
    }
}

/// Starts a server in a thread that also stops it.
fn keep(
    program: &Path,
    arguments: &[String],
    folder: &Path,
    port: u16,
) -> io::Result<(Sender<()>, JoinHandle<()>)> {
    let log = fs::File::create(folder.join("log"))?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program).args(arguments);
    command.current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    // Hides the settings of the user who runs the test.
    command.env("HOME", folder).env_remove("RCLONE_CONFIG").env("RCLONE_CONFIG", "/dev/null");
    let (end, ended) = channel::<()>();
    let (report, reported) = channel();
    let keeper = std::thread::Builder::new().name("server".to_owned()).spawn(move || {
        let child = command.spawn().and_then(|child| wait_until_ready(child, port));
        let mut child = match child {
            Ok(child) => child,
            Err(error) => return report.send(Err(error)).unwrap_or_default(),
        };
        report.send(Ok(())).unwrap_or_default();
        // Waits until `end` is dropped, and then stops the server.
        ended.recv().unwrap_or_default();
        stop(&mut child);
    })?;
    let started = reported.recv().map_err(io::Error::other).flatten();
    started.map(|()| (end, keeper)).map_err(|error| {
        let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
        let last: Vec<_> = log.lines().rev().take(5).collect();
        io::Error::other(format!("{error}: {last:?}"))
    })
}

fn stop(child: &mut Child) {
    let ended = child.kill().and_then(|()| child.wait());
    if let Err(error) = ended {
        eprintln!("can't stop a server: {error}");
    }
}

/// Waits until a server answers a request for its bucket with a success or a client error.
fn wait_until_ready(mut child: Child, port: u16) -> io::Result<Child> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("the server ended: {status}")));
        }
        if is_ready(port).unwrap_or(false) {
            return Ok(child);
        }
        if begun.elapsed() > START_LIMIT {
            stop(&mut child);
            return Err(io::Error::other("the server did not start in time"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_ready(port: u16) -> io::Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let request =
        format!("GET /{BUCKET} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    Ok(answer.starts_with(b"HTTP/1.1 4") || answer.starts_with(b"HTTP/1.1 2"))
}

/// Returns the first of `count` consecutive free ports whose second ports (see [`SECOND_PORTS`])
/// are also free.
fn free_ports(count: u16) -> io::Result<u16> {
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    for _ in 0..1000 {
        // Lower than the ephemeral ports of clients, and low enough that every second port is a
        // valid port.
        let base = 12_000 + (random() % 9_000) as u16;
        let ports = base..base + count;
        if ports.flat_map(|port| [port, port + SECOND_PORTS]).all(is_free) {
            return Ok(base);
        }
    }
    Err(io::Error::other("no free ports"))
}
