//! Wrong plans: each error names file, line, column and key.

use fslab_measure::Plan;

const TARGET: &str = "[[target]]\nname = \"t\"\nin_process = \"mem:\"\n";
const WORKLOAD: &str = "[[workload]]\nname = \"stream\"\n";

#[track_caller]
fn refused(plan: &str, expected: &str) {
    let error = Plan::parse("p.toml", plan).expect_err("the plan is wrong").to_string();
    assert!(error.contains(expected), "{error:?} does not hold {expected:?}");
    assert_eq!(error.lines().count(), 1, "{error:?} is more than a line");
}

#[test]
fn errors_name_line_column_and_key() {
    let whole = |head: &str, target: &str, workload: &str| format!("{head}\n{target}{workload}");
    let cases = [
        (whole("name = 1", TARGET, WORKLOAD), "p.toml:1:8: `name`"),
        (whole("name = \"x\"\nround = 3", TARGET, WORKLOAD), "p.toml:2:1: unknown field `round`"),
        (whole("name = \"x\"\nrounds = 0", TARGET, WORKLOAD), "p.toml:2:10: `rounds`"),
        (whole("name = \"x\"\nrounds = \"3\"", TARGET, WORKLOAD), "p.toml:2:10: `rounds`"),
        (
            whole("name = \"x\"\nimage_size = \"1 MiB\"", TARGET, WORKLOAD),
            "p.toml:2:14: `image_size`: must be at least",
        ),
        (
            whole("name = \"x\"\nimage_size = \"big\"", TARGET, WORKLOAD),
            "p.toml:2:14: `image_size`",
        ),
        (
            whole("name = \"x\"\nbaseline = \"u\"", TARGET, WORKLOAD),
            "p.toml:2:12: `baseline`: no target is named `u`",
        ),
        (whole("name = \"x\"", "", WORKLOAD), "no [[target]]"),
        (whole("name = \"x\"", TARGET, ""), "no [[workload]]"),
        (
            whole("name = \"x\"", &TARGET.repeat(2), WORKLOAD),
            "p.toml:6:8: `name`: `t` is used twice",
        ),
        (whole("name = \"x\"", TARGET, &WORKLOAD.repeat(2)), "`stream` is used twice"),
        ("name = \"x\"\nfoo".to_owned(), "p.toml:2:4:"),
    ];
    for (plan, expected) in cases {
        refused(&plan, expected);
    }
}

#[test]
fn wrong_targets() {
    let target = |keys: &str| format!("name = \"x\"\n[[target]]\nname = \"t\"\n{keys}\n{WORKLOAD}");
    let cases = [
        ("", "exactly one of `filesystem`"),
        ("filesystem = \"ext4\"\ndirectory = \"/\"", "found filesystem and directory"),
        (
            "filesystem = \"ext5\"",
            "p.toml:4:14: `filesystem`: unknown file system `ext5`; \
             nearest: `ext2`, `ext3`, `ext4`",
        ),
        ("filesystem = \"ext4\"\nlayer = [\"null\"]", "p.toml:5:1: unknown field `layer`"),
        ("directory = \"/\"\nmkfs = [\"-q\"]", "`mkfs` has no meaning beside `directory`"),
        ("in_process = \"mem:\"\nlayers = []", "`layers` has no meaning beside `in_process`"),
        ("filesystem = \"xfs\"\nover = \"xfs\"", "`over` has no meaning beside `filesystem`"),
        ("mount_command = [\"x\", \"{lower}\", \"{mountpoint}\"]", "`mount_command` needs `over`"),
        ("over = \"ext4\"\nmount_command = [\"x\", \"{lower}\"]", "no argument holds {mountpoint}"),
    ];
    for (keys, expected) in cases {
        refused(&target(keys), expected);
    }
}

#[test]
fn wrong_workloads() {
    let workload = |keys: &str| format!("name = \"x\"\n{TARGET}[[workload]]\n{keys}\n");
    let cases = [
        (
            "name = \"file-cpoy\"",
            "p.toml:6:8: `name`: unknown workload `file-cpoy`; nearest: `file-copy`",
        ),
        ("label = \"a\"", "has no `name`"),
        ("name = 3", "p.toml:6:8: `name`: must be a string"),
        (
            "name = \"stream\"\nsise = 1",
            "p.toml:7:1: workload `stream` has no parameter `sise`; nearest: `size`",
        ),
        ("name = \"stream\"\nsize = \"wide\"", "p.toml:7:8: `size`"),
        ("name = \"stream\"\nsize = 0", "p.toml:7:8: `size`: must be above 0"),
        ("name = \"stream\"\ndata = \"noise\"", "must be one of text, random, zeros"),
        ("name = \"create-delete\"\nfiles = -1", "must be a whole number above 0"),
    ];
    for (keys, expected) in cases {
        refused(&workload(keys), expected);
    }
}

/// The plans that come with fslab are right.
#[test]
fn shipped_plans_parse() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            Plan::read(&path).unwrap();
            count += 1;
        }
    }
    assert!(count >= 4, "{count} plans");
}
