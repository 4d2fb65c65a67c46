//! Damaged and hostile data sets cause an error of one line that names the file.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fslab_dataset::Manifest;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use crate::support::{Sets, file, rows};

const SQL: &str = "SELECT count(name), sum(size), min(modified), max(inode) FROM snapshot";

fn sets() -> (Sets, PathBuf) {
    let sets = Sets::new();
    sets.snapshot("snapshot", 3, (1..2000).map(|inode| file(inode, 0, inode * 7, 1)));
    let part = sets.path("snapshot/parts/part-00001.parquet");
    (sets, part)
}

#[track_caller]
fn refused(sets: &Sets, names: &str) {
    let error = rows(&sets.query(SQL, &["snapshot"])).unwrap_err();
    let message = error.to_string();
    assert!(message.contains(names), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert_eq!(error.code(), 3, "{message}");
}

#[test]
fn missing_part_is_named() {
    let (sets, part) = sets();
    fs::remove_file(&part).unwrap();
    refused(&sets, "part-00001.parquet");
}

#[test]
fn missing_manifest_is_reported() {
    let (sets, _) = sets();
    fs::remove_file(sets.path("snapshot/manifest.json")).unwrap();
    refused(&sets, "not a data set");
}

#[test]
fn file_that_the_manifest_does_not_list_is_not_read() {
    let (sets, part) = sets();
    fs::copy(&part, sets.path("snapshot/parts/part-00003.parquet")).unwrap();
    assert_eq!(rows(&sets.query(SQL, &["snapshot"])).unwrap()[0]["count(snapshot.name)"], 1999);
}

#[test]
fn part_of_another_kind_is_named() {
    let (sets, part) = sets();
    let other = Sets::of_all_kinds(1);
    fs::copy(other.path("trace/parts/part-00000.parquet"), &part).unwrap();
    let path = sets.path("snapshot/manifest.json");
    let mut manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let rows = manifest["parts"][1]["rows"].as_u64().unwrap();
    manifest["parts"][1]["bytes"] = fs::metadata(&part).unwrap().len().into();
    manifest["parts"][1]["rows"] = 3.into();
    manifest["rows"] = (1999 - rows + 3).into();
    fs::write(&path, manifest.to_string()).unwrap();
    refused(&sets, "part-00001.parquet: its columns differ");
}

/// Flips bits of every fifth byte of the footer, and of every 97th byte before it. The checks of
/// the footer or the engine detect most changes, and the message then names the part. A change that
/// only yields other values is not detected.
#[test]
fn flipped_bytes_never_panic_and_errors_name_the_part() {
    let (sets, part) = sets();
    let bytes = fs::read(&part).unwrap();
    let length = bytes.len();
    let footer = u32::from_le_bytes(bytes[length - 8..length - 4].try_into().unwrap()) as usize;
    let places = (0..length - footer).step_by(97).chain((length - footer - 8..length).step_by(5));
    let open = fs::OpenOptions::new().write(true).open(&part).unwrap();
    let (mut refused, mut all) = (0, 0);
    for place in places {
        open.write_all_at(&[bytes[place] ^ 0x55], place as u64).unwrap();
        all += 1;
        if let Err(error) = rows(&sets.query(SQL, &["snapshot"])) {
            let message = error.to_string();
            assert!(message.contains("part-00001.parquet"), "byte {place}: {message}");
            assert_eq!(message.lines().count(), 1, "byte {place}: {message}");
            refused += 1;
        }
        open.write_all_at(&bytes[place..=place], place as u64).unwrap();
    }
    assert!(refused > all / 4, "{refused} of {all}");
    assert_eq!(rows(&sets.query(SQL, &["snapshot"])).unwrap().len(), 1);
}

/// A page that claims too many decoded bytes is refused before memory is allocated, but only if the
/// statement reads its column.
#[test]
fn hostile_size_of_a_page_is_refused_where_it_is_read() {
    let (sets, part) = sets();
    let bytes = fs::read(&part).unwrap();
    // The first page belongs to the first column, and starts after the magic number. Its header has
    // the type, then the decoded size as a varint in zigzag form.
    let start = (4..64).find(|at| bytes[*at] == 0x15 && bytes[at + 2] == 0x15).unwrap();
    let mut hostile = bytes.clone();
    for (at, byte) in [0xff, 0xff].into_iter().enumerate() {
        hostile[start + 3 + at] = byte;
    }
    fs::write(&part, &hostile).unwrap();
    assert_eq!(Manifest::read(&sets.path("snapshot")).unwrap().rows, 1999);
    refused(&sets, "part-00001.parquet: the column 'inode' is damaged");
    let other = sets.query("SELECT count(name) AS names FROM snapshot", &["snapshot"]);
    assert_eq!(rows(&other).unwrap()[0]["names"], 1999);
    // This query scans the table twice; only the second scan reads the damaged column.
    let both = "SELECT count(a.name), max(b.inode) FROM snapshot AS a CROSS JOIN \
                (SELECT inode FROM snapshot LIMIT 1) AS b";
    let error = rows(&sets.query(both, &["snapshot"])).unwrap_err().to_string();
    assert!(error.contains("part-00001.parquet: the column 'inode' is damaged"), "{error}");
}

/// Writes a part again with page indexes and bloom filters, which fslab does not write.
fn add_indexes(part: &Path) -> ParquetMetaData {
    let rows = ParquetRecordBatchReaderBuilder::try_new(File::open(part).unwrap()).unwrap();
    let (schema, rows) = (rows.schema().clone(), rows.build().unwrap());
    let properties = WriterProperties::builder()
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_bloom_filter_enabled(true)
        .build();
    let batches: Vec<_> = rows.collect::<Result<_, _>>().unwrap();
    let file = File::create(part).unwrap();
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties)).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap()
}

/// The sizes of page indexes and bloom filters are not checked. So an offset index that claims 2^31
/// pages, or a bloom filter that claims 2 GiB, would end the program if it were read.
#[test]
fn page_indexes_and_bloom_filters_are_not_read() {
    let sets = Sets::new();
    sets.snapshot("snapshot", 1, (1..2000).map(|inode| file(inode, 0, inode * 7, 1)));
    let part = sets.path("snapshot/parts/part-00000.parquet");
    let footer = add_indexes(&part);
    let columns = footer.row_group(0).columns();
    let size = columns.iter().find(|one| one.column_path().string() == "size").unwrap();
    let open = fs::OpenOptions::new().write(true).open(&part).unwrap();
    let index = size.offset_index_offset().unwrap();
    open.write_all_at(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07], index as u64).unwrap();
    let filter = size.bloom_filter_offset().unwrap();
    open.write_all_at(&[0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f], filter as u64).unwrap();
    let path = sets.path("snapshot/manifest.json");
    let mut manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    manifest["parts"][0]["bytes"] = fs::metadata(&part).unwrap().len().into();
    fs::write(&path, manifest.to_string()).unwrap();
    let sql = "SELECT count(*) AS files FROM snapshot WHERE size = 700";
    assert_eq!(rows(&sets.query(sql, &["snapshot"])).unwrap()[0]["files"], 1);
}
