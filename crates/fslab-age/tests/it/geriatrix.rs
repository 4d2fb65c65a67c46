//! Workloads from the distributions of Geriatrix: the final files must have the requested ages,
//! sizes and depths.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use fslab_age::profile::geriatrix::{Ageing, GeriatrixGenerator};
use fslab_age::workload::{Operation, OperationKind, Population};

const AGES: &str = "4\n10 10\n100 20\n400 30\n1000 40\n\nFormat:\n<age> <weight>\n";
const SIZES: &str = "3\n4096 50\n16384 30\n65536 20\n";
const DEPTHS: &str = "3\n1 10 1\n2 30 4\n4 60 7\n";

fn write(directory: &Path, [ages, sizes, depths]: [&str; 3]) {
    fs::write(directory.join("age_distribution.txt"), ages).unwrap();
    fs::write(directory.join("size_distribution.txt"), sizes).unwrap();
    fs::write(directory.join("dir_distribution.txt"), depths).unwrap();
}

fn ageing(seed: u64) -> Ageing {
    Ageing { volume_bytes: 48 << 20, utilisation: 0.8, days: 30, seed, owner: (7, 8) }
}

fn generate(directory: &Path, seed: u64) -> Vec<Operation> {
    let generator = GeriatrixGenerator::read(directory, ageing(seed)).unwrap();
    generator.map(|operation| operation.unwrap()).collect()
}

/// Returns the share of files in each class.
fn shares<K: std::hash::Hash + Eq>(
    files: &[(u64, u64, u64)],
    class: impl Fn(&(u64, u64, u64)) -> K,
) -> HashMap<K, f64> {
    let mut counts = HashMap::new();
    for file in files {
        *counts.entry(class(file)).or_default() += 1.0 / files.len() as f64;
    }
    counts
}

#[test]
fn aged_files_have_the_requested_distributions() {
    let scratch = tempfile::tempdir().unwrap();
    write(scratch.path(), [AGES, SIZES, DEPTHS]);
    let operations = generate(scratch.path(), 1);
    let (mut population, mut born) = (Population::default(), HashMap::new());
    for operation in &operations {
        population.apply(operation).unwrap();
        if operation.kind == OperationKind::Create {
            born.insert(operation.file, operation.time_ns);
        }
    }
    let depth = |mut at: u64| {
        let mut depth = 0;
        while let Some(member) = population.get(at) {
            (at, depth) = (member.directory, depth + 1);
        }
        depth
    };
    let end = population.last_ns();
    let files: Vec<_> = population
        .members()
        .filter(|(_, member)| member.kind == OperationKind::Create)
        .map(|(file, member)| (member.size, depth(file), end - born[&file]))
        .collect();
    let bytes: u64 = files.iter().map(|file| file.0).sum();
    let used = bytes as f64 / (48 << 20) as f64;
    assert!((0.77..=0.83).contains(&used), "{used}");
    let near = |found: Option<&f64>, wanted: f64, what: &str| {
        let found = found.copied().unwrap_or_default();
        assert!((found - wanted).abs() < 0.03, "{what}: {found} instead of {wanted}");
    };
    let by_size = shares(&files, |file| file.0);
    for (size, wanted) in [(4096, 0.5), (16_384, 0.3), (65_536, 0.2)] {
        near(by_size.get(&size), wanted, "size");
    }
    let by_depth = shares(&files, |file| file.1);
    for (depth, wanted) in [(1, 0.1), (2, 0.3), (4, 0.6)] {
        near(by_depth.get(&depth), wanted, "depth");
    }
    // Files created at the beginning have the highest age.
    let by_age = shares(&files, |file| {
        [0.01, 0.1, 0.4, 1.0].iter().position(|bound| file.2 as f64 <= bound * end as f64)
    });
    for (place, wanted) in [0.1, 0.2, 0.3, 0.4].into_iter().enumerate() {
        near(by_age.get(&Some(place)), wanted, "age");
    }
    assert!(population.members().all(|(_, member)| (member.uid, member.gid) == (7, 8)));
}

#[test]
fn equal_seeds_give_equal_workloads_and_depth_defaults_to_root() {
    let scratch = tempfile::tempdir().unwrap();
    write(scratch.path(), [AGES, SIZES, DEPTHS]);
    assert!(generate(scratch.path(), 5) == generate(scratch.path(), 5));
    assert!(generate(scratch.path(), 5) != generate(scratch.path(), 6));
    fs::remove_file(scratch.path().join("dir_distribution.txt")).unwrap();
    assert!(generate(scratch.path(), 5).iter().all(|operation| operation.directory == 0));
}

#[test]
fn invalid_distributions_are_refused_with_a_reason() {
    let scratch = tempfile::tempdir().unwrap();
    let refused = |texts: [&str; 3], what: &str| {
        write(scratch.path(), texts);
        let answer = GeriatrixGenerator::read(scratch.path(), ageing(1)).map(|_| ());
        let message = answer.unwrap_err().to_string();
        assert!(message.contains(what) && message.lines().count() == 1, "{texts:?}: {message}");
    };
    refused(["many\n", SIZES, DEPTHS], "line 1: the first line must be a number of rows");
    refused(["3\n10 1\n20 1\n", SIZES, DEPTHS], "fewer rows");
    refused(["2\n10 1\n10 1\n", SIZES, DEPTHS], "line 3: each row needs");
    refused([AGES, "2\n10 1 1\n20 1\n", DEPTHS], "line 2: each row needs");
    refused([AGES, "1\n10 0\n", DEPTHS], "at least one weight");
    refused([AGES, "1\n99999999 1\n", DEPTHS], "larger volume");
    refused([AGES, "1\n0 1\n", DEPTHS], "above 0");
    refused([AGES, SIZES, "1\n1.5 1 1\n"], "a depth must be");
    refused([AGES, SIZES, "1\n2 1 0\n"], "a depth must be");
    refused([AGES, SIZES, "1\n201 1 1\n"], "a depth must be");
    refused(["2\n0.000001 50\n1000 50\n", SIZES, DEPTHS], "steps");
}
