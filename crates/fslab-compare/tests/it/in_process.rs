//! Tests of whole comparisons without root, on a file system in memory in this process and in a
//! directory.

use std::collections::HashSet;

use fslab_compare::{Error, Host, HostError, Observer};
use fslab_report::sample::{self, CacheState, EndReason, NoteKind, Record};
use fslab_report::{Report, Verdict};
use fslab_sys::signals::Interrupt;
use fslab_vfs::{FileSystem, Handle, Ino, MemFs, Request};

use crate::support::{Silent, TestHost, directory_on_disk, run, samples};

/// Small versions of workloads that run no other program.
const WORKLOADS: &str = r#"
[[workload]]
name = "names"
files = 40
directories = 3
[[workload]]
name = "file-attributes"
files = 60
per_directory = 7
[[workload]]
name = "file-copy"
largest = "8 KiB"
most_files = 2
[[workload]]
name = "stream"
size = "1 MiB"
request = "64 KiB"
data = "compressed"
"#;

fn plan(directory: &std::path::Path) -> String {
    let directory = directory.display();
    format!(
        "name = \"small\"\nrounds = 2\n\
         [[target]]\nname = \"memory\"\nin_process = \"mem:\"\n\
         [[target]]\nname = \"directory\"\ndirectory = \"{directory}\"\n{WORKLOADS}"
    )
}

#[test]
fn every_cell_is_sampled_and_nothing_is_left_behind() {
    let directory = directory_on_disk();
    let plan = plan(directory.path());
    let (outcome, records) =
        run(&plan, directory.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
    assert_eq!((outcome.end.reason, outcome.end.rounds), (EndReason::Finished, 2));
    assert!(outcome.notes.iter().all(|note| note.kind == NoteKind::Remark), "{:?}", outcome.notes);
    let samples = samples(&records);
    // `names` has 6 phases, `file-attributes` 3, `stream` 4, and `file-copy` 3 for each of 5 sizes.
    // They run in two rounds, on both targets and the second copy of the baseline.
    assert_eq!(samples.len(), 2 * 3 * (6 + 3 + 4 + 3 * 5));
    assert!(samples.iter().all(|s| s.elapsed_ns > 0 && s.operations > 0), "{samples:?}");
    let cold = samples.iter().filter(|s| s.cache.asked == CacheState::Cold);
    assert!(cold.clone().count() > 0 && cold.clone().all(|s| !s.cache.proven), "nothing was cold");
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["samples.jsonl"]);
}

