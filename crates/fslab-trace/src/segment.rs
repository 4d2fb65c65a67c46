//! Collects records in columns, and writes them as one Parquet file with a single row group.

use std::io::Write;
use std::sync::{Arc, LazyLock};

use parquet::basic::{
    Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel,
};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use crate::format::{COLUMNS, Cell, Column, Kind, Metadata, SCHEMA_NAME};
use crate::record::Record;

/// Maximum rows of a segment.
pub const ROWS_MAX: usize = 1 << 15;

/// Total size in bytes of names and data at which a segment is full.
const BYTES_MAX: usize = 32 << 20;

/// Columns whose values are rarely equal. Delta encoding needs fewer bytes for them than a
/// dictionary.
const RISING: &[&str] = &["sequence", "start_ns", "duration_ns", "time_ns", "checksum"];

/// The records of one segment, column by column.
pub(crate) struct Segment {
    buffers: Vec<Buffer>,
    rows: usize,
    held_bytes: usize,
}

struct Buffer {
    values: Values,
    /// 1 for a row with a value, 0 for a row without one.
    levels: Vec<i16>,
}

enum Values {
    Narrow(Vec<i32>),
    Wide(Vec<i64>),
    Bytes(Vec<ByteArray>),
}

impl Segment {
    pub fn new() -> Self {
        let empty = |column: &Column| Buffer { values: Values::of(column.kind), levels: vec![] };
        Self { buffers: COLUMNS.iter().map(empty).collect(), rows: 0, held_bytes: 0 }
    }

    pub fn push(&mut self, record: &Record) {
        self.held_bytes += record.held_bytes();
        self.rows += 1;
        for (column, buffer) in COLUMNS.iter().zip(&mut self.buffers) {
            buffer.push((column.get)(record));
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn is_full(&self) -> bool {
        self.rows >= ROWS_MAX || self.held_bytes >= BYTES_MAX
    }

    /// Empties the segment and keeps its memory for the next one.
    pub fn clear(&mut self) {
        (self.rows, self.held_bytes) = (0, 0);
        for buffer in &mut self.buffers {
            buffer.clear();
        }
    }

    /// Writes a whole file and returns its length in bytes.
    pub fn write(&self, out: impl Write + Send, metadata: Metadata) -> Result<u64> {
        let mut file = SerializedFileWriter::new(out, schema(), Arc::new(properties(metadata)?))?;
        if self.rows > 0 {
            let mut group = file.next_row_group()?;
            for (column, buffer) in COLUMNS.iter().zip(&self.buffers) {
                let missing = || ParquetError::General(format!("no column {}", column.name));
                let mut chunk = group.next_column()?.ok_or_else(missing)?;
                buffer.write(column, chunk.untyped())?;
                chunk.close()?;
            }
            group.close()?;
        }
        file.finish()?;
        Ok(file.bytes_written() as u64)
    }
}

impl Values {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::U32 => Self::Narrow(Vec::new()),
            Kind::U64 | Kind::I64 | Kind::Time => Self::Wide(Vec::new()),
            Kind::Text | Kind::Bytes => Self::Bytes(Vec::new()),
        }
    }
}

impl Buffer {
    fn push(&mut self, cell: Cell) {
        self.levels.push(i16::from(cell != Cell::Null));
        match (&mut self.values, cell) {
            // Parquet stores an unsigned 32-bit number as the signed number with the same bits.
            (Values::Narrow(values), Cell::Number(bits)) => values.push(bits as i32),
            (Values::Wide(values), Cell::Number(bits)) => values.push(bits),
            (Values::Bytes(values), Cell::Bytes(bytes)) => values.push(bytes.into()),
            // Nothing is stored for a null value. Cells of another type do not occur: the macro in
            // format.rs creates only cells of the column's type.
            _ => {}
        }
    }

    fn clear(&mut self) {
        self.levels.clear();
        match &mut self.values {
            Values::Narrow(values) => values.clear(),
            Values::Wide(values) => values.clear(),
            Values::Bytes(values) => values.clear(),
        }
    }

    fn write(&self, column: &Column, out: &mut ColumnWriter<'_>) -> Result<()> {
        let levels = (!column.required).then_some(self.levels.as_slice());
        let written = match (&self.values, out) {
            (Values::Narrow(values), ColumnWriter::Int32ColumnWriter(out)) => {
                out.write_batch(values, levels, None)
            }
            (Values::Wide(values), ColumnWriter::Int64ColumnWriter(out)) => {
                out.write_batch(values, levels, None)
            }
            (Values::Bytes(values), ColumnWriter::ByteArrayColumnWriter(out)) => {
                out.write_batch(values, levels, None)
            }
            _ => Err(ParquetError::General(format!("column {} has another type", column.name))),
        };
        written.map(|_values| ())
    }
}

pub(crate) fn schema() -> TypePtr {
    static SCHEMA: LazyLock<TypePtr> = LazyLock::new(|| Arc::new(make_schema()));
    Arc::clone(&SCHEMA)
}

#[allow(clippy::expect_used, reason = "the list of columns is constant, and a test builds it")]
fn make_schema() -> Type {
    let fields = COLUMNS.iter().map(|column| Arc::new(field(column).expect("a valid column")));
    let schema = Type::group_type_builder(SCHEMA_NAME).with_fields(fields.collect());
    schema.build().expect("a valid schema")
}

fn field(column: &Column) -> Result<Type> {
    let (physical, logical) = match column.kind {
        Kind::U32 => (Physical::INT32, Some(LogicalType::integer(32, false))),
        Kind::U64 => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::I64 => (Physical::INT64, None),
        Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS))),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Bytes => (Physical::BYTE_ARRAY, None),
    };
    let repetition = if column.required { Repetition::REQUIRED } else { Repetition::OPTIONAL };
    Type::primitive_type_builder(column.name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
}

fn properties(metadata: Metadata) -> Result<WriterProperties> {
    let pairs = metadata.to_pairs().map(|(key, value)| KeyValue::new(key.to_owned(), value));
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_column_dictionary_enabled(ColumnPath::from("data"), false)
        .set_column_statistics_enabled(ColumnPath::from("data"), EnabledStatistics::None)
        .set_key_value_metadata(Some(pairs.to_vec()));
    for name in RISING {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(*name), false)
            .set_column_encoding(ColumnPath::from(*name), Encoding::DELTA_BINARY_PACKED);
    }
    Ok(properties.build())
}
