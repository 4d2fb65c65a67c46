//! Failures: each gives one clear error, counts no block twice and leaves no partial file.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use fslab_campaign::{Campaign, Error, State, Summary};
use fslab_report::sample::{self, Record};
use fslab_report::{Pooling, Provenance, Report};
use fslab_sys::mounts::Mount;
use fslab_vfs_testing::skip::skip;

use crate::support::{
    CELLS, PLAN, Silent, build, counted, create, lock, run, serial, share, summary,
};

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn one_line(error: &Error) -> String {
    let line = error.to_string();
    assert!(!line.contains('\n') && line.len() > 20, "{line}");
    line
}

/// Returns [`PLAN`] with a workload that reads its data from `input`.
fn plan_reading(input: &Path) -> String {
    PLAN.replace(
        "label = \"again\"",
        &format!("label = \"again\"\ndata_from = \"{}\"", input.display()),
    )
}

#[test]
fn a_changed_input_stops_a_share_before_anything_is_measured() {
    let scratch = tempfile::tempdir().unwrap();
    let input = scratch.path().join("input");
    fs::write(&input, vec![7; 1 << 17]).unwrap();
    let campaign = create(&scratch.path().join("run"), &plan_reading(&input)).unwrap();
    let frozen = &campaign.frozen().inputs;
    assert_eq!((frozen.len(), frozen[0].bytes), (1, 1 << 17));
    fs::write(&input, vec![8; 1 << 17]).unwrap();
    let error = run(&campaign, "1/2", scratch.path()).unwrap_err();
    let line = one_line(&error);
    assert!(line.contains(input.to_str().unwrap()) && line.contains("has changed"), "{line}");
    fs::remove_file(&input).unwrap();
    let error = run(&campaign, "1/2", scratch.path()).unwrap_err();
    assert!(matches!(error, Error::NoInput { .. }), "{error}");
    assert_eq!(names(&campaign.directory().join("attempts")), Vec::<String>::new());
    // With the original contents the share runs.
    fs::write(&input, vec![7; 1 << 17]).unwrap();
    run(&campaign, "1/1", scratch.path()).unwrap().expect("samples");
    assert!(summary(&campaign).is_complete);
}

#[test]
fn plan_with_a_missing_input_is_not_frozen() {
    let scratch = tempfile::tempdir().unwrap();
    let missing = scratch.path().join("missing");
    let error = create(&scratch.path().join("run"), &plan_reading(&missing)).unwrap_err();
    assert!(one_line(&error).contains("missing"), "{error}");
    assert_eq!(names(scratch.path()), Vec::<String>::new());
}

#[test]
fn another_plan_or_a_damaged_record_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("run");
    create(&directory, PLAN).unwrap();
    let refused = |file: &str, from: &str, to: &str| {
        let path = directory.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} lacks {from}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = Campaign::open(&directory).unwrap_err();
        one_line(&error);
        fs::write(&path, text).unwrap();
        Campaign::open(&directory).unwrap();
        error
    };
    assert!(matches!(refused("plan.toml", "64 KiB", "65 KiB"), Error::Changed { .. }));
    assert!(matches!(refused("campaign.json", "{", "["), Error::Damaged { .. }));
    let newer = refused("campaign.json", "\"format\": 1", "\"format\": 2");
    assert!(matches!(newer, Error::NewerFormat { format: 2, .. }), "{newer}");
    let cells = refused("campaign.json", "\"rounds\": 4", "\"rounds\": 5");
    assert!(matches!(cells, Error::Inconsistent { .. }), "{cells}");
}

#[test]
fn another_build_is_refused_unless_it_is_allowed_and_then_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let campaign = create(&scratch.path().join("run"), PLAN).unwrap();
    let mut other = build();
    other.blake3 = "cd".repeat(32);
    let lock = lock(scratch.path());
    let mut refused = share(&campaign, "1/1", scratch.path(), &lock);
    refused.program = other.clone();
    let error = refused.run(&mut Silent).unwrap_err();
    assert!(one_line(&error).contains("--other-build"), "{error}");
    let mut allowed = share(&campaign, "1/1", scratch.path(), &lock);
    (allowed.program, allowed.allow_other_build) = (other, true);
    allowed.run(&mut Silent).unwrap();
    let report = report(&campaign);
    assert!(has_note(&report, "not run by the build"), "{:?}", report.notes);
}

fn report(campaign: &Campaign) -> Report {
    let records = State::of(campaign).unwrap().records().unwrap();
    Report::pooled(&records, &[], None, Pooling::Clusters).unwrap()
}

fn has_note(report: &Report, text: &str) -> bool {
    report.notes.iter().any(|note| note.text.contains(text))
}

