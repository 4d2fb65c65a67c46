//! Reads the parts of a data set, one row group at a time.
//!
//! Files are untrusted. [`crate::limits`] checks the sizes in a file before the Parquet library
//! allocates memory for them. A panic of the library on a damaged file becomes an error that names
//! the file.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;

use crate::error::{Error, Result};
use crate::format::{Cell, Column, Kind, Leaf, Schema};
use crate::limits;
use crate::manifest::{Manifest, Part};

/// Reads the rows of a part.
pub struct PartReader {
    path: PathBuf,
    columns: Vec<Column>,
    reader: SerializedFileReader<File>,
    file: File,
    rows: u64,
    /// The index of the next row group.
    next: usize,
}

/// The rows of a row group.
pub struct Group {
    rows: usize,
    columns: Vec<Stored>,
}

/// The values of a column.
enum Stored {
    Numbers { values: Vec<i64>, present: Vec<bool>, are_bools: bool },
    Bytes { values: Vec<ByteArray>, present: Vec<bool> },
    Lists { values: Vec<Option<i64>>, ends: Vec<usize>, present: Vec<bool> },
}

impl PartReader {
    /// Opens a part of the data set in `directory`.
    ///
    /// # Errors
    /// Fails if the file is damaged, if its columns or the number of its rows differ from the
    /// schema and the manifest, and on I/O errors.
    pub fn open(directory: &Path, manifest: &Manifest, part: usize, of: &Schema) -> Result<Self> {
        manifest.check_schema(directory, of)?;
        let Some(part) = manifest.parts.get(part) else {
            return Err(Error::unfit(directory, format!("there is no part {part}")));
        };
        Self::open_part(&directory.join(&part.file), part, of)
    }

    fn open_part(path: &Path, part: &Part, schema: &Schema) -> Result<Self> {
        let file = File::open(path).map_err(Error::file(path))?;
        let twin = file.try_clone().map_err(Error::file(path))?;
        limits::check_footer(&twin).map_err(|what| Error::unfit(path, what))?;
        let reader = guard(path, || SerializedFileReader::new(file))?;
        let wanted = schema.to_parquet().map_err(Error::parquet(path))?;
        let wanted = SchemaDescriptor::new(Arc::new(wanted));
        let footer = reader.metadata().file_metadata();
        check_columns(footer.schema_descr(), &wanted).map_err(|what| Error::unfit(path, what))?;
        if u64::try_from(footer.num_rows()).ok() != Some(part.rows) {
            let what =
                format!("it has {} rows, not {} as in the manifest", footer.num_rows(), part.rows);
            return Err(Error::unfit(path, what));
        }
        let (path, columns) = (path.to_owned(), schema.columns.to_vec());
        Ok(Self { path, columns, reader, file: twin, rows: 0, next: 0 })
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the next row group; `None` at the end.
    ///
    /// # Errors
    /// Fails if the file is damaged, and on I/O errors.
    pub fn next_group(&mut self) -> Result<Option<Group>> {
        let told = self.reader.metadata().file_metadata().num_rows().unsigned_abs();
        if self.next >= self.reader.num_row_groups() {
            if self.rows == told {
                return Ok(None);
            }
            let what = format!("its row groups have {} rows, not {told}", self.rows);
            return Err(Error::unfit(&self.path, what));
        }
        let metadata = self.reader.metadata().row_group(self.next);
        let checked =
            guard(&self.path, || Ok(limits::check_group(&self.file, metadata, |_| true)))?;
        checked.map_err(|what| Error::unfit(&self.path, what))?;
        let group = guard(&self.path, || {
            let group = self.reader.get_row_group(self.next)?;
            read_group(&*group, &self.columns)
        })?;
        self.next += 1;
        self.rows += group.rows as u64;
        Ok(Some(group))
    }
}

/// Calls the Parquet library, which may panic on damaged files.
pub(crate) fn guard<T>(path: &Path, read: impl FnOnce() -> ParquetResult<T>) -> Result<T> {
    let read = catch_unwind(AssertUnwindSafe(read));
    let damaged = || Error::unfit(path, "it is too damaged to be read");
    read.map_err(|_panic| damaged())?.map_err(Error::parquet(path))
}

fn check_columns(found: &SchemaDescriptor, wanted: &SchemaDescriptor) -> Result<(), String> {
    for wanted in wanted.columns() {
        let name = wanted.path().string();
        let Some(column) = found.columns().iter().find(|column| column.path() == wanted.path())
        else {
            return Err(format!("it has no column '{name}'"));
        };
        let is_equal = column.physical_type() == wanted.physical_type()
            && column.logical_type_ref() == wanted.logical_type_ref()
            && column.max_def_level() == wanted.max_def_level()
            && column.max_rep_level() == wanted.max_rep_level();
        if !is_equal {
            return Err(format!("its column '{name}' has another type"));
        }
    }
    let (found, wanted) = (found.num_columns(), wanted.num_columns());
    if found == wanted {
        return Ok(());
    }
    Err(format!("it has {found} columns, not {wanted}"))
}

impl Group {
    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns a value; [`Cell::Null`] beyond the last row or column.
    #[must_use]
    pub fn cell(&self, row: usize, column: usize) -> Cell<'_> {
        self.columns.get(column).map_or(Cell::Null, |column| column.cell(row))
    }
}

