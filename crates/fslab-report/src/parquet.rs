//! Renders the samples as Parquet, for table engines: one row group, one row per sample.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Map, Value};

use super::flat::{Column, Kind, columns, flatten};
use super::{Renderer, Report};
use crate::error::{Error, Result};

pub(super) const SPEC: Renderer = Renderer {
    name: "parquet",
    help: "the samples as a Parquet file, for other analysis tools",
    render,
};

fn render(report: &Report) -> Result<Vec<u8>> {
    let columns = columns()?;
    let rows = report.raw.iter().map(flatten).collect::<Result<Vec<_>>>()?;
    write(&columns, &rows).map_err(Error::Parquet)
}

fn write(
    columns: &[Column],
    rows: &[Map<String, Value>],
) -> std::result::Result<Vec<u8>, ParquetError> {
    let schema = Arc::new(parse_message_type(&schema(columns))?);
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(Default::default())).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for column in columns {
        let cells: Vec<&Value> =
            rows.iter().map(|row| row.get(&column.name).unwrap_or(&Value::Null)).collect();
        let Some(mut open) = group.next_column()? else { break };
        // Each row has a definition level, which is 1 if there is a value. Only existing values
        // follow.
        let levels: Vec<i16> = cells.iter().map(|cell| i16::from(!cell.is_null())).collect();
        let levels = Some(&*levels);
        match open.untyped() {
            ColumnWriter::BoolColumnWriter(writer) => {
                let values: Vec<bool> = cells.iter().filter_map(|cell| cell.as_bool()).collect();
                writer.write_batch(&values, levels, None)?;
            }
            ColumnWriter::Int64ColumnWriter(writer) => {
                let values: Vec<i64> = cells.iter().filter_map(|cell| integer(cell)).collect();
                writer.write_batch(&values, levels, None)?;
            }
            ColumnWriter::ByteArrayColumnWriter(writer) => {
                let texts = cells.iter().filter_map(|cell| cell.as_str());
                let values: Vec<ByteArray> = texts.map(ByteArray::from).collect();
                writer.write_batch(&values, levels, None)?;
            }
            _ => {
                let what = "a column of a kind not in the schema".to_owned();
                return Err(ParquetError::General(what));
            }
        }
        open.close()?;
    }
    group.close()?;
    writer.into_inner()
}

fn schema(columns: &[Column]) -> String {
    let field = |column: &Column| {
        let (physical, logical) = match column.kind {
            Kind::Text => ("BYTE_ARRAY", " (UTF8)"),
            Kind::Unsigned => ("INT64", " (INTEGER(64,false))"),
            Kind::Signed => ("INT64", " (INTEGER(64,true))"),
            Kind::Boolean => ("BOOLEAN", ""),
        };
        format!("OPTIONAL {physical} {}{logical};", column.name)
    };
    format!("message sample {{ {} }}", columns.iter().map(field).collect::<Vec<_>>().join(" "))
}

/// Returns the 64 bits of a signed or unsigned integer.
fn integer(cell: &Value) -> Option<i64> {
    cell.as_i64().or_else(|| cell.as_u64().map(u64::cast_signed))
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::{columns, flatten, write};
    use crate::sample::{Device, Sample};

    /// The library's own reader returns the written values; empty cells remain empty.
    #[test]
    fn parquet_round_trips_samples() {
        let device = Some(Device { sectors_read: 8, ..Device::default() });
        let first = Sample { run: "a".to_owned(), seed: u64::MAX, device, ..Sample::default() };
        let second = Sample { run: "b".to_owned(), elapsed_ns: 5, ..Sample::default() };
        let columns = columns().unwrap();
        let rows = [flatten(&first).unwrap(), flatten(&second).unwrap()];
        let bytes = write(&columns, &rows).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().collect::<Result<_, _>>().unwrap();
        let at = |name: &str| columns.iter().position(|column| column.name == name).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].get_string(at("run")).unwrap(), "a");
        assert_eq!(rows[0].get_ulong(at("seed")).unwrap(), u64::MAX);
        assert_eq!(rows[0].get_ulong(at("device_sectors_read")).unwrap(), 8);
        assert_eq!(rows[1].get_ulong(at("elapsed_ns")).unwrap(), 5);
        assert!(rows[1].get_ulong(at("device_sectors_read")).is_err(), "empty");
    }
}
