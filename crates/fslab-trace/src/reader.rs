//! Reads a trace: a directory of segments, or one segment.
//!
//! Segments may come from untrusted sources. The sizes in them are checked before memory is
//! allocated. A panic of the Parquet library on a damaged file becomes an error that names the
//! file.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fslab_vfs::Operation;
use parquet::basic::Type as Physical;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use crate::error::{Error, Result};
use crate::format::{COLUMNS, Cell, Kind, Metadata, VERSION, segment_number};
use crate::record::Record;

/// Maximum rows of a row group: fslab never writes more.
const GROUP_ROWS_MAX: i64 = 1 << 20;

/// Maximum decoded bytes of a row group: fslab never writes more.
const GROUP_BYTES_MAX: i64 = 1 << 30;

/// The records of a trace, in order.
pub struct Reader {
    segments: std::vec::IntoIter<PathBuf>,
    rows: std::vec::IntoIter<Record>,
    last: Option<SegmentInfo>,
    next_sequence: u64,
    missing: u64,
}

/// A segment's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Path of the segment.
    pub path: PathBuf,
    /// Metadata in the footer.
    pub metadata: Metadata,
    /// Number of rows.
    pub rows: u64,
}

impl Reader {
    /// Opens a trace, or one segment of it.
    ///
    /// # Errors
    /// Returns [`Error::Unfit`] for a directory without a segment. Also fails on I/O errors.
    pub fn open(path: &Path) -> Result<Self> {
        let status = path.metadata().map_err(Error::file(path))?;
        let segments = if status.is_dir() { segments_in(path)? } else { vec![path.to_owned()] };
        let (segments, rows) = (segments.into_iter(), Vec::new().into_iter());
        Ok(Self { segments, rows, last: None, next_sequence: 1, missing: 0 })
    }

    /// Returns the metadata of the segment that was read last. After the last record it describes
    /// the whole trace.
    #[must_use]
    pub fn last_segment(&self) -> Option<&SegmentInfo> {
        self.last.as_ref()
    }

    /// Returns the number of records missing so far. They were lost when the trace was written, or
    /// their segments are missing.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing
    }
}

