//! The options that select a part of a plan. A resumed comparison must have the same options.

use std::path::Path;

use anyhow::Result;
use fslab_compare::Plan;
use fslab_report::{Cells, Choice, Recording};

use super::{Args, quoted};

/// Default maximum number of repeats of a block with interference.
pub const DEFAULT_RERUNS: u32 = 1;

/// The options of a choice. Each has its name and, if it was given, its full text.
type Options = [(&'static str, Option<String>); 7];

/// Returns the choice with which a resumed comparison was started.
///
/// # Errors
/// Fails if an option on the command line differs from this choice.
pub(super) fn begun(args: &Args, begun: &Choice, samples: &Path) -> Result<Choice> {
    let kept = options(
        &begun.cells,
        Some(begun.reruns_max),
        begun.work_parent.as_deref(),
        &begun.recordings,
    );
    let work_dir = args.work_dir.as_deref().map(|path| Choice::kept(path, samples));
    let asked = options(
        &args.cells(),
        args.reruns,
        work_dir.as_ref().and_then(Option::as_deref),
        &args.recordings(),
    );
    let beside = work_dir == Some(None) && begun.work_parent.is_some();
    for ((name, kept), (_, asked)) in kept.into_iter().zip(asked) {
        let beside = beside && name == WORK_DIR;
        if beside || asked.as_ref().is_some_and(|asked| kept.as_ref() != Some(asked)) {
            let kept = kept.unwrap_or_else(|| format!("no {name}"));
            bail_as!(
                BadInput,
                "{}: this run began with {kept}, and a resumed run can't change this option. Leave \
                 out {name}, or start another run with another --out. `fslab report` combines the \
                 samples of both runs",
                samples.display()
            );
        }
    }
    Ok(begun.clone())
}

const WORK_DIR: &str = "--work-dir";

/// Returns the options of a choice, in the order of the help.
fn options(
    cells: &Cells,
    reruns: Option<u32>,
    work_dir: Option<&Path>,
    recordings: &[Recording],
) -> Options {
    let recordings: Vec<&str> = recordings.iter().map(|one| one.name()).collect();
    let rounds = cells.rounds.as_ref();
    [
        ("--reruns", reruns.map(|reruns| format!("--reruns {reruns}"))),
        ("--cells", cells.share.map(|share| format!("--cells {}/{}", share.number, share.of))),
        ("--only-target", each("--only-target", &cells.targets)),
        ("--only-workload", each("--only-workload", &cells.workloads)),
        (
            "--only-rounds",
            rounds.map(|rounds| format!("--only-rounds {}-{}", rounds.start(), rounds.end())),
        ),
        (WORK_DIR, work_dir.map(|path| format!("{WORK_DIR} {}", quoted(path)))),
        (
            "--record",
            (!recordings.is_empty()).then(|| format!("--record {}", recordings.join(","))),
        ),
    ]
}

/// Returns an option, repeated for each name. The names are sorted, so that equal choices give
/// equal text.
fn each(option: &str, names: &[String]) -> Option<String> {
    let mut names: Vec<&String> = names.iter().collect();
    names.sort();
    names.dedup();
    let words = names.into_iter().map(|name| format!("{option} {}", quoted(Path::new(name))));
    Some(words.collect::<Vec<_>>().join(" ")).filter(|words| !words.is_empty())
}

impl Args {
    /// Returns the part of a plan that these arguments select.
    pub(super) fn choice(&self, plan: &Plan, samples: &Path) -> Result<Choice> {
        let reruns_max = self.reruns.or(plan.reruns_max).unwrap_or(DEFAULT_RERUNS);
        let work_parent = self.work_dir.as_deref().and_then(|path| Choice::kept(path, samples));
        if let Some(path) = work_parent.as_deref().filter(|path| path.to_str().is_none()) {
            let name = path.display();
            bail_as!(
                BadInput,
                "{WORK_DIR} {name}: the path is not UTF-8, so samples can't record it"
            );
        }
        Ok(Choice { cells: self.cells(), reruns_max, work_parent, recordings: self.recordings() })
    }

    /// Returns the recordings in a fixed order, each once.
    fn recordings(&self) -> Vec<Recording> {
        let is_given = |kind: &Recording| self.record.iter().any(|name| name == kind.name());
        [Recording::Perf, Recording::Block].into_iter().filter(is_given).collect()
    }

    pub(super) fn cells(&self) -> Cells {
        Cells {
            share: self.cells,
            targets: self.only_target.clone(),
            workloads: self.only_workload.clone(),
            rounds: self.only_rounds.map(|(first, last)| first..=last),
            blocks: None,
        }
    }

    /// Returns the options of the choice as text for a command line.
    pub(super) fn chosen(&self) -> Vec<String> {
        let options =
            options(&self.cells(), self.reruns, self.work_dir.as_deref(), &self.recordings());
        options.into_iter().filter_map(|(_, words)| words).collect()
    }
}

#[cfg(test)]
mod tests {
    use fslab_report::Share;

    use super::*;

    fn resumed(args: &Args, choice: &Choice) -> std::result::Result<Choice, String> {
        begun(args, choice, Path::new("out/samples.jsonl")).map_err(|error| error.to_string())
    }

    #[test]
    fn resumed_comparison_refuses_options_that_differ_from_its_start() {
        let share = Some(Share { number: 1, of: 2 });
        let targets = vec!["a b".to_owned(), "c".to_owned()];
        let choice = Choice {
            cells: Cells { share, targets, ..Cells::default() },
            reruns_max: 3,
            work_parent: Some("/fast".into()),
            recordings: vec![Recording::Block],
        };
        assert_eq!(resumed(&Args::default(), &choice), Ok(choice.clone()));
        let same = Args {
            cells: share,
            only_target: vec!["c".to_owned(), "a b".to_owned()],
            reruns: Some(3),
            work_dir: Some("/fast".into()),
            ..Args::default()
        };
        assert_eq!(resumed(&same, &choice), Ok(choice.clone()));
        let cases = [
            (Args { cells: Some(Share { number: 2, of: 2 }), ..Args::default() }, "--cells 1/2"),
            (
                Args { only_target: vec!["c".to_owned()], ..Args::default() },
                "--only-target 'a b' --only-target c",
            ),
            (Args { only_rounds: Some((1, 2)), ..Args::default() }, "no --only-rounds"),
            (Args { reruns: Some(0), ..Args::default() }, "--reruns 3"),
            (
                Args { record: vec!["perf".to_owned(), "block".to_owned()], ..Args::default() },
                "--record block",
            ),
            (Args { work_dir: Some("/slow".into()), ..Args::default() }, "--work-dir /fast"),
            (Args { work_dir: Some("out".into()), ..Args::default() }, "--work-dir /fast"),
        ];
        for (args, words) in cases {
            let message = resumed(&args, &choice).unwrap_err();
            assert!(
                message.contains(&format!("began with {words}, and a resumed run")),
                "{message}"
            );
        }
        let beside = Args { work_dir: Some("out".into()), ..Args::default() };
        let plain = Choice::default();
        assert_eq!(resumed(&beside, &plain), Ok(plain), "the default work directory");
    }
}
