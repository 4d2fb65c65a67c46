//! Rows that have not been written yet, stored by column.

use bytes::Bytes;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::writer::SerializedRowGroupWriter;

use crate::format::{CELL_MAX, Cell, Column, Field, Kind, Leaf};

/// The rows of a row group that is not yet written.
#[derive(Default)]
pub(crate) struct Buffer {
    rows: usize,
    leaves: Vec<Values>,
    /// Memory that the rows use, in bytes.
    bytes: usize,
    /// The part of this memory that texts and lists use, in bytes.
    long_bytes: usize,
}

/// The values of one Parquet column.
struct Values {
    leaf: Leaf,
    numbers: Vec<i64>,
    text: Vec<u8>,
    /// For each text, the offset of its end in `text`.
    ends: Vec<u32>,
    defined: Vec<i16>,
    repeated: Vec<i16>,
}

impl Buffer {
    pub fn new(columns: &[Column]) -> Self {
        let leaves = columns.iter().flat_map(Column::leaves).map(Values::new).collect();
        Self { leaves, ..Self::default() }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn long_bytes(&self) -> usize {
        self.long_bytes
    }

    /// Adds a row.
    ///
    /// # Errors
    /// Returns a description of the problem if the number of cells is wrong or a cell does not fit
    /// its column. After an error, the buffer must not be used.
    pub fn push(&mut self, columns: &[Column], cells: &[Cell<'_>]) -> Result<(), String> {
        if cells.len() != columns.len() {
            return Err(format!("a row has {} cells, not {}", columns.len(), cells.len()));
        }
        let mut leaves = self.leaves.iter_mut();
        for (column, cell) in columns.iter().zip(cells) {
            let wrong = |what: &str| format!("column '{}': {what}", column.name);
            let long = if let Kind::List(fields) = column.kind {
                push_list(fields, &mut leaves, *cell).map_err(wrong)?
            } else {
                let values = leaves.next().ok_or_else(|| wrong("it has no values"))?;
                values.push(*cell).map_err(wrong)?
            };
            self.bytes += long + size_of::<i64>() + size_of::<i16>();
            self.long_bytes += long;
        }
        self.rows += 1;
        Ok(())
    }

    /// Writes all rows as one row group.
    pub fn write<W: std::io::Write + Send>(
        self,
        mut group: SerializedRowGroupWriter<'_, W>,
    ) -> ParquetResult<()> {
        for values in self.leaves {
            let missing = || ParquetError::General("the file has too few columns".to_owned());
            let mut column = group.next_column()?.ok_or_else(missing)?;
            values.write(column.untyped())?;
            column.close()?;
        }
        group.close().map(|_metadata| ())
    }
}

/// Adds a list to the columns of its fields, and returns its size in bytes.
fn push_list<'a>(
    fields: &[Field],
    leaves: &mut impl Iterator<Item = &'a mut Values>,
    cell: Cell<'_>,
) -> Result<usize, &'static str> {
    let values = match cell {
        Cell::Null => None,
        Cell::List(values) => Some(values),
        _ => return Err("its values are lists"),
    };
    let length = values.map_or(0, <[_]>::len);
    if length > CELL_MAX || !length.is_multiple_of(fields.len()) {
        return Err("a list has too many values, or its last element is incomplete");
    }
    for (number, leaf) in leaves.take(fields.len()).enumerate() {
        let elements = values.unwrap_or_default().iter().skip(number).step_by(fields.len());
        if length == 0 {
            leaf.defined.push(i16::from(values.is_some()));
            leaf.repeated.push(0);
        }
        for (index, value) in elements.enumerate() {
            let level = leaf.leaf.defined - i16::from(value.is_none());
            if level < 2 {
                return Err("a member of a list is null");
            }
            leaf.defined.push(level);
            leaf.repeated.push(i16::from(index > 0));
            leaf.numbers.extend(value);
        }
    }
    Ok(length * (size_of::<i64>() + 2 * size_of::<i16>()))
}

impl Values {
    fn new(leaf: Leaf) -> Self {
        let (numbers, text, ends) = (Vec::new(), Vec::new(), Vec::new());
        Self { leaf, numbers, text, ends, defined: Vec::new(), repeated: Vec::new() }
    }

    /// Adds a cell, and returns the size of its text in bytes.
    fn push(&mut self, cell: Cell<'_>) -> Result<usize, &'static str> {
        if self.leaf.defined > 0 {
            self.defined.push(i16::from(cell != Cell::Null));
        }
        match (self.leaf.kind, cell) {
            (_, Cell::Null) if self.leaf.defined > 0 => return Ok(0),
            (Kind::I32, Cell::Number(number)) if i32::try_from(number).is_err() => {
                return Err("a number exceeds 32 bits");
            }
            (Kind::I32 | Kind::I64 | Kind::U64 | Kind::Time, Cell::Number(number)) => {
                self.numbers.push(number);
            }
            (Kind::Bool, Cell::Bool(value)) => self.numbers.push(value.into()),
            (Kind::Text, Cell::Bytes(bytes)) if std::str::from_utf8(bytes).is_err() => {
                return Err("a text is not valid UTF-8");
            }
            (Kind::Text | Kind::Bytes, Cell::Bytes(bytes)) => {
                let end = u32::try_from(self.text.len() + bytes.len());
                let Some(end) = end.ok().filter(|_| bytes.len() <= CELL_MAX) else {
                    return Err("a text has more than 16 MiB");
                };
                self.text.extend_from_slice(bytes);
                self.ends.push(end);
                return Ok(bytes.len());
            }
            (_, Cell::Null) => return Err("it has no nulls"),
            _ => return Err("a value has another type"),
        }
        Ok(0)
    }

    fn write(self, out: &mut ColumnWriter<'_>) -> ParquetResult<()> {
        let defined = (self.leaf.defined > 0).then_some(&*self.defined);
        let repeated = self.leaf.repeated.then_some(&*self.repeated);
        let written = match out {
            ColumnWriter::Int64ColumnWriter(out) => {
                out.write_batch(&self.numbers, defined, repeated)
            }
            ColumnWriter::Int32ColumnWriter(out) => {
                // `push` checked that the numbers fit.
                let narrow: Vec<_> = self.numbers.iter().map(|number| *number as i32).collect();
                out.write_batch(&narrow, defined, repeated)
            }
            ColumnWriter::BoolColumnWriter(out) => {
                let values: Vec<_> = self.numbers.iter().map(|number| *number != 0).collect();
                out.write_batch(&values, defined, repeated)
            }
            ColumnWriter::ByteArrayColumnWriter(out) => {
                let (text, mut start) = (Bytes::from(self.text), 0);
                let slice = |end: &u32| {
                    let range = start..*end as usize;
                    start = range.end;
                    ByteArray::from(text.slice(range))
                };
                let values: Vec<_> = self.ends.iter().map(slice).collect();
                out.write_batch(&values, defined, repeated)
            }
            _ => Err(ParquetError::General("a column has an unexpected type".to_owned())),
        };
        written.map(|_values| ())
    }
}
