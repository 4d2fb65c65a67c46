//! Standard output: what a command tells. Whoever reads it may have read enough
//! (`fslab ... | head -1`): what comes then is left unsaid, and work that must be ended is ended.
//! Any other failure to write ends the command as failed, also where the text was only said.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, ErrorKind, StdoutLock, Write};
use std::sync::OnceLock;

use anyhow::{Result, anyhow};
use comfy_table::{CellAlignment, ContentArrangement, Row, Table, presets};

/// Columns of tables that are not printed on a terminal.
const WIDTH: u16 = 120;

/// A terminal that says it is narrower does not know its width.
const WIDTH_MIN: u16 = 30;

/// The first failure to write.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Says a line, or nothing more once that failed: [`ended`] tells it then.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Says a text as it is.
pub fn print(text: impl Display) {
    if !has_failed() {
        // A failure is noted by the writer.
        write!(output(), "{text}").ok();
    }
}

/// Whether nobody reads any more, or nothing can be written.
pub fn has_failed() -> bool {
    FAILURE.get().is_some()
}

/// A line for terminals: control characters, as names of files may have, are told as `\xNN`, and
/// then each backslash twice, unless the line has such escapes already.
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

/// A text up to the end of its first sentence or clause.
pub fn first_sentence(text: &str) -> &str {
    text.split(['.', ';', '\n']).next().unwrap_or(text)
}

/// A table without lines, as wide as the terminal at most.
pub fn plain_table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    let dynamic = ContentArrangement::Dynamic;
    table.load_style(presets::NOTHING).set_content_arrangement(dynamic).set_header(header);
    table
}

/// Prints a table of which all columns but the first hold figures, without blanks at line ends.
pub fn print_figures(mut table: Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    print_table(&table);
}

/// Whether the user allows colour: the variable `NO_COLOR` forbids it.
pub fn may_have_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Prints a table without blanks at line ends. Where no terminal says how wide lines may be, the
/// variable `COLUMNS` does, or they are at most [`WIDTH`] wide.
pub fn print_table(table: &Table) {
    let mut table = table.clone();
    if !may_have_colour() {
        // The width is that of the terminal all the same.
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

/// Standard output, for what is written piece by piece: its errors end the work.
pub fn output() -> Output {
    Output(io::stdout().lock())
}

/// Writes to standard output, and notes its first failure.
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

/// How a command ended, given what became of its output.
pub fn ended(result: Result<()>) -> Result<()> {
    // Noted.
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
