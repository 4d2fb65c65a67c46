//! Measures the cost of the harness: compares the workload `names` with a minimal C loop of the
//! same system calls.

use std::path::Path;
use std::process::Command;

use fslab_stats::paired_ratio;
use fslab_sys::signals::Interrupt;

use crate::support::{Silent, TestHost, has_program, run, samples};

const FILES: u64 = 20_000;
const PAIRS: usize = 25;

/// Returns the seconds that the harness takes to create and to delete the files, without the time
/// of flushing.
fn by_harness(directory: &Path) -> (f64, f64) {
    let plan = format!(
        "name = \"cost\"\nrounds = 1\n[[target]]\nname = \"d\"\ndirectory = \"{}\"\n\
         [[workload]]\nname = \"names\"\nfiles = {FILES}\norders = \"ordered\"\n",
        directory.display()
    );
    let own = tempfile::tempdir_in(directory).unwrap();
    let (_, records) =
        run(&plan, own.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
    let seconds = |phase: &str| {
        let sample = samples(&records).into_iter().find(|sample| sample.phase == phase).unwrap();
        (sample.elapsed_ns - sample.flush_ns) as f64 / 1e9
    };
    (seconds("create"), seconds("delete"))
}

fn by_loop(program: &Path, directory: &Path) -> (f64, f64) {
    let own = tempfile::tempdir_in(directory).unwrap();
    let output = Command::new(program).arg(own.path()).arg(FILES.to_string()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let seconds: Vec<f64> =
        text.split_whitespace().map(|ns| ns.parse::<f64>().unwrap() / 1e9).collect();
    (seconds[0], seconds[1])
}

/// The harness and the C loop are run in pairs and take turns to run first. They run in the
/// directory FSLAB_COST_DIR, or in the current one. Ratios on ext4, on an image in memory: create
/// 1.009, delete 1.004. On tmpfs a creation takes only 2 us, so the 60 ns of the harness are 3 %.
#[test]
#[ignore = "a measurement: wants a quiet machine and an optimised build"]
fn names_cost_at_most_2_percent_more_than_a_loop_in_c() {
    if !has_program("the harness's cost", "cc") {
        return;
    }
    let parent = std::env::var("FSLAB_COST_DIR").unwrap_or_else(|_| ".".to_owned());
    let directory = tempfile::tempdir_in(parent).unwrap();
    let program = directory.path().join("names");
    let source = Path::new("tests/assets/names.c");
    let built = Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(source).status().unwrap();
    assert!(built.success());
    let (mut creates, mut deletes) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let loop_first = (pair % 2 == 0).then(|| by_loop(&program, directory.path()));
        let harness = by_harness(directory.path());
        let plain = loop_first.unwrap_or_else(|| by_loop(&program, directory.path()));
        creates.push((harness.0, plain.0));
        deletes.push((harness.1, plain.1));
    }
    for (what, pairs) in [("create", creates), ("delete", deletes)] {
        let ratio = paired_ratio(&pairs, 1).unwrap();
        let nanoseconds =
            pairs.iter().map(|pair| pair.1).sum::<f64>() * 1e9 / (PAIRS as f64 * FILES as f64);
        eprintln!("{what}: harness / C loop {ratio:?}, {nanoseconds:.0} ns an operation in C");
        assert!(ratio.ratio <= 1.02, "{what}: {ratio:?}");
    }
}
