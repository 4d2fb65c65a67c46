//! Compares the fields of all JSON output with the guide's page on JSON. The page is generated from
//! such output.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::{expect, is_updating, shown};
use crate::support::{fslab, require_mounting};
use fslab_vfs_testing::scratch;

/// A command, the introduction of its section, and the paths of objects whose keys are not fixed.
struct Shape {
    words: &'static [&'static str],
    about: &'static str,
    maps: &'static [&'static str],
}

const fn shape(
    words: &'static [&'static str],
    about: &'static str,
    maps: &'static [&'static str],
) -> Shape {
    Shape { words, about, maps }
}

const PRICES: &str = "currency = 'EUR'\n[[price]]\narchive = 'dir'\nput_per_1000 = 0\n\
    get_per_1000 = 0\nlist_per_1000 = 0\ndelete_per_1000 = 0\nstored_per_gib_month = 0.01\n\
    received_per_gib = 0\n";

const SHAPES: &[Shape] = &[
    shape(
        &["status", "--json", "mnt"],
        "One mount; without a mount point, a list `mounts` of such objects. `cautions` and `modes` \
         are lists of strings.",
        &[],
    ),
    shape(
        &["stats", "--json", "mnt"],
        "The counters of a mount's layers.",
        &["layers[].operations[].errors"],
    ),
    shape(
        &["doctor", "--json"],
        "One entry for each check. `state` is `yes`, `limited` or `no`.",
        &[],
    ),
    shape(
        &["list", "--json"],
        "All named items: layers, leaves, archives, workloads, plans and so on.",
        &[],
    ),
    shape(
        &["sca", "stat", "--json", "-v", "low"],
        "Totals by codec. For a directory, `files` is empty without `-v`.",
        &[],
    ),
    shape(&["sca", "check", "--json", "low"], "A line for each finding, then the totals.", &[]),
    shape(&["sca", "verify", "--json", "low"], "The same as `check`.", &[]),
    shape(
        &["sca", "recovery", "--json", "--dir", ".", "--size", "1MiB", "--rounds", "2"],
        "Times for recovering a stored file and for reading it.",
        &[],
    ),
    shape(
        &["ext2", "info", "--json", "--groups", "disk.ext2"],
        "Parameters, and each block group with `--groups`.",
        &[],
    ),
    shape(&["ext2", "ls", "--json", "disk.ext2"], "The entries of a directory.", &[]),
    shape(&["ext2", "stat", "--json", "disk.ext2", "/plain"], "A file and its extents.", &[]),
    shape(
        &["ext2", "check", "--json", "damaged.ext2"],
        "`code` is the stable name of a problem.",
        &[],
    ),
    shape(
        &["ext2", "repair", "-n", "--json", "damaged.ext2"],
        "The repairs, and the remaining problems.",
        &[],
    ),
    shape(&["ext2", "layout", "--json", "disk.ext2"], "Layout scores by size.", &[]),
    shape(&["ext2", "undelete", "--json", "disk.ext2"], "Deleted files.", &[]),
    shape(
        &["ext2", "capacity", "--json", "--levels", "1", "--block-size", "1024"],
        "The number of names that fit into a directory index.",
        &[],
    ),
    shape(&["age", "show", "--json", "days.parquet"], "A workload.", &["counts"]),
    shape(
        &["age", "simulate", "--json", "days.parquet"],
        "A row for each policy.",
        &["free.by_size", "pieces_by_log2_blocks"],
    ),
    shape(
        &["age", "replay", "--json", "days.parquet", "mem:"],
        "The result of a replay.",
        &["free.by_size", "pieces_by_log2_blocks"],
    ),
    shape(
        &["age", "score", "--json", "low"],
        "Scores of a tree.",
        &["free.by_size", "pieces_by_log2_blocks"],
    ),
    shape(&["age", "diff", "--json", "one.parquet", "two.parquet"], "Counts of differences.", &[]),
    shape(
        &["age", "verify", "--json", "one.parquet", "two.parquet"],
        "The compared statistics, each with its distance and limit.",
        &["pieces_by_log2_blocks"],
    ),
    shape(&["dataset", "create", "--json", "-o", "set", "one.parquet"], "A new data set.", &[]),
    shape(&["dataset", "check", "--json", "set"], "A data set without damage.", &[]),
    shape(&["dataset", "show", "--json", "set"], "The manifest and the columns.", &["facts"]),
    shape(
        &["tier", "--json", "archive", "photos"],
        "One object per line, as for all commands of `fslab tier`: events, then `end`.",
        &[],
    ),
    shape(&["tier", "--json", "state", "photos"], "The state of files.", &[]),
    shape(&["tier", "--json", "find", "photos"], "The state of the selected files.", &[]),
    shape(
        &["tier", "--json", "export", "-o", "files", "photos"],
        "A new data set, as one object.",
        &[],
    ),
    shape(
        &["tier", "--json", "du", "photos"],
        "Numbers of files, and total, resident and archived bytes.",
        &[],
    ),
    shape(&["tier", "--json", "du", "--by", "size", "photos"], "The same for each group.", &[]),
    shape(&["tier", "--json", "versions", "photos/one"], "Archived versions.", &[]),
    shape(&["tier", "--json", "archives", "photos"], "The archives.", &[]),
    shape(&["tier", "--json", "tree", "photos"], "The result of archiving the tree's names.", &[]),
    shape(&["tier", "--json", "scan", "photos"], "Figures of a scan.", &[]),
    shape(&["tier", "--json", "scrub", "photos"], "Figures of a scrub.", &[]),
    shape(&["tier", "--json", "pin", "photos/one"], "Pinned files.", &[]),
    shape(&["tier", "--json", "expire", "-n", "photos"], "Versions that would be deleted.", &[]),
    shape(
        &["tier", "--json", "release", "-n", "photos"],
        "Files that would be released, then the plan. `archive`, `recall`, `scrub` and `drain`\n\
         also end with a plan. `bound` is `at-most` or `at-least`: the requests and bytes are\n\
         upper or lower bounds. `estimated_seconds` is null if no transfer was measured yet.",
        &[],
    ),
    shape(
        &["tier", "--json", "release", "-n", "--prices", "prices.toml", "photos"],
        "The same with the cost, in the currency of the file. `unpriced` has the identities of\n\
         archives without a price.",
        &[],
    ),
    shape(
        &["probe", "--json", "--only", "block-size,inline-data", "."],
        "Attributes with their evidence. An `answer` is null or an object of `kind` (`bytes`,\n\
         `count`, `at-least`, `bytes-at-least`, `between`, `nanoseconds`, `seconds`, `word`) and\n\
         `value`.",
        &["attributes[].evidence"],
    ),
    shape(
        &["trace", "show", "--json", "--limit", "40", "trace"],
        "One operation per line, with the columns of the trace.",
        &[],
    ),
    shape(
        &["compare", "plan.toml", "--json", "--seed", "1", "--out", "report"],
        "The figures of a comparison.",
        &["metrics"],
    ),
    shape(&["report", "--json", "report/samples.jsonl"], "The same as `compare`.", &["metrics"]),
    shape(
        &["campaign", "status", "--json", "campaign"],
        "The progress. Rounds are numbered from 0; `state` is `missing`, `failed` or `disturbed`.",
        &[],
    ),
    shape(
        &["campaign", "report", "--json", "campaign"],
        "The same as `compare`, and `pooling`: the method that combines the ratios of several \
         machines.",
        &["metrics"],
    ),
    shape(
        &["sql", "--list", "--json"],
        "The named queries. For a query, `--json` prints one object per row, whose members are the \
         columns of the answer.",
        &[],
    ),
];