/// Changes the provenance of a samples file, as if another host had written it.
fn rewrite(samples: &Path, change: impl Fn(&mut Provenance)) {
    rewrite_records(samples, |record| {
        if let Record::Provenance(found) = record {
            change(found);
        }
    });
}

fn rewrite_records(samples: &Path, change: impl Fn(&mut Record)) {
    let mut records = sample::read(samples).unwrap();
    records.iter_mut().for_each(change);
    let lines = records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n");
    fs::write(samples, lines.collect::<String>()).unwrap();
}

#[test]
fn a_host_with_another_kernel_is_named_in_the_pooled_report() {
    let scratch = tempfile::tempdir().unwrap();
    let campaign = create(&scratch.path().join("run"), PLAN).unwrap();
    for (number, kernel) in [(1, "Linux 6.1.0"), (2, "Linux 6.18.0"), (3, "Linux 6.1.0")] {
        let samples = run(&campaign, &format!("{number}/3"), scratch.path()).unwrap().unwrap();
        rewrite(&samples, |found| {
            found.machine = format!("m{number}");
            found.boot = Some(format!("boot {number}"));
            kernel.clone_into(&mut found.kernel);
        });
    }
    let report = report(&campaign);
    assert_eq!(report.machines, ["m1", "m2", "m3"]);
    let expected = "the kernel differs: Linux 6.1.0 on m1, m3; Linux 6.18.0 on m2";
    assert!(has_note(&report, expected), "{:?}", report.notes);
    assert!(!has_note(&report, "one kernel"), "{:?}", report.notes);
    let text = fslab_report::terminal(&report);
    assert!(text.contains("  on m2") && text.contains("bootstrap"), "{text}");
    let hosts = summary(&campaign).hosts;
    let cells: Vec<_> = hosts.iter().map(|host| (&*host.host, host.cells)).collect();
    assert_eq!(cells.iter().map(|(_, cells)| cells).sum::<usize>(), CELLS, "{cells:?}");
    assert_eq!(hosts[1].kernel, "Linux 6.18.0");
}

#[test]
fn report_notes_two_nodes_that_share_a_kernel() {
    let scratch = tempfile::tempdir().unwrap();
    let campaign = create(&scratch.path().join("run"), PLAN).unwrap();
    for number in 1..=2 {
        let samples = run(&campaign, &format!("{number}/2"), scratch.path()).unwrap().unwrap();
        rewrite(&samples, |found| found.machine = format!("n{number}"));
    }
    let report = report(&campaign);
    assert!(has_note(&report, "2 nodes, one kernel"), "{:?}", report.notes);
}

#[test]
fn samples_of_another_campaign_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let campaign = create(&scratch.path().join("run"), PLAN).unwrap();
    let samples = run(&campaign, "1/1", scratch.path()).unwrap().unwrap();
    let text = fs::read_to_string(&samples).unwrap();
    for what in ["plan", "seed", "list of cells"] {
        match what {
            "plan" => rewrite(&samples, |found| found.plan.push('#')),
            "seed" => rewrite(&samples, |found| found.seed += 1),
            _ => rewrite_records(&samples, |record| {
                if let Record::Sample(sample) = record {
                    sample.seed ^= 1;
                }
            }),
        }
        let error = State::of(&campaign).unwrap_err();
        assert!(one_line(&error).ends_with(&format!("their {what} differs")), "{what}: {error}");
        fs::write(&samples, &text).unwrap();
    }
    assert!(summary(&campaign).is_complete);
}

/// After a power failure, the last writes may be missing or replaced by zeros. The complete blocks
/// before them still count.
#[test]
fn damaged_end_of_an_unfinished_attempt_loses_only_its_blocks() {
    let scratch = tempfile::tempdir().unwrap();
    let campaign = create(&scratch.path().join("run"), PLAN).unwrap();
    let samples = run(&campaign, "1/1", scratch.path()).unwrap().unwrap();
    let text = fs::read_to_string(&samples).unwrap();
    let half = text.match_indices("\"record\":\"block\"").nth(3).unwrap().0;
    let end = half + text[half..].find('\n').unwrap() + 1;
    let mut damaged = text.as_bytes()[..end].to_vec();
    damaged.extend([0; 700]);
    damaged.extend(b"\n{\"record\":");
    // The file of an attempt that has ended must be complete.
    fs::write(&samples, &damaged).unwrap();
    assert!(matches!(State::of(&campaign).unwrap_err(), Error::Samples(_)));
    fs::rename(&samples, samples.with_added_extension("part")).unwrap();
    assert_eq!(summary(&campaign).missing, CELLS / 2);
    run(&campaign, "1/1", scratch.path()).unwrap().expect("samples");
    assert_eq!(counted(&campaign), serial(PLAN, scratch.path()));
}

