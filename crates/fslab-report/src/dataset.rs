//! Samples as data sets, for SQL engines: the columns of the Parquet report.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use fslab_dataset::{
    Cell, Column, Encoding, Kind, Manifest, Partition, Schema, Writer, facts_of, part_in_order,
};
use serde_json::{Map, Value};

use super::flat::{self, columns, flatten};
use crate::error::{Error, Result};
use crate::sample::{FORMAT, Record};

/// Maximum length of a line in bytes.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Returns the columns of data sets of samples.
///
/// # Errors
/// Fails if the columns of samples can't be determined.
pub fn schema() -> Result<Schema> {
    let column = |column: flat::Column| {
        let kind = match column.kind {
            flat::Kind::Text => Kind::Text,
            flat::Kind::Unsigned => Kind::U64,
            flat::Kind::Signed => Kind::I64,
            flat::Kind::Boolean => Kind::Bool,
        };
        let (name, encoding) = (Cow::Owned(column.name), Encoding::Dictionary);
        Column { name, kind, nullable: true, encoding }
    };
    let columns = columns()?.into_iter().map(column).collect();
    Ok(Schema { kind: "samples", version: 1, partition: Partition::Order, columns })
}

/// Writes the samples of a file as a data set.
///
/// # Errors
/// Fails if the file is not a samples file, if the data set exists, and on I/O errors. After an
/// error, no part of the data set remains.
pub fn write_dataset(samples: &Path, directory: &Path, parts: usize) -> Result<Manifest> {
    let schema = schema()?;
    let file = File::open(samples)
        .map_err(|source| Error::UnreadableSamples { path: samples.to_owned(), source })?;
    let total = file.metadata().map_err(Error::file(samples))?.len();
    let mut lines = Lines { path: samples, input: BufReader::new(file), number: 0, position: 0 };
    lines.begin()?;
    let facts = facts_of(&[("source", samples.display().to_string())]);
    let mut writer = Writer::create(directory, &schema, parts, facts)?;
    loop {
        // The number of samples is unknown, so the part is derived from the position in the file.
        let part = part_in_order(lines.position, total, parts);
        match lines.next()? {
            Some(Record::Sample(sample)) => {
                let row = flatten(&sample)?;
                writer.push(part, &cells(&schema, &row))?;
            }
            Some(_) => {}
            None => break,
        }
    }
    Ok(writer.finish()?)
}

fn cells<'a>(schema: &Schema, row: &'a Map<String, Value>) -> Vec<Cell<'a>> {
    let cell = |column: &Column| match row.get(&*column.name) {
        Some(Value::Bool(value)) => Cell::Bool(*value),
        Some(Value::Number(number)) => {
            let bits = number.as_i64().or_else(|| number.as_u64().map(u64::cast_signed));
            Cell::number(bits)
        }
        Some(Value::String(text)) => Cell::Bytes(text.as_bytes()),
        _ => Cell::Null,
    };
    schema.columns.iter().map(cell).collect()
}

/// The records of a samples file, one line at a time.
struct Lines<'a> {
    path: &'a Path,
    input: BufReader<File>,
    number: usize,
    /// Offset of the next line in bytes.
    position: u64,
}

impl Lines<'_> {
    /// Checks that the first record is the provenance.
    fn begin(&mut self) -> Result<()> {
        match self.next() {
            Ok(Some(Record::Provenance(_))) => Ok(()),
            Err(error @ Error::NewerFormat { .. }) => Err(error),
            _ => Err(Error::NoProvenance { path: self.path.to_owned() }),
        }
    }

    /// Reads the next record. Ignores an incomplete last line and empty lines.
    fn next(&mut self) -> Result<Option<Record>> {
        loop {
            let mut line = Vec::new();
            let mut input = (&mut self.input).take(LINE_BYTES_MAX);
            let length = input.read_until(b'\n', &mut line).map_err(Error::file(self.path))?;
            (self.number, self.position) = (self.number + 1, self.position + length as u64);
            if length == 0 {
                return Ok(None);
            }
            match serde_json::from_slice(&line) {
                Ok(Record::Provenance(found)) if found.format > FORMAT => {
                    let (path, format) = (self.path.to_owned(), found.format);
                    return Err(Error::NewerFormat { path, format });
                }
                Ok(record) => return Ok(Some(record)),
                Err(_) if line.trim_ascii().is_empty() => {}
                Err(_) if line.last() != Some(&b'\n') && (length as u64) < LINE_BYTES_MAX => {
                    return Ok(None);
                }
                Err(source) => {
                    let (path, line) = (self.path.to_owned(), self.number);
                    return Err(Error::Record { path, line, source });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fslab_dataset::PartReader;

    use super::*;
    use crate::provenance::Provenance;
    use crate::sample::Sample;

    fn line(record: &Record) -> String {
        serde_json::to_string(record).unwrap() + "\n"
    }

    #[test]
    fn samples_round_trip_and_the_incomplete_last_line_is_ignored() {
        let scratch = tempfile::tempdir().unwrap();
        let (samples, directory) = (scratch.path().join("samples"), scratch.path().join("set"));
        let mut text = line(&Record::Provenance(Box::default()));
        for elapsed_ns in 1..=100 {
            let sample = Sample { seed: u64::MAX, elapsed_ns, ..Sample::default() };
            text += &line(&Record::Sample(sample));
        }
        std::fs::write(&samples, text.clone() + "{\"sam").unwrap();
        let manifest = write_dataset(&samples, &directory, 3).unwrap();
        assert_eq!(manifest.rows, 100);
        assert!(manifest.parts.iter().all(|part| part.rows > 20));
        let schema = schema().unwrap();
        let at = |name: &str| schema.columns.iter().position(|column| column.name == name);
        let (elapsed, seed) = (at("elapsed_ns").unwrap(), at("seed").unwrap());
        let mut next = 1;
        for part in 0..3 {
            let mut reader = PartReader::open(&directory, &manifest, part, &schema).unwrap();
            let group = reader.next_group().unwrap().unwrap();
            for row in 0..group.rows() {
                assert_eq!(group.cell(row, elapsed), Cell::Number(next));
                assert_eq!(group.cell(row, seed), Cell::Number(-1));
                next += 1;
            }
        }
        assert_eq!(next, 101);
    }

    #[test]
    fn other_files_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let (samples, directory) = (scratch.path().join("samples"), scratch.path().join("set"));
        let damaged = line(&Record::Provenance(Box::default())) + "damage\n";
        let newer = Provenance { format: FORMAT + 1, ..Provenance::default() };
        for (text, what) in [
            (String::new(), "samples"),
            ("other text".to_owned(), "samples"),
            (line(&Record::Sample(Sample::default())), "samples"),
            (damaged, "2"),
            (line(&Record::Provenance(Box::new(newer))), "3"),
        ] {
            std::fs::write(&samples, text).unwrap();
            let error = write_dataset(&samples, &directory, 1).unwrap_err().to_string();
            assert!(error.contains(what) && error.lines().count() == 1, "{error}");
            assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
        }
    }
}