/// Commands whose fields depend on the machine. They may print fewer fields than the page lists.
const OF_THE_MACHINE: &[&[&str]] = &[
    &["status"],
    &["doctor"],
    &["probe"],
    &["age", "score"],
    &["age", "diff"],
    &["age", "verify"],
    &["compare"],
    &["report"],
    &["campaign"],
];

/// Suffixes of the paths of objects whose fields are not documented one by one.
const OPAQUE: [&str; 1] = [".evidence"];

/// Fields of a method of the prober, with their types if they are not null. A method has an answer,
/// or a reason why it does not apply. Which of the two a method has may depend on the machine's
/// load.
const EITHER: [(&str, &str); 2] = [(".answer", "object"), (".not_applicable", "string")];

const INTRODUCTION: &str = "\
# JSON

Commands that report results can print them as JSON (`--json`). Commands that work on many files
print one object per line; the others print one object. This page lists the fields of each command
and their types, as recorded by the project's tests. The type `list` means that the list was empty
in these tests. Fields may be added; if the meaning of a field changes, the field gets a new name.

`[]` stands for each entry of a list, and `NAME` for a variable key, such as the name of an error.

";

const PLAN: &str = r#"
name = "small"
rounds = 3
baseline = "memory"

[[target]]
name = "memory"
in_process = "mem:"

