//! `fslab trace show`: prints the operations of a trace, one per line.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::Result;
use fslab_trace::{COLUMNS, Line, Paths, Reader, Record, Shown};
use serde_json::Value;

use super::filter::Filter;
use crate::output::output;

const HELP: &str = "\
A line has: number, seconds since the trace began, duration, serving thread, calling thread with its
user and name, operation with its arguments, result. A path is shown if the trace contains it,
otherwise the inode as #NUMBER. Patterns are shell patterns; ** matches any number of directories.
An operation is printed if it matches every given filter. A filter with several values matches any
of them.";

/// Arguments of `fslab trace show`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    filter: Filter,
    /// Print at most this many operations
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u64>,
    /// Print JSON, one object per line, with the columns of the trace
    #[arg(long)]
    json: bool,
    /// The trace: its directory, or one file of it
    trace: PathBuf,
}

impl Args {
    /// Prints the selected operations.
    pub fn run(self) -> Result<()> {
        let mut reader = Reader::open(&self.trace)?;
        let mut out = BufWriter::new(output());
        let mut paths = Paths::default();
        let mut left = self.limit.unwrap_or(u64::MAX);
        for record in &mut reader {
            let record = record?;
            if left == 0 {
                break;
            }
            // The filter and the line use the paths as they were before this operation. So a
            // removed file still has its path, and a renamed file has its old path.
            if self.filter.accepts(&record, &paths) {
                match self.json {
                    true => writeln!(out, "{}", as_json(&record))?,
                    false => writeln!(out, "{}", Line(&record, &paths))?,
                }
                left -= 1;
            }
            paths.learn(&record);
        }
        out.flush()?;
        super::say_what_is_missing(&reader);
        Ok(())
    }
}

fn as_json(record: &Record) -> Value {
    let column = |column: &'static fslab_trace::Column| {
        let value = match column.show(record)? {
            Shown::Unsigned(number) => number.into(),
            Shown::Signed(number) => number.into(),
            Shown::Text(text) => text.into(),
            Shown::Bytes(bytes) => {
                bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
            }
        };
        Some((column.name.to_owned(), value))
    };
    Value::Object(COLUMNS.iter().filter_map(column).collect())
}
