//! Where the messages of a mount go: to standard error, and, of a daemon that has left its
//! terminal, to the system's log.

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

/// Which messages are shown where `FSLAB_LOG` does not say otherwise.
const DEFAULT: &str = "warn";

/// Where syslogd or journald takes messages, one a datagram (RFC 3164).
const SYSTEM_LOG: &str = "/dev/log";

/// The facility of daemons, as a syslog priority counts it.
const DAEMON: u8 = 3 << 3;

/// Set once, when a daemon has left its terminal.
static LOG: OnceLock<SystemLog> = OnceLock::new();

/// Whether messages go to a file.
static IS_FILE: AtomicBool = AtomicBool::new(false);

/// Starts messages. Colours are for terminals: where messages will leave it, for a file or the
/// system's log, what is said before has none either.
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
        tracing::warn!(%error, "FSLAB_LOG={wanted} is not understood; using {DEFAULT}");
    }
}

/// From here on messages go to a file, and have their times.
pub fn go_to_a_file() {
    IS_FILE.store(true, Ordering::Relaxed);
}

/// The line of a message: for people at a terminal as any other program writes it, in a file with
/// time and level. The system's log has both by itself.
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

/// What stands before a message.
fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error: ",
        Level::WARN => "warning: ",
        Level::INFO => "",
        _ => "debug: ",
    }
}

/// Red for errors, yellow for warnings.
fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        _ => "",
    }
}

/// From here on messages go to the system's log, if there is one.
pub fn go_to_the_system_log() {
    if let Some(log) = SystemLog::at(Path::new(SYSTEM_LOG)) {
        // Set before, it is the same.
        let _same = LOG.set(log);
    }
}

/// Makes a writer for each message.
struct Messages;

/// One message.
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

/// A way to the system's log.
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

    /// A message that is not taken at once is lost: nobody waits for the log, least of all a mount
    /// that it may write to. It is found by its path each time, because it may be started anew.
    fn send(&self, level: Level, line: &[u8]) -> io::Result<()> {
        let head = format!("<{}>fslab[{}]: ", DAEMON | severity(level), std::process::id());
        let message = [head.as_bytes(), line.trim_ascii_end()].concat();
        self.socket.send_to(&message, &self.path).map(drop)
    }
}

/// What syslog calls error, warning, informational and debug.
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
    fn the_system_log_is_told_who_speaks_and_found_again_when_it_was_started_anew() {
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
    fn nobody_waits_for_the_system_log() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("log");
        let _listens_not = UnixDatagram::bind(&path).unwrap();
        let log = SystemLog::at(&path).unwrap();
        let full = (0..100_000).find_map(|_| log.send(Level::WARN, b"again").err()).unwrap();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    }
}
