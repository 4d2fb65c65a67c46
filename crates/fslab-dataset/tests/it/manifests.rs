//! Tests hostile manifests.

use std::path::Path;

use fslab_dataset::Manifest;
use fslab_dataset::testing::check_manifest;
use fslab_vfs_testing::environment::{number, seed};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const GOOD: &str = r#"{"format": 2, "kind": "snapshot", "columns": 1, "partition": "inode",
    "facts": {}, "rows": 5, "parts": [
    {"file": "parts/part-00000.parquet", "rows": 5, "bytes": 7, "blake3": "00"}]}"#;

fn parse(text: &str) -> Result<Manifest, String> {
    let parsed = Manifest::parse(Path::new("manifest.json"), text.as_bytes());
    parsed.map_err(|error| error.to_string())
}

#[test]
fn hostile_manifest_is_refused_in_one_line() {
    assert!(parse(GOOD).is_ok());
    let deep = ["[".repeat(1 << 20), "]".repeat(1 << 20)];
    let max = u64::MAX.to_string();
    let second =
        r#"}, {"file": "parts/part-00000.parquet", "rows": 0, "bytes": 7, "blake3": ""}]}"#;
    let two_parts = GOOD.replace("}]}", second);
    for (text, what) in [
        (format!("{{\"format\": 1, \"facts\": {}", deep[0]), "EOF"),
        (format!("{{\"format\": 1, \"facts\": {{\"a\": {}}}}}", deep.concat()), "invalid type"),
        (GOOD.replace("{}", &deep.concat()), "invalid type"),
        (String::new(), "EOF"),
        (GOOD.replace("\"format\": 2", "\"format\": 3"), "use a newer fslab"),
        (GOOD.replace("\"format\": 2", "\"format\": 0"), "the format 0 is invalid"),
        (GOOD.replace("snapshot", "\\u001b[2J"), "the kind '\\u{1b}[2J' is unknown"),
        (GOOD.replace("inode", "both"), "the partition 'both' is unknown"),
        (GOOD.replace("part-00000", "../../etc/part"), "instead of 'parts/part-00000.parquet'"),
        (GOOD.replace("parts/part", "part"), "instead of 'parts/part-00000.parquet'"),
        (GOOD.replace("\"format\": 2", "\"format\": 1"), "instead of 'part-00000.parquet'"),
        (two_parts.clone(), "part 1 is 'parts/part-00000.parquet'"),
        (
            two_parts.replace(
                "part-00000.parquet\", \"rows\": 0",
                &format!("part-00001.parquet\", \"rows\": {max}"),
            ),
            "too many rows",
        ),
        (GOOD.replace("\"rows\": 5, \"parts\"", "\"rows\": 6, \"parts\""), "have 5 rows, not 6"),
        (GOOD.replace("\"facts\"", "\"extra\": 1, \"facts\""), "unknown field"),
        (GOOD.replace("5,", "-5,"), "invalid value"),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(what), "{what}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// Parses a valid manifest and the fuzzing corpus, first unchanged and then randomly damaged.
/// `FSLAB_DATASET_CASES` sets the number of cases.
#[test]
fn damaged_manifest_is_an_error_or_another_manifest() {
    let mut random = Pcg64::seed_from_u64(seed());
    let corpus = std::fs::read_dir("../../fuzz/corpus/dataset_manifest").unwrap();
    let mut inputs = vec![GOOD.as_bytes().to_vec()];
    inputs.extend(corpus.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()));
    assert!(inputs.len() > 3);
    for input in &inputs {
        check_manifest(input);
        for _ in 0..number("FSLAB_DATASET_CASES").unwrap_or(500) {
            let mut bytes = input.clone();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
            check_manifest(&bytes);
        }
    }
}

#[test]
fn huge_manifest_is_refused_before_it_is_read() {
    let scratch = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(scratch.path().join("manifest.json")).unwrap();
    file.set_len(1 << 40).unwrap();
    let error = Manifest::read(scratch.path()).unwrap_err().to_string();
    assert!(error.ends_with("a manifest has at most 4 MiB"), "{error}");
}