[[target]]
name = "null"
in_process = "null / mem:"

[[workload]]
name = "names"
files = 200
"#;

/// Creates the files, mounts and reports that the commands need.
fn prepare(at: &Path) {
    let works = |words: &[&str]| {
        let output = fslab(words).current_dir(at).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    for name in ["low", "mnt", "photos", "traced"] {
        fs::create_dir(at.join(name)).unwrap();
    }
    fs::write(at.join("plain"), vec![7; 9000]).unwrap();
    fs::write(at.join("photos/one"), vec![7; 200_000]).unwrap();
    works(&["ext2", "mkfs", "disk.ext2", "8MiB"]);
    works(&["ext2", "put", "disk.ext2", "plain", "/plain"]);
    works(&["ext2", "put", "disk.ext2", "plain", "/gone"]);
    for change in ["rm /gone", "ea_set /plain user.note text"] {
        debugfs(change, &at.join("disk.ext2"));
    }
    fs::copy(at.join("disk.ext2"), at.join("damaged.ext2")).unwrap();
    debugfs("set_inode_field /plain links_count 7", &at.join("damaged.ext2"));
    works(&[
        "age",
        "profile",
        "developer",
        "--volume",
        "16MiB",
        "--days",
        "3",
        "-o",
        "days.parquet",
    ]);
    works(&["mount", "-l", "zstd", "-l", "stats", "low", "mnt"]);
    // The content can't be compressed.
    let noise = |number: u32| (number.wrapping_mul(2_654_435_761) >> 13) as u8;
    fs::write(at.join("mnt/file"), (0..300_000).map(noise).collect::<Vec<_>>()).unwrap();
    fs::metadata(at.join("mnt/missing")).unwrap_err();
    works(&["mount", "-l", "trace:to=trace", "mem:", "traced"]);
    fs::write(at.join("traced/file"), b"traced").unwrap();
    works(&["umount", "traced"]);
    works(&["age", "snapshot", "photos", "one.parquet"]);
    fs::write(at.join("photos/two"), b"later").unwrap();
    works(&["age", "snapshot", "photos", "two.parquet"]);
    works(&["tier", "init", "-q", "--archive", "archive", "--home", "photos.tier", "photos"]);
    fs::write(at.join("plan.toml"), PLAN).unwrap();
    fs::write(at.join("prices.toml"), PRICES).unwrap();
    works(&["campaign", "new", "plan.toml", "campaign"]);
    // Run half of the blocks, so that `campaign status` also shows missing blocks.
    let share = ["--share", "1/2", "--work-dir", ".", "--lock", "host.lock"];
    works(&[&["campaign", "run", "campaign"][..], &share].concat());
}

fn debugfs(change: &str, image: &Path) {
    let output = Command::new("debugfs").args(["-w", "-R", change]).arg(image).output().unwrap();
    assert!(output.status.success(), "{change}: {output:?}");
}

/// Unmounts the directory of stored files, and adds two damaged stored files to it.
fn unmount_stored_files(at: &Path) {
    let umount = fslab(&["umount", "mnt"]).current_dir(at).output().unwrap();
    assert!(umount.status.success(), "{}", String::from_utf8_lossy(&umount.stderr));
    let mut stored = fs::read(at.join("low/file")).unwrap();
    let middle = stored.len() / 2;
    stored[middle] ^= 0xff;
    fs::write(at.join("low/changed"), &stored).unwrap();
    fs::write(at.join("low/cut"), &stored[..middle]).unwrap();
}

/// Collects the types of a value and of the values in it, by path.
fn collect(
    value: &Value,
    path: &str,
    maps: &[&str],
    found: &mut BTreeMap<String, BTreeSet<&'static str>>,
) {
    let mut add = |kind| {
        found.entry(path.to_owned()).or_default().insert(kind);
    };
    if let Some((_, kind)) = EITHER.into_iter().find(|(end, _)| path.ends_with(end)) {
        add("null");
        return add(kind);
    }
    match value {
        // The evidence is different for each file system.
        Value::Object(_) if OPAQUE.iter().any(|end| path.ends_with(end)) => add("object"),
        Value::Null => add("null"),
        Value::Bool(_) => add("boolean"),
        Value::Number(_) => add("number"),
        Value::String(_) => add("string"),
        Value::Array(items) if items.is_empty() => add("list"),
        Value::Array(items) => {
            items.iter().for_each(|item| collect(item, &format!("{path}[]"), maps, found));
        }
        Value::Object(fields) if fields.is_empty() => add("object"),
        Value::Object(fields) => {
            for (key, value) in fields {
                let is_map =
                    maps.iter().any(|map| path == *map || path.ends_with(&format!(".{map}")));
                let key = if is_map { "NAME" } else { key };
                let dot = if path.is_empty() { "" } else { "." };
                collect(value, &format!("{path}{dot}{key}"), maps, found);
            }
        }
    }
}

/// Formats paths with their types. If a list is empty in some objects and has entries in others,
/// its entries are described.
fn lines(mut found: BTreeMap<String, BTreeSet<&'static str>>) -> String {
    let paths: Vec<String> = found.keys().cloned().collect();
    let has_parts = |path: &str, mark: &str| {
        paths
            .iter()
            .any(|other| other.strip_prefix(path).is_some_and(|rest| rest.starts_with(mark)))
    };
    for (path, kinds) in &mut found {
        if has_parts(path, "[]") {
            kinds.remove("list");
        }
        if has_parts(path, ".") {
            kinds.remove("object");
        }
    }
    let line = |(path, kinds): (&String, &BTreeSet<&str>)| {
        let kinds: Vec<&str> = kinds.iter().copied().collect();
        format!("{path}: {}\n", kinds.join(" or "))
    };
    found.iter().filter(|(_, kinds)| !kinds.is_empty()).map(line).collect()
}

/// The section of a command on the page.
struct Section {
    heading: String,
    lines: String,
}

impl Section {
    fn text(&self, about: &str) -> String {
        let Self { heading, lines } = self;
        format!("## `{heading}`\n\n{about}\n\n```text\n{lines}```\n\n")
    }
}

fn is_of_the_machine(words: &[&str]) -> bool {
    OF_THE_MACHINE.iter().any(|first| words.starts_with(first))
}

/// Returns the lines for a command that the page already has.
fn documented(heading: &str) -> String {
    let page = include_str!("../../../../../docs/guide/src/reference/json.md");
    let section = page.split("## `").find(|section| section.starts_with(&format!("{heading}`")));
    let lines = section.and_then(|section| section.split("```text\n").nth(1)?.split("```").next());
    lines.unwrap_or_default().to_owned()
}

/// Returns whether a field is documented. Types are not compared, because some fields are null only
/// on some machines.
fn is_known(line: &str, known: &str) -> bool {
    let (path, _kinds) = line.split_once(": ").unwrap();
    known.lines().any(|line| line.starts_with(&format!("{path}: ")))
}

#[test]
fn shapes_of_json_are_as_documented() {
    require_mounting!();
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    prepare(scratch.path());
    let mut page = INTRODUCTION.to_owned();
    for Shape { words, about, maps } in SHAPES {
        if words[0] == "sca" && scratch.path().join("mnt/file").exists() {
            unmount_stored_files(scratch.path());
        }
        let output = fslab(words).current_dir(scratch.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut found = BTreeMap::new();
        let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        for value in values {
            let value = value.unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"));
            collect(&value, "", maps, &mut found);
        }
        assert!(!found.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        let section = Section { heading: shown(words), lines: lines(found) };
        page.push_str(&section.text(about));
        if !is_of_the_machine(words) || is_updating() {
            continue;
        }
        let known = documented(&section.heading);
        let unknown: Vec<_> =
            section.lines.lines().filter(|line| !is_known(line, &known)).collect();
        assert!(unknown.is_empty(), "{words:?}: not on the page: {unknown:#?}");
        // The page may list fields that this machine does not print, so keep the lines of the page.
        let end = page.len() - section.text(about).len();
        page.truncate(end);
        page.push_str(&Section { heading: section.heading, lines: known }.text(about));
    }
    let page = format!("{}\n", page.trim_end());
    expect("docs/guide/src/reference/json.md", &page);
}
