//! Directs the messages of a mount to standard error. After a daemon has left its terminal, its
//! messages go to a file or to the system log.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// The log level if `FSLAB_LOG` does not set one.
const DEFAULT: &str = "warn";

/// The socket where syslogd or journald accepts messages, one per datagram (RFC 3164).
const SYSTEM_LOG: &str = "/dev/log";

/// The facility of daemons in a syslog priority.
const DAEMON: u8 = 3 << 3;

/// Set once a daemon has left its terminal.
static LOG: OnceLock<SystemLog> = OnceLock::new();

/// Whether messages go to a file.
static IS_FILE: AtomicBool = AtomicBool::new(false);

/// Starts logging. `leave_the_terminal` is set if messages will later go to a file or to the system
/// log; they then have no colours.
pub fn start(leave_the_terminal: bool) {
    let is_coloured =
        io::stderr().is_terminal() && !leave_the_terminal && crate::output::may_have_colour();
    let wanted = std::env::var("FSLAB_LOG").unwrap_or_else(|_unset| DEFAULT.to_owned());
    let (filter, refused) = match EnvFilter::try_new(&wanted) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(DEFAULT), Some(error)),
    };
    let messages = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(is_coloured);
    messages.event_format(Line).with_writer(Messages).init();
    if let Some(error) = refused {
        tracing::warn!(%error, "FSLAB_LOG={wanted} is invalid; using {DEFAULT}");
    }
}

/// Records that messages go to a file from now on. Each message then contains its time.
pub fn go_to_a_file() {
    IS_FILE.store(true, Ordering::Relaxed);
}

/// Formats a message as one line. In a file, the line begins with the time and the level, which the
/// system log adds by itself. On a terminal, it begins with the name of the program.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        if IS_FILE.load(Ordering::Relaxed) {
            write!(writer, "{} {level} ", jiff::Timestamp::now())?;
        } else if LOG.get().is_none() {
            let (colour, end) =
                if writer.has_ansi_escapes() { (colour(level), "\x1b[0m") } else { ("", "") };
            write!(writer, "fslab: {colour}{}{end}", word(level))?;
        }
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Returns the prefix of a message.
fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error: ",
        Level::WARN => "warning: ",
        Level::INFO => "",
        _ => "debug: ",
    }
}

/// Returns the colour of a message: red for errors, yellow for warnings.
fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        _ => "",
    }
}

/// Sends later messages to the system log, if there is one.
pub fn go_to_the_system_log() {
    if let Some(log) = SystemLog::at(Path::new(SYSTEM_LOG)) {
        // If the log was already set, it is the same log.
        let _same = LOG.set(log);
    }
}

struct Messages;

struct Message(Level);

impl<'a> MakeWriter<'a> for Messages {
    type Writer = Message;

    fn make_writer(&'a self) -> Message {
        Message(Level::INFO)
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Message {
        Message(*metadata.level())
    }
}

impl Write for Message {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(log) = LOG.get() else { return io::stderr().write(line) };
        log.send(self.0, line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct SystemLog {
    path: PathBuf,
    socket: UnixDatagram,
}

impl SystemLog {
    fn at(path: &Path) -> Option<Self> {
        let socket = UnixDatagram::unbound().ok().filter(|_| path.exists())?;
        socket.set_nonblocking(true).ok()?;
        Some(Self { path: path.to_owned(), socket })
    }

    /// Sends a message. If the log does not accept the message at once, it is discarded. The system
    /// log may write to this mount, so waiting for the log could block forever. Each message is
    /// sent to the socket's path, because the log may have been restarted.
    fn send(&self, level: Level, line: &[u8]) -> io::Result<()> {
        let head = format!("<{}>fslab[{}]: ", DAEMON | severity(level), std::process::id());
        let message = [head.as_bytes(), line.trim_ascii_end()].concat();
        self.socket.send_to(&message, &self.path).map(drop)
    }
}

/// Returns the syslog number of a severity: error, warning, informational or debug.
fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_messages_name_the_process_and_survive_a_log_restart() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("log");
        assert!(SystemLog::at(&path).is_none());
        let first = UnixDatagram::bind(&path).unwrap();
        let log = SystemLog::at(&path).unwrap();
        let told = |socket: &UnixDatagram| {
            log.send(Level::ERROR, b"a chunk is damaged\n").unwrap();
            let mut found = [0; 80];
            let count = socket.recv(&mut found).unwrap();
            String::from_utf8_lossy(&found[..count]).into_owned()
        };
        let expected = format!("<27>fslab[{}]: a chunk is damaged", std::process::id());
        assert_eq!(told(&first), expected);
        drop(first);
        std::fs::remove_file(&path).unwrap();
        assert!(log.send(Level::WARN, b"nobody hears this").is_err());
        let second = UnixDatagram::bind(&path).unwrap();
        assert_eq!(told(&second), expected);
    }

    #[test]
    fn full_system_log_does_not_block_the_sender() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("log");
        let _listens_not = UnixDatagram::bind(&path).unwrap();
        let log = SystemLog::at(&path).unwrap();
        let full = (0..100_000).find_map(|_| log.send(Level::WARN, b"again").err()).unwrap();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    }
}