impl Stored {
    fn cell(&self, row: usize) -> Cell<'_> {
        match self {
            Self::Numbers { values, present, are_bools } if present.get(row) == Some(&true) => {
                if *are_bools {
                    Cell::Bool(values[row] != 0)
                } else {
                    Cell::Number(values[row])
                }
            }
            Self::Bytes { values, present } if present.get(row) == Some(&true) => {
                Cell::Bytes(values[row].data())
            }
            Self::Lists { values, ends, present } if present.get(row) == Some(&true) => {
                let start = row.checked_sub(1).map_or(0, |before| ends[before]);
                Cell::List(&values[start..ends[row]])
            }
            _ => Cell::Null,
        }
    }
}

fn read_group(group: &dyn RowGroupReader, columns: &[Column]) -> ParquetResult<Group> {
    let rows = group.metadata().num_rows() as usize;
    let mut stored = Vec::new();
    for column in columns {
        let mut leaves = Vec::new();
        for leaf in column.leaves() {
            leaves.push(read_leaf(group, leaf, rows)?);
        }
        stored.push(if matches!(column.kind, Kind::List(_)) {
            join(&leaves, rows).ok_or_else(|| damaged(column))?
        } else {
            let leaf = leaves.pop().ok_or_else(|| damaged(column))?;
            spread(leaf, rows).ok_or_else(|| damaged(column))?
        });
    }
    Ok(Group { rows, columns: stored })
}

fn damaged(column: &Column) -> ParquetError {
    ParquetError::General(format!("the column '{}' is damaged", column.name))
}

/// A Parquet column as it was read: the values that are not null, and the definition and repetition
/// levels.
struct Read {
    leaf: Leaf,
    numbers: Vec<i64>,
    bytes: Vec<ByteArray>,
    defined: Vec<i16>,
    repeated: Vec<i16>,
}

fn read_leaf(group: &dyn RowGroupReader, leaf: Leaf, rows: usize) -> ParquetResult<Read> {
    let schema = group.metadata().schema_descr();
    let is_it = |index: &usize| *schema.column(*index).path() == leaf.path;
    let index = (0..schema.num_columns()).find(is_it);
    let missing = || ParquetError::General(format!("there is no column '{}'", leaf.path));
    let mut read = Read {
        numbers: Vec::new(),
        bytes: Vec::new(),
        defined: Vec::new(),
        repeated: Vec::new(),
        leaf: leaf.clone(),
    };
    match group.get_column_reader(index.ok_or_else(missing)?)? {
        ColumnReader::Int64ColumnReader(reader) => read.numbers = read.values(reader, rows)?,
        ColumnReader::Int32ColumnReader(reader) => {
            read.numbers = read.values(reader, rows)?.into_iter().map(i64::from).collect();
        }
        ColumnReader::BoolColumnReader(reader) => {
            read.numbers = read.values(reader, rows)?.into_iter().map(i64::from).collect();
        }
        ColumnReader::ByteArrayColumnReader(reader) => read.bytes = read.values(reader, rows)?,
        _ => return Err(missing()),
    }
    Ok(read)
}

