//! Reads a Parquet file of rows, one row group at a time.
//!
//! Files are untrusted. Sizes in the file are checked against limits before memory is allocated. If
//! the Parquet library panics on a damaged file, this is reported as an error of that file.

use std::fs::File;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, sync_channel};

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::KeyValue;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use super::{Batch, Column, Row, Text, Texts};
use crate::error::{Error, Result, one_line};

/// Maximum number of rows in a row group; groups written by fslab are smaller.
const GROUP_ROWS_MAX: i64 = 1 << 20;

/// Maximum decoded size of a row group in bytes.
const GROUP_BYTES_MAX: i64 = 1 << 30;

/// Number of row groups that are decoded in advance.
const GROUPS_AHEAD: usize = 2;

/// Reads the rows of a file.
pub struct Reader<R: Row> {
    path: PathBuf,
    facts: Vec<KeyValue>,
    total: u64,
    groups: Groups<R>,
    rows: std::vec::IntoIter<R>,
}

/// The rows, as an iterator over row groups.
type Groups<R> = Box<dyn Iterator<Item = Result<Vec<R>>> + Send>;

impl<R: Row> Reader<R> {
    /// Opens a file. A separate thread decodes row groups ahead of the reader.
    ///
    /// # Errors
    /// Fails if the file does not have this format, and on I/O errors.
    pub fn open(path: &Path) -> Result<Self> {
        Self::with_groups(path, |decoder| Ok(Box::new(decode_ahead(decoder)?.into_iter())))
    }

    /// Opens a file without a thread and with only one row group in memory, to read many files at
    /// once.
    pub(super) fn open_one_by_one(path: &Path) -> Result<Self> {
        Self::with_groups(path, |decoder| Ok(Box::new(decoder)))
    }

    fn with_groups(
        path: &Path,
        groups: impl FnOnce(Decoder<R>) -> Result<Groups<R>>,
    ) -> Result<Self> {
        let file = File::open(path).map_err(Error::file(path))?;
        let opened = catch_unwind(AssertUnwindSafe(|| SerializedFileReader::new(file)));
        let damaged = || not_ours::<R>(path, "it is too damaged to be read");
        let reader = opened.map_err(|_panic| damaged())?.map_err(Error::parquet(path))?;
        let told = reader.metadata().file_metadata();
        let facts = told.key_value_metadata().cloned().unwrap_or_default();
        let total = u64::try_from(told.num_rows()).unwrap_or_default();
        let rows = Vec::new().into_iter();
        let (path, row) = (path.to_owned(), PhantomData);
        let version = version_of::<R>(&path, fact_of::<R>(&facts, "version"))?;
        let (group, first_row) = (0, 0);
        let decoder = Decoder { path: path.clone(), version, reader, group, first_row, row };
        Ok(Self { path, facts, total, groups: groups(decoder)?, rows })
    }

    /// Returns a value from the footer; `key` is given without the format's prefix.
    #[must_use]
    pub fn fact(&self, key: &str) -> Option<&str> {
        fact_of::<R>(&self.facts, key)
    }

    /// Returns a required value from the footer as text.
    ///
    /// # Errors
    /// Returns [`Error::Unfit`] if it is missing.
    pub fn text(&self, key: &'static str) -> Result<&str> {
        self.fact(key).ok_or_else(|| self.wrong_fact(key))
    }

    /// Returns a required value from the footer as a number.
    ///
    /// # Errors
    /// Returns [`Error::Unfit`] if it is missing or not a number.
    pub fn number<N: FromStr>(&self, key: &'static str) -> Result<N> {
        // The parser's error is not needed, because the message contains the text, which shows why
        // it is not a number.
        self.text(key)?.parse().map_err(|_unfit| self.wrong_fact(key))
    }

    /// Makes the error for a missing or invalid value in the footer.
    pub(crate) fn wrong_fact(&self, key: &'static str) -> Error {
        let found = match self.fact(key) {
            None => "is missing".to_owned(),
            Some(text) => format!("is '{}'", one_line(text)),
        };
        let format = R::LAYOUT.name;
        let what = format!(
            "this {format} of fslab age is damaged, because its footer key `{key}` {found}; create \
             the file again"
        );
        Error::unfit(&self.path, what)
    }

    /// Returns the number of rows in the file, according to its footer.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }
}

impl<R: Row> Iterator for Reader<R> {
    type Item = Result<R>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.rows.next() {
                return Some(Ok(row));
            }
            match self.groups.next()? {
                Ok(rows) => self.rows = rows.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

fn fact_of<'a, R: Row>(facts: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let key = format!("fslab.{}.{key}", R::LAYOUT.name);
    facts.iter().find(|pair| pair.key == key)?.value.as_deref()
}

fn version_of<R: Row>(path: &Path, told: Option<&str>) -> Result<u32> {
    let known = R::LAYOUT.version;
    match told.and_then(|text| text.parse().ok()) {
        None => Err(not_ours::<R>(path, "its footer does not contain a format version")),
        Some(0) => Err(not_ours::<R>(path, "its footer contains the invalid version 0")),
        Some(found) if found > known => Err(Error::newer_format(path, found, known)),
        Some(found) => Ok(found),
    }
}

fn not_ours<R: Row>(path: &Path, what: &'static str) -> Error {
    Error::Format { path: path.to_owned(), format: R::LAYOUT.name, what }
}

/// Decodes row groups in order; stops after the first that can't be read.
struct Decoder<R: Row> {
    path: PathBuf,
    /// The format version of the file.
    version: u32,
    reader: SerializedFileReader<File>,
    /// The index of the next row group.
    group: usize,
    /// Number of rows before the next row group.
    first_row: u64,
    row: PhantomData<R>,
}

impl<R: Row> Iterator for Decoder<R> {
    type Item = Result<Vec<R>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.group >= self.reader.num_row_groups() {
            return None;
        }
        let read = catch_unwind(AssertUnwindSafe(|| read_group::<R>(self)));
        let damaged = "it is too damaged to be read";
        let rows = read.unwrap_or_else(|_panic| Err(not_ours::<R>(&self.path, damaged)));
        self.first_row += rows.as_ref().map_or(0, Vec::len) as u64;
        self.group = if rows.is_ok() { self.group + 1 } else { usize::MAX };
        Some(rows)
    }
}