impl Iterator for Reader {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.rows.next() {
                let skipped = record.sequence.saturating_sub(self.next_sequence);
                self.missing = self.missing.saturating_add(skipped);
                self.next_sequence = record.sequence.saturating_add(1);
                return Some(Ok(record));
            }
            let path = self.segments.next()?;
            match read_segment(&path) {
                Ok((info, records)) => (self.last, self.rows) = (Some(info), records.into_iter()),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The number of records of a trace, and the metadata of its last segment.
pub(crate) struct Extent {
    pub rows: u64,
    pub last: Metadata,
}

/// Reads the footers of all segments of a trace.
pub(crate) fn rows_of(path: &Path) -> Result<Extent> {
    let mut extent: Option<Extent> = None;
    for segment in Reader::open(path)?.segments {
        let read = catch_unwind(AssertUnwindSafe(|| {
            let file = File::open(&segment).map_err(Error::file(&segment))?;
            let reader = SerializedFileReader::new(file).map_err(Error::parquet(&segment))?;
            let rows = reader.metadata().file_metadata().num_rows();
            Ok((rows.unsigned_abs(), metadata_of(&reader, &segment)?))
        }));
        let damaged = "is damaged and can't be read";
        let (rows, last) = read.unwrap_or_else(|_panic| Err(Error::unfit(&segment, damaged)))?;
        let before = extent.map_or(0, |extent| extent.rows);
        extent = Some(Extent { rows: before.saturating_add(rows), last });
    }
    extent.ok_or_else(|| Error::unfit(path, "is not a trace: it contains no segment"))
}

fn segments_in(path: &Path) -> Result<Vec<PathBuf>> {
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(path).map_err(Error::file(path))? {
        let name = entry.map_err(Error::file(path))?.file_name();
        if let Some(number) = name.to_str().and_then(segment_number) {
            segments.push((number, path.join(&name)));
        }
    }
    if segments.is_empty() {
        let what = "is not a trace: it contains no segment such as 000001.parquet";
        return Err(Error::unfit(path, what));
    }
    segments.sort();
    Ok(segments.into_iter().map(|(_, path)| path).collect())
}

/// Reads a whole segment. A panic of the Parquet library becomes an error.
fn read_segment(path: &Path) -> Result<(SegmentInfo, Vec<Record>)> {
    let read = catch_unwind(AssertUnwindSafe(|| read_segment_of_any_kind(path)));
    read.unwrap_or_else(|_panic| Err(Error::unfit(path, "is damaged and can't be read")))
}

fn read_segment_of_any_kind(path: &Path) -> Result<(SegmentInfo, Vec<Record>)> {
    let file = File::open(path).map_err(Error::file(path))?;
    let reader = SerializedFileReader::new(file).map_err(Error::parquet(path))?;
    let metadata = metadata_of(&reader, path)?;
    let mut records = Vec::new();
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(Error::parquet(path))?;
        read_group(&*group, path, &mut records)?;
    }
    let rows = records.len() as u64;
    Ok((SegmentInfo { path: path.to_owned(), metadata, rows }, records))
}

fn metadata_of(reader: &dyn FileReader, path: &Path) -> Result<Metadata> {
    let pairs = reader.metadata().file_metadata().key_value_metadata();
    let value = |key: &str| {
        let pair = pairs?.iter().find(|pair| pair.key == key)?;
        pair.value.as_deref()
    };
    match Metadata::version_of(value) {
        None => Err(Error::unfit(path, "is a Parquet file, but not part of a trace")),
        Some(found) if found > VERSION => {
            let what = format!(
                "can't be read: its format is {found}, but this fslab supports only formats up to \
                 {VERSION}"
            );
            Err(Error::unfit(path, what))
        }
        Some(_) => Metadata::from_pairs(value)
            .ok_or_else(|| Error::unfit(path, "has invalid metadata in its footer")),
    }
}

fn read_group(group: &dyn RowGroupReader, path: &Path, records: &mut Vec<Record>) -> Result<()> {
    let told = group.metadata();
    let rows = told.num_rows();
    if !(0..=GROUP_ROWS_MAX).contains(&rows)
        || !(0..=GROUP_BYTES_MAX).contains(&told.total_byte_size())
    {
        return Err(Error::unfit(path, "claims more rows or bytes than a segment may have"));
    }
    let start = records.len();
    // `Lookup` is a placeholder that the column `operation` replaces in every record.
    records.resize_with(start + rows as usize, || Record::new(Operation::Lookup));
    let schema = told.schema_descr();
    for column in COLUMNS {
        let name = column.name;
        let unfit = || Error::unfit(path, format!("has no column '{name}' of the expected type"));
        let is_it = |index: &usize| schema.column(*index).path().parts() == [name];
        let Some(index) = (0..schema.num_columns()).find(is_it) else {
            if column.required {
                return Err(unfit());
            }
            continue;
        };
        if schema.column(index).physical_type() != physical(column.kind) {
            return Err(unfit());
        }
        let cells = cells_of(group, index, rows as usize).map_err(Error::parquet(path))?;
        for (row, (record, cell)) in records[start..].iter_mut().zip(cells).enumerate() {
            let wrong = || Error::unfit(path, format!("has an invalid {name} in row {row}"));
            (column.set)(record, cell).ok_or_else(wrong)?;
        }
    }
    Ok(())
}

fn physical(kind: Kind) -> Physical {
    match kind {
        Kind::U32 => Physical::INT32,
        Kind::U64 | Kind::I64 | Kind::Time => Physical::INT64,
        Kind::Text | Kind::Bytes => Physical::BYTE_ARRAY,
    }
}

fn cells_of(
    group: &dyn RowGroupReader,
    index: usize,
    rows: usize,
) -> parquet::errors::Result<Vec<Cell>> {
    match group.get_column_reader(index)? {
        ColumnReader::Int32ColumnReader(reader) => {
            cells(reader, rows, |bits: i32| Cell::Number(bits.cast_unsigned().into()))
        }
        ColumnReader::Int64ColumnReader(reader) => cells(reader, rows, Cell::Number),
        ColumnReader::ByteArrayColumnReader(reader) => {
            cells(reader, rows, |bytes: ByteArray| Cell::Bytes(bytes.data().to_vec()))
        }
        _ => Err(ParquetError::General("a column has a type that traces don't use".to_owned())),
    }
}

fn cells<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    to_cell: impl Fn(T::T) -> Cell,
) -> parquet::errors::Result<Vec<Cell>> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let (read, ..) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    if read != rows {
        let message = format!("{read} values instead of {rows}");
        return Err(ParquetError::General(message));
    }
    let mut values = values.into_iter().map(to_cell);
    if levels.is_empty() {
        return Ok(values.collect());
    }
    let cell = |level: i16| if level > 0 { values.next() } else { Some(Cell::Null) };
    let cells: Vec<_> = levels.into_iter().map_while(cell).collect();
    if cells.len() == rows {
        Ok(cells)
    } else {
        Err(ParquetError::General("a column has fewer values than its levels declare".to_owned()))
    }
}