#[test]
fn the_margin_of_a_plan_is_in_its_samples() {
    let directory = directory_on_disk();
    let plan = format!("margin = \"50 %\"\n{}", plan(directory.path()));
    let (_, records) =
        run(&plan, directory.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
    let report = Report::new(&records);
    let (base, other) =
        (&report.groups[0].rows[0].against[0], &report.groups[0].rows[1].against[0]);
    assert_eq!((base.margin, other.margin.unwrap().to_string().as_str()), (None, "50 %"));
    assert_ne!(other.verdict, Verdict::NotShown);
}

/// All targets of a round have the same seed. Seeds differ between rounds, and both orders of the
/// targets occur.
#[test]
fn rounds_are_complete_blocks_in_random_order() {
    let directory = directory_on_disk();
    let plan = "name = \"blocks\"\nrounds = 12\nnoise_floor = false\n\
         [[target]]\nname = \"a\"\nin_process = \"mem:\"\n\
         [[target]]\nname = \"b\"\nin_process = \"mem:\"\n\
         [[workload]]\nname = \"names\"\nfiles = 2\n";
    let (_, records) =
        run(plan, directory.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
    let creates: Vec<_> = samples(&records).into_iter().filter(|s| s.phase == "create").collect();
    let pairs: Vec<_> = creates.chunks(2).collect();
    assert_eq!(pairs.len(), 12);
    for pair in &pairs {
        assert_eq!((pair[0].round, pair[0].seed), (pair[1].round, pair[1].seed));
        assert_ne!(pair[0].target, pair[1].target);
    }
    let firsts: HashSet<_> = pairs.iter().map(|pair| &pair[0].target).collect();
    assert_eq!(firsts.len(), 2, "a seed may do this once in 2048 times");
    let seeds: HashSet<_> = pairs.iter().map(|pair| pair[0].seed).collect();
    assert_eq!(seeds.len(), 12);
}

/// An in-memory file system that changes the first byte of every read.
struct Damaged(MemFs);

impl FileSystem for Damaged {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.0)
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> fslab_vfs::Result<usize> {
        let length = self.0.read(request, ino, handle, offset, buffer)?;
        if let Some(first) = buffer.first_mut().filter(|_| length > 0) {
            *first ^= 1;
        }
        Ok(length)
    }
}

struct DamagedHost;

impl Host for DamagedHost {
    fn mount_command(
        &self,
        _layers: &[String],
        _lower: &std::path::Path,
        _mountpoint: &std::path::Path,
    ) -> Vec<std::ffi::OsString> {
        Vec::new()
    }

    fn file_system(&self, specification: &str) -> Result<Box<dyn FileSystem>, HostError> {
        match specification {
            "damaged" => Ok(Box::new(Damaged(MemFs::default()))),
            _ => Ok(Box::new(MemFs::default())),
        }
    }
}

/// Wrong bytes fail the two workloads that check their written data, and only on the damaged
/// target.
#[test]
fn wrong_data_fails_only_the_damaged_target() {
    let directory = directory_on_disk();
    let plan = format!(
        "name = \"damage\"\nrounds = 2\n\
         [[target]]\nname = \"good\"\nin_process = \"mem:\"\n\
         [[target]]\nname = \"bad\"\nin_process = \"damaged\"\n{WORKLOADS}"
    );
    let (outcome, records) =
        run(&plan, directory.path(), &DamagedHost, Interrupt::default(), &mut Silent).unwrap();
    let failed: Vec<_> =
        outcome.notes.iter().filter(|note| note.kind == NoteKind::Failed).collect();
    let workloads: HashSet<_> = failed.iter().map(|note| note.workload.as_deref()).collect();
    assert_eq!(workloads, HashSet::from([Some("file-copy"), Some("stream")]), "{failed:?}");
    for note in failed {
        assert_eq!(note.target.as_deref(), Some("bad"));
        assert!(note.text.contains("differs from the written data"), "{}", note.text);
    }
    let of = |target: &str, workload: &str| {
        samples(&records).iter().filter(|s| s.target == target && s.workload == workload).count()
    };
    assert_eq!(of("good", "stream"), 2 * 4);
    assert_eq!(of("bad", "names"), 2 * 6);
    assert!(of("bad", "stream") < of("good", "stream"));
}

/// Interrupts the run at the beginning of the second round.
struct StopInRound2(Interrupt);

impl Observer for StopInRound2 {
    fn progress(&mut self, _done: u64, _total: u64, next: &str) {
        if next.starts_with("round 2") {
            self.0.raise();
        }
    }
    fn note(&mut self, _note: &sample::Note) {}
}

#[test]
fn an_interrupted_run_keeps_whole_samples() {
    let directory = directory_on_disk();
    let interrupt = Interrupt::default();
    let (outcome, records) = run(
        &plan(directory.path()),
        directory.path(),
        &TestHost,
        interrupt.clone(),
        &mut StopInRound2(interrupt),
    )
    .unwrap();
    assert_eq!((outcome.end.reason, outcome.end.rounds), (EndReason::Interrupted, 1));
    assert!(samples(&records).iter().all(|s| s.round == 0));
    assert!(matches!(records.last(), Some(Record::End(_))));
}

#[test]
fn comparison_without_a_working_target_fails() {
    let directory = directory_on_disk();
    let plan = "name = \"none\"\n[[target]]\nname = \"x\"\nin_process = \"nothing\"\n\
                [[workload]]\nname = \"stream\"\n";
    let result = run(plan, directory.path(), &TestHost, Interrupt::default(), &mut Silent);
    assert!(matches!(&result, Err(Error::NoTargets { .. })), "{result:?}");
    assert!(result.unwrap_err().to_string().contains("no such file system: nothing"));
    // The failed run recorded no samples, so it does not block the next one.
    let plan = plan.replace("\"nothing\"", "\"mem:\"");
    run(&plan, directory.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
}

#[test]
fn samples_are_never_overwritten_and_a_partial_line_is_skipped() {
    let directory = directory_on_disk();
    let plan = "name = \"one\"\nrounds = 1\n\
                [[target]]\nname = \"m\"\nin_process = \"mem:\"\n\
                [[workload]]\nname = \"stream\"\nsize = 4096\nrequest = 4096\n";
    let go = || run(plan, directory.path(), &TestHost, Interrupt::default(), &mut Silent);
    let (_, records) = go().unwrap();
    let refused = go();
    assert!(matches!(refused, Err(Error::Report(fslab_report::Error::SamplesExist { .. }))));
    let path = fslab_compare::samples_path(directory.path());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 10]).unwrap();
    assert_eq!(sample::read(&path).unwrap(), records[..records.len() - 1]);
    let (first, rest) = text.split_once('\n').unwrap();
    std::fs::write(&path, format!("{first}\n{{\"record\":\"what\"}}\n{rest}")).unwrap();
    assert!(sample::read(&path).unwrap_err().to_string().contains("line 2"));
    std::fs::write(&path, first.replace("\"format\":2", "\"format\":99") + "\n").unwrap();
    assert!(matches!(
        sample::read(&path),
        Err(fslab_report::Error::NewerFormat { format: 99, .. })
    ));
    std::fs::write(&path, rest).unwrap();
    assert!(matches!(sample::read(&path), Err(fslab_report::Error::NoProvenance { .. })));
}
