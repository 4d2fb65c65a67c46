//! `fslab trace show`: the operations of a trace, a line each.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use fslab_trace::{COLUMNS, Filter, Line, Paths, Pattern, Reader, Record, Shown, pattern};
use fslab_vfs::{Operation, errno_from_name};
use serde_json::Value;

use crate::output::output;
use crate::units::parse_duration;

const HELP: &str = "\
A line has: number, seconds since the trace began, duration, serving thread, calling thread and
user, operation with its arguments, answer. A path is shown where the trace tells it, else the
inode as #NUMBER. Patterns are those of a
shell; ** stands for any directories. Several values of one filter mean any of them; several
filters must all fit.";

/// Arguments of `fslab trace show`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Only this operation, such as lookup or write
    #[arg(long, short, value_name = "NAME")]
    operation: Vec<Operation>,
    /// Only what is about, or answers, this inode
    #[arg(long, value_name = "NUMBER")]
    inode: Vec<u64>,
    /// Only where a name fits
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    name: Vec<Pattern>,
    /// Only where the path of an inode fits
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    path: Vec<Pattern>,
    /// Only what this thread asked for
    #[arg(long)]
    pid: Vec<u32>,
    /// Only what this user asked for
    #[arg(long)]
    uid: Vec<u32>,
    /// Only what failed
    #[arg(long)]
    failed: bool,
    /// Only what failed so: a name such as ENOENT, or a number
    #[arg(long, value_name = "NAME", value_parser = errno)]
    errno: Vec<u32>,
    /// Only what took so long or longer
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    slower_than: Option<Duration>,
    /// Only what began so long after the trace, or later
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    from: Option<Duration>,
    /// Only what began earlier than this
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    until: Option<Duration>,
    /// At most so many
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u64>,
    /// Print a JSON object a line, with the columns of the trace
    #[arg(long)]
    json: bool,
    /// The trace: its directory, or one file of it
    trace: PathBuf,
}

fn errno(text: &str) -> Result<u32, String> {
    let errno = errno_from_name(text).ok_or_else(|| format!("there is no error '{text}'"))?;
    Ok(errno.raw_os_error().cast_unsigned())
}

impl Args {
    /// Prints.
    pub fn run(self) -> Result<()> {
        let mut reader = Reader::open(&self.trace)?;
        let mut out = BufWriter::new(output());
        let (filter, mut paths) = (self.filter(), Paths::default());
        let mut left = self.limit.unwrap_or(u64::MAX);
        for record in &mut reader {
            let record = record?;
            if left == 0 {
                break;
            }
            // What a rename leads to is learnt first, what a removal takes away is learnt later.
            let wanted = filter.accepts(&record, &|ino| paths.of(ino));
            if wanted {
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

    fn filter(&self) -> Filter {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Filter {
            operations: self.operation.clone(),
            inodes: self.inode.clone(),
            names: self.name.clone(),
            paths: self.path.clone(),
            pids: self.pid.clone(),
            uids: self.uid.clone(),
            failed: self.failed,
            errnos: self.errno.clone(),
            duration_ns_min: self.slower_than.map_or(0, ns),
            start_ns_min: self.from.map_or(0, ns),
            start_ns_end: self.until.map(ns),
        }
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
