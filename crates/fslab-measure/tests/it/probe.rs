//! The prober against file systems of which the truth is known.

use std::fmt::Write as _;

use fslab_measure::probe::matrix::MATRIX;
use fslab_measure::probe::truth::Verdict;

use super::support::can_mount;

/// What exists and is not found, with the reason.
const NOT_FOUND: &[(&str, &str)] = &[];

#[test]
fn answers_are_right_or_not_applicable_on_the_short_matrix() {
    if !can_mount("answers_are_right_or_not_applicable_on_the_short_matrix") {
        return;
    }
    let work_directory = std::env::temp_dir();
    let mut wrong = String::new();
    for cell in MATRIX.iter().filter(|cell| cell.is_short()) {
        for judged in cell.verify(&work_directory).unwrap() {
            let excused = judged.verdict == Verdict::NotFound
                && NOT_FOUND.contains(&(judged.attribute, cell.name().as_str()));
            if judged.verdict != Verdict::Right && !excused {
                writeln!(
                    wrong,
                    "{}: {}: {:?}, found {:?}, is {:?}",
                    cell.name(),
                    judged.attribute,
                    judged.verdict,
                    judged.finding.answer,
                    judged.truth
                )
                .unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
