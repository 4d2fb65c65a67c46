//! Writes an answer while the engine computes it.
//!
//! Bytes are written as hexadecimal digits, and times in UTC with nanoseconds. In a table, null is
//! empty, and control characters of texts are escaped.

use std::borrow::Cow;
use std::io::{self, Write};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::writer::{LineDelimited, Writer as JsonWriter, WriterBuilder};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use fslab_dataset::Output;

use crate::error::{Error, Result};

/// Number of rows at the start of a table that determine the widths of its columns.
const WIDTH_ROWS: usize = 1000;

/// Maximum width of a column in characters. A longer value shifts the rest of its line to the
/// right.
const WIDTH_MAX: usize = 60;

const TIMES: &str = "%Y-%m-%dT%H:%M:%S%.9fZ";

/// An answer that is being written in one of the output forms.
pub enum Answer<W: Write> {
    /// A table for people to read.
    Table(Box<Table<W>>),
    /// One JSON object per line.
    Json(Box<JsonWriter<W, LineDelimited>>),
    /// A header line and a line for each row.
    Csv(Box<csv::Writer<W>>),
}

impl<W: Write> Answer<W> {
    /// Starts an answer with these columns.
    ///
    /// # Errors
    /// Fails if standard output can't be written, or if two columns of a JSON answer have the same
    /// name.
    pub fn new(form: Output, schema: &Schema, output: W) -> Result<Self> {
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        Ok(match form {
            Output::Table => Self::Table(Box::new(Table::new(schema, output))),
            Output::Json => {
                check_names(&names)?;
                let json = WriterBuilder::new()
                    .with_explicit_nulls(true)
                    .with_timestamp_format(TIMES.to_owned())
                    .with_timestamp_tz_format(TIMES.to_owned());
                Self::Json(Box::new(json.build(output)))
            }
            Output::Csv => {
                let mut csv = csv::Writer::from_writer(output);
                csv.write_record(&names).map_err(of_csv)?;
                Self::Csv(Box::new(csv))
            }
        })
    }

    /// Writes some rows.
    ///
    /// # Errors
    /// Fails if a value or standard output can't be written.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        match self {
            Self::Table(table) => table.add(rows),
            Self::Json(json) => json.write(rows).map_err(of_arrow),
            Self::Csv(csv) => {
                each_row(rows, |row| csv.write_record(row).map_err(of_csv))?;
                csv.flush().map_err(Error::Output)
            }
        }
    }

    /// Writes the remaining text.
    ///
    /// # Errors
    /// Fails if standard output can't be written.
    pub fn finish(self) -> Result<()> {
        match self {
            Self::Table(table) => table.finish(),
            Self::Json(mut json) => {
                json.finish().map_err(of_arrow)?;
                json.into_inner().flush().map_err(Error::Output)
            }
            Self::Csv(mut csv) => csv.flush().map_err(Error::Output),
        }
    }
}

/// A table without borders.
pub struct Table<W: Write> {
    output: W,
    columns: Vec<Column>,
    /// The first rows, which are kept until the widths of the columns are known.
    first: Vec<Vec<String>>,
    is_begun: bool,
}

struct Column {
    name: String,
    is_number: bool,
    width: usize,
}

impl<W: Write> Table<W> {
    fn new(schema: &Schema, output: W) -> Self {
        let column = |field: &std::sync::Arc<datafusion::arrow::datatypes::Field>| {
            let name = harmless(field.name()).into_owned();
            let width = name.chars().count();
            Column { name, is_number: is_number(field.data_type()), width }
        };
        let columns = schema.fields().iter().map(column).collect();
        Self { output, columns, first: Vec::new(), is_begun: false }
    }

    fn add(&mut self, rows: &RecordBatch) -> Result<()> {
        each_row(rows, |row| {
            let row: Vec<String> = row.iter().map(|cell| harmless(cell).into_owned()).collect();
            if self.is_begun {
                return self.print(&row);
            }
            self.first.push(row);
            if self.first.len() == WIDTH_ROWS { self.begin() } else { Ok(()) }
        })
    }

    /// Prints the header and the first rows.
    fn begin(&mut self) -> Result<()> {
        self.is_begun = true;
        for row in &self.first {
            for (column, cell) in self.columns.iter_mut().zip(row) {
                column.width = column.width.max(cell.chars().count().min(WIDTH_MAX));
            }
        }
        let header: Vec<_> = self.columns.iter().map(|column| column.name.clone()).collect();
        self.print(&header)?;
        for row in std::mem::take(&mut self.first) {
            self.print(&row)?;
        }
        Ok(())
    }

    fn print(&mut self, row: &[String]) -> Result<()> {
        let mut line = String::new();
        for (column, cell) in self.columns.iter().zip(row) {
            let padding = " ".repeat(column.width.saturating_sub(cell.chars().count()));
            let (before, after) =
                if column.is_number { (padding.as_str(), "") } else { ("", padding.as_str()) };
            let gap = if line.is_empty() { "" } else { "  " };
            line.extend([gap, before, cell, after]);
        }
        writeln!(self.output, "{}", line.trim_end()).map_err(Error::Output)
    }

    fn finish(mut self) -> Result<()> {
        if !self.is_begun {
            self.begin()?;
        }
        self.output.flush().map_err(Error::Output)
    }
}

fn each_row(rows: &RecordBatch, mut write: impl FnMut(&[String]) -> Result<()>) -> Result<()> {
    let options = FormatOptions::new()
        .with_timestamp_format(Some(TIMES))
        .with_timestamp_tz_format(Some(TIMES));
    let mut columns = Vec::new();
    for column in rows.columns() {
        columns.push(ArrayFormatter::try_new(column, &options).map_err(of_arrow)?);
    }
    let mut cells = vec![String::new(); columns.len()];
    for row in 0..rows.num_rows() {
        for (cell, column) in cells.iter_mut().zip(&columns) {
            cell.clear();
            column.value(row).write(cell).map_err(of_arrow)?;
        }
        write(&cells)?;
    }
    Ok(())
}

fn is_number(of: &DataType) -> bool {
    of.is_numeric()
}

/// Escapes control characters, which could change the state of the terminal.
fn harmless(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().map(|letter| match letter {
        letter if letter.is_control() => letter.escape_unicode().to_string(),
        letter => letter.to_string(),
    });
    Cow::Owned(escaped.collect())
}

fn check_names(names: &[&str]) -> Result<()> {
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            let what =
                format!("two columns of the answer are named '{name}'; rename one of them with AS");
            return Err(Error::Statement(what));
        }
    }
    Ok(())
}

fn of_csv(error: csv::Error) -> Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => Error::Output(error),
        other => Error::Output(io::Error::other(format!("{other:?}"))),
    }
}

fn of_arrow(error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, source) => Error::Output(source),
        other => Error::Engine(other.into()),
    }
}