#[test]
fn file_in_a_stack_is_refused_because_it_is_not_frozen() {
    let scratch = tempfile::tempdir().unwrap();
    let with_stack =
        |stack: &str| format!("{PLAN}[[target]]\nname = \"engine\"\nin_process = \"{stack}\"\n");
    for stack in ["ext2:/data/aged.img", "null / ext2:aged.img?index=htree", "null / /data"] {
        let error = create(&scratch.path().join("run"), &with_stack(stack)).unwrap_err();
        let line = one_line(&error);
        assert!(line.contains("`engine`") && line.contains("`aged`"), "{stack}: {line}");
        assert_eq!(names(scratch.path()), Vec::<String>::new());
    }
    for (number, stack) in ["null / mem:", "ext2:memory?index=htree"].into_iter().enumerate() {
        create(&scratch.path().join(number.to_string()), &with_stack(stack)).unwrap();
    }
}

/// An attempt may end while the directory is listed. Then the listing contains both names of its
/// file, or only the old name.
#[test]
fn attempt_listed_under_two_names_counts_once() {
    let scratch = tempfile::tempdir().unwrap();
    let campaign = create(&scratch.path().join("run"), PLAN).unwrap();
    let samples = run(&campaign, "1/1", scratch.path()).unwrap().expect("samples");
    fs::copy(&samples, samples.with_added_extension("part")).unwrap();
    let found = summary(&campaign);
    assert!(found.is_complete, "{found:?}");
    assert_eq!(State::of(&campaign).unwrap().attempts.len(), 1);
}

#[test]
fn devices_are_taken_only_from_the_list_of_the_host() {
    let scratch = tempfile::tempdir().unwrap();
    let with_device = |device: &str| {
        format!("{PLAN}[[target]]\nname = \"raw\"\nfilesystem = \"ext4\"\ndevice = \"{device}\"\n")
    };
    let by_path = create(&scratch.path().join("run"), &with_device("/dev/disk/by-id/x"));
    assert!(matches!(by_path, Err(Error::DeviceByPath { .. })), "{by_path:?}");
    let campaign = create(&scratch.path().join("run"), &with_device("scratch")).unwrap();
    let error = run(&campaign, "1/1", scratch.path()).unwrap_err();
    let line = one_line(&error);
    assert!(line.contains("no-erasable") && line.contains("`scratch`"), "{line}");
    assert_eq!(names(&campaign.directory().join("attempts")), Vec::<String>::new());
    // The safety checks of every comparison also apply to a listed device. This device does not
    // exist, so its target fails and the others are measured.
    fs::write(scratch.path().join("no-erasable"), "scratch /dev/disk/by-id/fslab-none\n").unwrap();
    run(&campaign, "1/1", scratch.path()).unwrap().expect("samples");
    let found = summary(&campaign);
    assert_eq!((found.failed, found.done + found.disturbed), (8, CELLS), "{found:?}");
    // Other cells may be open because other programs disturbed them.
    let mut reasons = found.open.iter().filter_map(|cell| cell.reason.as_deref());
    assert!(reasons.any(|one| one.contains("/dev/disk/by-id/fslab-none")), "{:?}", found.open);
}

/// Fills a file system, leaving `but` bytes free.
fn fill(directory: &Path, but: usize) -> PathBuf {
    let path = directory.join("filler");
    let mut file = File::create(&path).unwrap();
    while file.write(&[1; 4096]).is_ok_and(|count| count > 0) {}
    let length = file.metadata().unwrap().len();
    file.set_len(length.saturating_sub(but as u64)).unwrap();
    path
}

#[test]
fn full_disk_loses_only_unwritten_blocks() {
    if !rustix::process::geteuid().is_root() {
        skip("full_disk_loses_only_unwritten_blocks", "not root");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let disk = scratch.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Mount::new(Path::new("tmpfs"), &disk, "tmpfs", "size=1m").unwrap();
    let filler = fill(&disk, 0);
    let error = create(&disk.join("run"), PLAN).unwrap_err();
    assert!(one_line(&error).contains("No space left"), "{error}");
    assert_eq!(names(&disk), ["filler"], "half a campaign is left");
    fs::remove_file(&filler).unwrap();
    let campaign = create(&disk.join("run"), PLAN).unwrap();
    let filler = fill(&disk, 32 << 10);
    let error = run(&campaign, "1/1", scratch.path()).unwrap_err();
    assert!(one_line(&error).contains("No space left"), "{error}");
    let Summary { done, disturbed, missing, .. } = summary(&campaign);
    assert!(done + disturbed < CELLS && missing > 0, "the disk was not full");
    fs::remove_file(&filler).unwrap();
    run(&campaign, "1/1", scratch.path()).unwrap().expect("samples");
    assert_eq!(counted(&campaign), serial(PLAN, scratch.path()));
    mounted.unmount().unwrap();
}
