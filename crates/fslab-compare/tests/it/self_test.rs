//! Tests of the self-test, with measured runs in process.

use fslab_compare::plan::Form;
use fslab_compare::self_test::{self, COMPARISONS, Found};
use fslab_compare::{Plan, RunOptions};
use fslab_report::{Choice, sample};
use fslab_report::{Report, Row};
use fslab_sys::signals::Interrupt;

use crate::support::{Silent, TestHost, directory_on_disk};

/// Rounds of one comparison.
const ROUNDS: u32 = 2;

/// Maximum number of attempts, because other programs may disturb all rounds of a target.
const RUNS_MAX: usize = 5;

/// The injected delay takes real time. A copy slowed by 100 % takes about twice as long as the
/// first copy. The second copy, which is not slowed, takes about as long as the first.
#[test]
fn injected_delay_is_measured_and_equal_copies_are_near() {
    let mut ratios = (0..RUNS_MAX).map(|_| ratios_to_the_first_copy());
    let is_near =
        |[second, slowed]: &[f64; 2]| (0.8..1.25).contains(second) && (1.5..2.5).contains(slowed);
    assert!(ratios.any(|ratios| is_near(&ratios)), "no ratio of {RUNS_MAX} runs is near 1 and 2");
}

/// Runs a self-test with a delay of 100 %. Returns two ratios of shortest times: second copy to
/// first copy, and slowed copy to first copy.
fn ratios_to_the_first_copy() -> [f64; 2] {
    let text = "name = \"p\"\n[[target]]\nname = \"memory\"\nin_process = \"mem:\"\n\
                [[workload]]\nname = \"stream\"\n";
    let target = Plan::parse("test", text, Form::Full).unwrap().targets.remove(0);
    let mut plan = self_test::plan(&target, 1 << 30).unwrap();
    let shares: Vec<_> = plan.targets.iter().map(|target| target.slowed).collect();
    assert_eq!(shares, [Some(0.0), Some(0.0), Some(0.05)]);
    // On a busy machine, a delay of 5 % could not be measured, but one of 100 % can.
    plan.targets[2].slowed = Some(1.0);
    let directory = directory_on_disk();
    let samples = fslab_compare::samples_path(directory.path());
    plan.rounds = ROUNDS * COMPARISONS as u32;
    plan.rounds_max = plan.rounds;
    let options = RunOptions {
        plan: &plan,
        seed: 3,
        choice: Choice::default(),
        samples: &samples,
        resume: false,
        command: "fslab compare --self-test",
        host: &TestHost,
        interrupt: Interrupt::default(),
        remarks: Vec::new(),
    };
    fslab_compare::run(options, &mut Silent).unwrap();
    let report = Report::new(&sample::read(&samples).unwrap());
    let found = Found::new(&report, "memory", ROUNDS, 3).unwrap();
    assert_eq!((found.comparisons, found.simulated), (10, 1000));
    assert!(found.text().contains("at most 70"), "{}", found.text());
    // A report with another number of rounds is an error.
    assert!(Found::new(&report, "memory", ROUNDS + 1, 3).is_err());
    // The shortest times are compared, because other programs may disturb single runs.
    let group = report.groups.iter().find(|group| group.phase == "overwrite").unwrap();
    let [first, second, slowed] = &group.rows[..] else { panic!("three rows") };
    let of_first = |row: &Row| row.seconds.minimum / first.seconds.minimum;
    let ratios = [of_first(second), of_first(slowed)];
    println!("second and slowed copy: {ratios:?}");
    ratios
}
