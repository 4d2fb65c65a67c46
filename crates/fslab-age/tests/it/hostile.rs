//! Runs the checks of the fuzz targets on the fuzzing corpus and on randomly damaged valid files.

use std::path::{Path, PathBuf};

use fslab_age::testing::{
    check_csv, check_entries, check_geriatrix, check_git, check_image, check_operations,
    check_p9trace, check_tables,
};
use fslab_vfs_testing::environment::{number, seed};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

type Check = fn(&[u8]);

/// Returns every target with its check and valid inputs.
fn targets() -> Vec<(&'static str, Check, Vec<Vec<u8>>)> {
    let golden = Path::new("testdata/workload-v1.parquet");
    let distributions = "3\n10 10\n100 20\n1000 70\n=2\n4096 50\n65536 50\n=2\n1 10 1\n3 90 4\n";
    let log = "\u{1}1000000000\0\n:000000 100644 0 b1 A\0a/b\0:000000 120000 0 b2 A\0c\0\
               \u{1}1000700000\0\n:100644 000000 b1 0 D\0a/b\0:000000 100644 0 b1 A\0d\0";
    let list = "path,size,modified,mode\na/b/c,100,5.5,600\na/d,7,,\nx,0,1,\n";
    vec![
        ("p9trace", check_p9trace as Check, vec![crate::p9traces::trace()]),
        ("geriatrix", check_geriatrix, vec![distributions.into()]),
        ("git", check_git, vec![log.into()]),
        ("csv", check_csv, vec![list.into()]),
        ("tables", check_tables, vec![std::fs::read(golden).unwrap()]),
        ("image", check_image, vec![packed()]),
        ("operations", check_operations, Vec::new()),
        ("entries", check_entries, Vec::new()),
    ]
}

fn packed() -> Vec<u8> {
    let scratch = tempfile::tempdir().unwrap();
    let (_, path, _) = crate::images::packed(scratch.path(), 70_000);
    std::fs::read(path).unwrap()
}

fn corpus(target: &str) -> PathBuf {
    Path::new("../../fuzz/corpus").join(format!("age_{target}"))
}

/// The corpus contains inputs that were found by fuzzing.
#[test]
fn fuzz_corpus_passes_all_checks() {
    let mut passed = 0;
    for (target, check, _) in targets() {
        for entry in std::fs::read_dir(corpus(target)).unwrap() {
            let path = entry.unwrap().path();
            eprintln!("{}", path.display());
            check(&std::fs::read(&path).unwrap());
            passed += 1;
        }
    }
    assert!(passed >= targets().len(), "{passed} inputs: a target has none");
}

/// `FSLAB_AGE_CASES` sets the number of cases per target.
#[test]
fn randomly_damaged_file_never_causes_a_panic() {
    let mut random = Pcg64::seed_from_u64(seed());
    for _ in 0..number("FSLAB_AGE_CASES").unwrap_or(60) {
        for (_, check, good) in targets() {
            check(&damaged(&good, &mut random));
        }
    }
}

/// Returns a valid input with some bytes changed, repeated or removed; random bytes if there is no
/// valid input.
fn damaged(good: &[Vec<u8>], random: &mut Pcg64) -> Vec<u8> {
    let Some(mut bytes) = good.first().cloned() else {
        let length = random.random_range(0..600);
        return (0..length).map(|_| random.random()).collect();
    };
    for _ in 0..random.random_range(1..8) {
        let from = random.random_range(0..=bytes.len());
        let to = random.random_range(from..=bytes.len().min(from + 40));
        match random.random_range(0..4) {
            0 if from < bytes.len() => bytes[from] ^= 1 << random.random_range(0..8),
            1 if from < bytes.len() => bytes[from] = random.random(),
            2 => drop(bytes.drain(from..to)),
            _ => {
                let piece = bytes[from..to].to_vec();
                let at = random.random_range(0..=bytes.len());
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}
