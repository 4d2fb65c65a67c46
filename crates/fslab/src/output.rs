//! Standard output: the text that a command prints.
//!
//! A reader may close the pipe early (`fslab ... | head -1`). The command then discards its
//! remaining output, but completes its work. After any other write error, the command fails, even
//! if `say!` ignored the error.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, ErrorKind, StdoutLock, Write};
use std::sync::OnceLock;

use anyhow::{Result, anyhow};
use comfy_table::{CellAlignment, ContentArrangement, Row, Table, presets};

/// Width of tables that are not printed on a terminal, in columns.
const WIDTH: u16 = 120;

/// Minimum width of a terminal, in columns. A smaller reported width is treated as unknown.
const WIDTH_MIN: u16 = 30;

/// The first write error.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints a line. After a write error, prints nothing; [`ended`] reports the error.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Prints a text without adding a newline.
pub fn print(text: impl Display) {
    if !has_failed() {
        // The error can be ignored here, because `Output` records it.
        write!(output(), "{text}").ok();
    }
}

/// Writes bytes unchanged.
pub fn write(bytes: &[u8]) {
    if !has_failed() {
        // The error can be ignored here, because `Output` records it.
        output().write_all(bytes).ok();
    }
}

/// Returns whether a write to standard output failed, for example because the reader closed the
/// pipe.
pub fn has_failed() -> bool {
    FAILURE.get().is_some()
}

/// Escapes a line for terminals. Control characters, which file names may contain, become `\xNN`.
/// Backslashes are then doubled, unless the line already contains such escapes.
pub fn harmless(line: &str) -> Cow<'_, str> {
    if !line.contains(char::is_control) {
        return Cow::Borrowed(line);
    }
    let has_escapes = line.contains(r"\x");
    let told = line.chars().map(|letter| match letter {
        '\\' if !has_escapes => r"\\".to_owned(),
        letter if letter.is_control() => {
            let mut bytes = [0; 4];
            let bytes = letter.encode_utf8(&mut bytes).bytes();
            bytes.map(|byte| format!(r"\x{byte:02x}")).collect()
        }
        letter => letter.to_string(),
    });
    Cow::Owned(told.collect())
}

/// Returns a text up to the end of its first sentence or clause.
pub fn first_sentence(text: &str) -> &str {
    text.split(['.', ';', '\n']).next().unwrap_or(text)
}

/// Returns a table without borders, at most as wide as the terminal.
pub fn plain_table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    let dynamic = ContentArrangement::Dynamic;
    table.load_style(presets::NOTHING).set_content_arrangement(dynamic).set_header(header);
    table
}

/// Prints a table without trailing blanks. All columns but the first are right-aligned.
pub fn print_figures(mut table: Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    print_table(&table);
}

/// Returns whether the user allows colour. The environment variable `NO_COLOR` forbids it.
pub fn may_have_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Prints a table without trailing blanks. Its width is that of the terminal or, without a
/// terminal, the environment variable `COLUMNS`. The default is [`WIDTH`].
pub fn print_table(table: &Table) {
    let mut table = table.clone();
    if !may_have_colour() {
        // `force_no_tty` disables colour, but also the detection of the terminal's width.
        if let Some(width) = table.width() {
            table.set_width(width);
        }
        table.force_no_tty();
    }
    if table.width().is_none_or(|width| width < WIDTH_MIN) {
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        table.set_width(columns.unwrap_or(WIDTH));
    }
    table.to_string().lines().for_each(|line| say!("{}", line.trim_end()));
}

/// Returns standard output for text that is written piece by piece. The caller must handle errors.
pub fn output() -> Output {
    Output(io::stdout().lock())
}

/// Writes to standard output and records the first error.
pub struct Output(StdoutLock<'static>);

impl Output {
    fn noted<T>(answer: io::Result<T>) -> io::Result<T> {
        answer.inspect_err(|error| {
            FAILURE.set(io::Error::new(error.kind(), error.to_string())).ok();
        })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::noted(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::noted(self.0.flush())
    }
}

/// Returns the result of a command, or the first error of standard output. A closed pipe is not a
/// failure.
pub fn ended(result: Result<()>) -> Result<()> {
    // The error can be ignored here, because `Output` records it.
    output().flush().ok();
    match (FAILURE.get(), result) {
        (None, result) => result,
        (Some(failure), Err(error)) if failure.kind() == ErrorKind::BrokenPipe => {
            if is_broken_pipe(&error) { Ok(()) } else { Err(error) }
        }
        (Some(failure), Ok(())) if failure.kind() == ErrorKind::BrokenPipe => Ok(()),
        (Some(failure), _) => Err(anyhow!("can't write to standard output: {failure}")),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let vfs = cause.downcast_ref::<fslab_vfs::Error>().map(fslab_vfs::Error::errno);
        io == Some(ErrorKind::BrokenPipe) || vfs == Some(fslab_vfs::Errno::PIPE)
    })
}