impl Read {
    fn values<T: DataType>(
        &mut self,
        mut reader: ColumnReaderImpl<T>,
        rows: usize,
    ) -> ParquetResult<Vec<T::T>> {
        let mut values = Vec::new();
        let defined = (self.leaf.defined > 0).then_some(&mut self.defined);
        let repeated = self.leaf.repeated.then_some(&mut self.repeated);
        let (read, ..) = reader.read_records(rows, defined, repeated, &mut values)?;
        if read == rows {
            return Ok(values);
        }
        Err(ParquetError::General(format!("{read} values instead of {rows}")))
    }
}

/// Assigns the values of a column to their rows, according to the levels. Returns `None` if the
/// number of values does not match the levels, or if a value is invalid.
fn spread(read: Read, rows: usize) -> Option<Stored> {
    let present = match read.leaf.defined {
        0 => vec![true; rows],
        _ => read.defined.iter().map(|level| *level > 0).collect(),
    };
    match read.leaf.kind {
        Kind::Text | Kind::Bytes => {
            let is_text = read.leaf.kind == Kind::Text;
            let is_fit = |bytes: &ByteArray| {
                // The Parquet library leaves a default value in place of a value that it can't
                // read.
                *bytes != ByteArray::new() && (!is_text || bytes.as_utf8().is_ok())
            };
            if !read.bytes.iter().all(is_fit) {
                return None;
            }
            let values = place(read.bytes, &present, rows)?;
            Some(Stored::Bytes { values, present })
        }
        kind => {
            let values = place(read.numbers, &present, rows)?;
            Some(Stored::Numbers { values, present, are_bools: kind == Kind::Bool })
        }
    }
}

fn place<T: Clone + Default>(values: Vec<T>, present: &[bool], rows: usize) -> Option<Vec<T>> {
    if present.len() != rows || present.iter().filter(|is| **is).count() != values.len() {
        return None;
    }
    if values.len() == rows {
        return Some(values);
    }
    let mut values = values.into_iter();
    present.iter().map(|is| if *is { values.next() } else { Some(T::default()) }).collect()
}

/// Makes lists of structs from the columns of the structs' fields. Returns `None` if the columns do
/// not belong to the same lists.
fn join(fields: &[Read], rows: usize) -> Option<Stored> {
    let first = fields.first()?;
    let levels = first.repeated.len();
    let mut numbers: Vec<_> = fields.iter().map(|field| field.numbers.iter()).collect();
    let (mut values, mut ends, mut present) = (Vec::new(), Vec::new(), Vec::new());
    if fields.iter().any(|one| one.repeated != first.repeated || one.defined.len() != levels) {
        return None;
    }
    for at in 0..levels {
        let level = first.defined[at].min(2);
        if first.repeated[at] == 0 {
            present.push(level > 0);
            ends.push(values.len());
        } else if level < 2 || ends.is_empty() {
            return None;
        }
        for (field, numbers) in fields.iter().zip(&mut numbers) {
            let defined = field.defined[at];
            match (defined.min(2) == level, level) {
                (true, 2) if defined == field.leaf.defined => values.push(Some(*numbers.next()?)),
                (true, 2) => values.push(None),
                (true, _) => {}
                (false, _) => return None,
            }
        }
        *ends.last_mut()? = values.len();
    }
    (ends.len() == rows).then_some(Stored::Lists { values, ends, present })
}