/// Decodes row groups in a thread that ends when the receiver is dropped.
fn decode_ahead<R: Row>(mut decoder: Decoder<R>) -> Result<Receiver<Result<Vec<R>>>> {
    let (sender, receiver) = sync_channel(GROUPS_AHEAD);
    let path = decoder.path.clone();
    let work = move || while decoder.next().is_some_and(|rows| sender.send(rows).is_ok()) {};
    let thread = std::thread::Builder::new().name("fslab-age-decode".to_owned());
    thread.spawn(work).map_err(Error::file(&path))?;
    Ok(receiver)
}

fn read_group<R: Row>(decoder: &Decoder<R>) -> Result<Vec<R>> {
    let Decoder { path, version, reader, group, first_row, .. } = decoder;
    let group = reader.get_row_group(*group).map_err(Error::parquet(path))?;
    let told = group.metadata();
    let (rows, bytes) = (told.num_rows(), told.total_byte_size());
    if !(0..=GROUP_ROWS_MAX).contains(&rows) || !(0..=GROUP_BYTES_MAX).contains(&bytes) {
        return Err(not_ours::<R>(path, "a row group exceeds the maximum number of rows or bytes"));
    }
    let batch =
        read_columns::<R>(&*group, rows as usize, *version).map_err(Error::parquet(path))?;
    let batch =
        batch.ok_or_else(|| not_ours::<R>(path, "a column is missing or has the wrong type"))?;
    rows_of(&batch, path, *first_row)
}

fn rows_of<R: Row>(batch: &Batch, path: &Path, first_row: u64) -> Result<Vec<R>> {
    let mut rows = Vec::with_capacity(batch.rows);
    let mut numbers = [0; super::NUMBERS_MAX];
    for row in 0..batch.rows {
        // A column that was introduced after the file's version is empty.
        for (number, column) in numbers.iter_mut().zip(&batch.numbers) {
            *number = column.get(row).copied().unwrap_or_default();
        }
        let mut texts = Texts::default();
        for (text, column) in texts.iter_mut().zip(&batch.texts) {
            // An empty cell is not stored, because it would keep the memory of its page allocated.
            if let Some(bytes) = column.get(row).filter(|bytes| !bytes.is_empty()) {
                *text = Text(Some(bytes.clone()));
            }
        }
        let wrong = |what| Error::Row { path: path.to_owned(), row: first_row + row as u64, what };
        rows.push(R::from_cells(&numbers, texts).map_err(wrong)?);
    }
    Ok(rows)
}

/// Reads the columns of a row group; `None` if one is missing or has another type. A column that
/// was introduced after the file's version is left empty.
fn read_columns<R: Row>(
    group: &dyn RowGroupReader,
    rows: usize,
    version: u32,
) -> ParquetResult<Option<Batch>> {
    let mut batch = Batch { rows, ..Batch::new(R::LAYOUT) };
    let had = |column: &Column| column.since <= version;
    for (column, values) in R::LAYOUT.numbers.iter().zip(&mut batch.numbers) {
        if had(column) {
            let Some(reader) = find(group, column)? else { return Ok(None) };
            *values = match reader {
                ColumnReader::Int64ColumnReader(reader) => read_values(reader, rows)?,
                ColumnReader::Int32ColumnReader(reader) => {
                    let narrow: Vec<i32> = read_values(reader, rows)?;
                    narrow.into_iter().map(|number| number.cast_unsigned().into()).collect()
                }
                _ => return Ok(None),
            };
        }
    }
    for (column, values) in R::LAYOUT.texts.iter().zip(&mut batch.texts) {
        if had(column) {
            let Some(ColumnReader::ByteArrayColumnReader(reader)) = find(group, column)? else {
                return Ok(None);
            };
            *values = read_values::<ByteArrayType>(reader, rows)?;
            // If the Parquet library fails to read a value, it leaves the default value.
            if values.contains(&ByteArray::new()) {
                return Ok(None);
            }
        }
    }
    Ok(Some(batch))
}

/// Returns the reader of a column without nulls.
fn find(group: &dyn RowGroupReader, wanted: &Column) -> ParquetResult<Option<ColumnReader>> {
    let schema = group.metadata().schema_descr();
    let index = (0..schema.num_columns()).find(|index| {
        let column = schema.column(*index);
        column.path().parts() == [wanted.name]
            && column.physical_type() == wanted.kind.physical()
            && column.max_def_level() == 0
    });
    index.map(|index| group.get_column_reader(index)).transpose()
}

fn read_values<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
) -> ParquetResult<Vec<T::T>> {
    let mut values = Vec::with_capacity(rows);
    let (read, ..) = reader.read_records(rows, None, None, &mut values)?;
    if read == rows && values.len() == rows {
        return Ok(values);
    }
    Err(ParquetError::General(format!("{read} values instead of {rows}")))
}
