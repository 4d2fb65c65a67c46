//! Writes a Parquet file of rows.

use std::fs::{File, Permissions};
use std::marker::PhantomData;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use tempfile::TempPath;

use super::{Batch, GROUP_ROWS, GROUP_TEXT_BYTES, Kind, Layout, Row, directory_of};
use crate::error::{Error, Result};

/// Writes rows to a file that appears only when it is complete.
pub struct Writer<R: Row> {
    path: PathBuf,
    unfinished: TempPath,
    file: SerializedFileWriter<File>,
    batch: Batch,
    group_rows: usize,
    rows: u64,
    row: PhantomData<R>,
}

impl<R: Row> Writer<R> {
    /// Starts a file under a temporary name in the same directory.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub fn create(path: &Path) -> Result<Self> {
        Self::with_groups_of(GROUP_ROWS, path)
    }

    pub(super) fn with_groups_of(group_rows: usize, path: &Path) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        let beside = builder
            .permissions(Permissions::from_mode(R::LAYOUT.mode))
            .tempfile_in(directory_of(path));
        let (file, unfinished) = beside.map_err(Error::file(path))?.into_parts();
        let begun = schema(R::LAYOUT).and_then(|schema| {
            SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties(R::LAYOUT)?))
        });
        let file = begun.map_err(Error::parquet(path))?;
        let (batch, row) = (Batch::new(R::LAYOUT), PhantomData);
        Ok(Self { path: path.to_owned(), unfinished, file, batch, group_rows, rows: 0, row })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub fn push(&mut self, row: &R) -> Result<()> {
        self.batch.push(row);
        self.rows += 1;
        let is_whole =
            self.batch.rows >= self.group_rows || self.batch.text_bytes >= GROUP_TEXT_BYTES;
        if is_whole { self.write_group() } else { Ok(()) }
    }

    /// Returns the number of rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Writes the remaining rows and the values of the footer, then renames the file to its final
    /// name. Keys are given without the format's prefix.
    ///
    /// # Errors
    /// Fails on I/O errors; the file then does not exist.
    pub fn finish(mut self, facts: &[(&str, String)]) -> Result<()> {
        self.write_group()?;
        let version = ("version", R::LAYOUT.version.to_string());
        for (key, value) in std::iter::once(&version).chain(facts) {
            let key = format!("fslab.{}.{key}", R::LAYOUT.name);
            self.file.append_key_value_metadata(KeyValue::new(key, value.clone()));
        }
        let file = self.file.into_inner().map_err(Error::parquet(&self.path))?;
        file.sync_all().map_err(Error::file(&self.path))?;
        let persisted = self.unfinished.persist(&self.path);
        persisted.map_err(|error| error.error).map_err(Error::file(&self.path))
    }

    fn write_group(&mut self) -> Result<()> {
        if self.batch.rows == 0 {
            return Ok(());
        }
        let written = write_group(&mut self.file, &self.batch);
        self.batch.clear();
        written.map_err(Error::parquet(&self.path))
    }
}

fn write_group(file: &mut SerializedFileWriter<File>, batch: &Batch) -> ParquetResult<()> {
    let mut group = file.next_row_group()?;
    let (mut numbers, mut texts) = (batch.numbers.iter(), batch.texts.iter());
    while let Some(mut column) = group.next_column()? {
        let missing = || ParquetError::General("the writer has an unexpected column".to_owned());
        match column.untyped() {
            ColumnWriter::Int64ColumnWriter(out) => {
                out.write_batch(numbers.next().ok_or_else(missing)?, None, None)?
            }
            ColumnWriter::Int32ColumnWriter(out) => {
                let wide = numbers.next().ok_or_else(missing)?;
                // An unsigned 32-bit column stores the same bits as a signed integer, as Parquet
                // requires.
                let narrow: Vec<i32> = wide.iter().map(|number| *number as i32).collect();
                out.write_batch(&narrow, None, None)?
            }
            ColumnWriter::ByteArrayColumnWriter(out) => {
                out.write_batch(texts.next().ok_or_else(missing)?, None, None)?
            }
            _ => return Err(missing()),
        };
        column.close()?;
    }
    group.close().map(|_metadata| ())
}

fn schema(layout: &Layout) -> ParquetResult<Type> {
    let mut fields = Vec::new();
    for column in layout.numbers.iter().chain(layout.texts) {
        let logical = match column.kind {
            Kind::U32 => Some(LogicalType::integer(32, false)),
            Kind::U64 => Some(LogicalType::integer(64, false)),
            Kind::I64 | Kind::Bytes => None,
        };
        let field = Type::primitive_type_builder(column.name, column.kind.physical())
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(logical);
        fields.push(Arc::new(field.build()?));
    }
    Type::group_type_builder(layout.name).with_fields(fields).build()
}

fn properties(layout: &Layout) -> ParquetResult<WriterProperties> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for column in layout.texts {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(column.name), false);
    }
    for column in layout.numbers.iter().filter(|column| column.rising) {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(column.name), false)
            .set_column_encoding(ColumnPath::from(column.name), Encoding::DELTA_BINARY_PACKED);
    }
    Ok(properties.build())
}
