//! Tests that plans are parsed and expanded, and that errors in a plan state file, line, column and
//! key.

use fslab_compare::Plan;
use fslab_compare::plan::{Form, TargetKind};

const TARGET: &str = "[[target]]\nname = \"t\"\nin_process = \"mem:\"\n";
const WORKLOAD: &str = "[[workload]]\nname = \"stream\"\n";

#[track_caller]
fn refused(plan: &str, expected: &str) {
    let error = Plan::parse("p.toml", plan, Form::Full).expect_err("the plan is wrong").to_string();
    assert!(error.contains(expected), "{error:?} does not contain {expected:?}");
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

/// Margins can be set in the plan, in targets and workloads, and with a matrix.
#[test]
fn target_margins_override_workload_and_plan_margins() {
    let text = "name = \"x\"\nmargin = \"2 %\"\n\
        [[target]]\nname = \"t {m}\"\nin_process = \"mem:\"\nmargin = \"at most {m} % slower\"\n\
        matrix = { m = [10, 20] }\n[[target]]\nname = \"u\"\nin_process = \"mem:\"\n\
        [[workload]]\nname = \"stream\"\nlabel = \"{size}\"\nmargin = \"5 %\"\n\
        matrix = { size = [\"1 MiB\", \"2 MiB\"] }\n[[workload]]\nname = \"names\"\n";
    let margins = parsed(text, Form::Full).margins();
    let of = |workload, target| margins.of(workload, target).unwrap().to_string();
    assert_eq!(of("2 MiB", "t 20"), "at most 20 % slower");
    assert_eq!([of("2 MiB", "u"), of("names", "u")], ["5 %", "2 %"]);
    assert!(parsed(&format!("name = \"x\"\n{TARGET}{WORKLOAD}"), Form::Full).margins().is_empty());
    for (plan, expected) in [
        (format!("name = \"x\"\nmargin = 2\n{TARGET}{WORKLOAD}"), "p.toml:2:10: `margin`"),
        (
            format!("name = \"x\"\nmargin = \"2\"\n{TARGET}{WORKLOAD}"),
            "p.toml:2:10: `margin`: \"2\" is not a margin: write \"2 %\" or",
        ),
        (
            format!("name = \"x\"\n{TARGET}margin = \"0 %\"\n{WORKLOAD}"),
            "p.toml:5:10: `margin`: \"0 %\": a margin must be above 0 %",
        ),
        (
            format!("name = \"x\"\n{TARGET}{WORKLOAD}margin = \"2 % slower\"\n"),
            "p.toml:7:10: `margin`: \"2 % slower\" is not a margin",
        ),
    ] {
        refused(&plan, expected);
    }
}

#[test]
fn invalid_targets_are_refused() {
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
        ("directory = \"/\"\nmkfs = [\"-q\"]", "`mkfs` can't be used with `directory`"),
        ("in_process = \"mem:\"\nlayers = []", "`layers` can't be used with `in_process`"),
        ("filesystem = \"xfs\"\nprogram = \"/x\"", "`program` is only for targets"),
        ("filesystem = \"xfs\"\nover = \"xfs\"", "`over` can't be used with `filesystem`"),
        ("filesystem = \"xfs\"\nengine = \"policy=ffs\"", "`engine` works only with ext2"),
        ("in_process = \"mem:\"\nengine = \"policy=ffs\"", "`engine` can't be used with"),
        (
            "filesystem = \"ext2\"\nengine = \"policy=ffs\"\nlayers = [\"null\"]",
            "`layers` can't be used with `engine`",
        ),
        (
            "filesystem = \"ext2\"\nengine = \"policy=ffs\"\nfill = \"80 %\"",
            "`fill` can't be used with `engine`",
        ),
        ("mount_command = [\"x\", \"{lower}\", \"{mountpoint}\"]", "`mount_command` needs `over`"),
        (
            "over = \"ext4\"\nmount_command = [\"x\", \"{lower}\"]",
            "no argument contains {mountpoint}",
        ),
    ];
    for (keys, expected) in cases {
        refused(&target(keys), expected);
    }
}

#[test]
fn invalid_workloads_are_refused() {
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
        (
            "name = \"stream\"\ndata = \"noise\"",
            "must be one of text, binaries, compressed, all-a, zeros",
        ),
        ("name = \"names\"\nfiles = -1", "must be a whole number above 0"),
    ];
    for (keys, expected) in cases {
        refused(&workload(keys), expected);
    }
}

#[test]
fn two_programs_mount_the_first_target_that_fslab_serves() {
    let programs = || ["/old/fslab", "/new/fslab"].map(Into::into);
    let target = |name: &str, keys: &str| format!("[[target]]\nname = \"{name}\"\n{keys}\n");
    let plain = target("plain", "filesystem = \"ext4\"");
    let foreign = target(
        "foreign",
        "over = \"ext4\"\nmount_command = [\"bindfs\", \"{lower}\", \"{mountpoint}\"]",
    );
    let gzip = target("gzip", "filesystem = \"xfs\"\nlayers = [\"gzip\"]\nmargin = \"2 %\"");
    let text = format!("name = \"p\"\nbaseline = \"gzip\"\n{plain}{foreign}{gzip}{WORKLOAD}");
    let plan = parsed(&text, Form::Full).of_programs(programs()).unwrap();
    let found: Vec<_> = plan.targets.iter().map(|one| (&*one.name, one.program.clone())).collect();
    let [old, new]: [std::path::PathBuf; 2] = programs();
    assert_eq!(found, [("old", Some(old)), ("new", Some(new))]);
    assert_eq!(plan.baseline, "old");
    assert!(plan.targets.iter().all(|one| one.margin.is_some()), "it is the target gzip");
    let text = format!("name = \"p\"\n{plain}{foreign}{WORKLOAD}");
    let error = parsed(&text, Form::Full).of_programs(programs()).unwrap_err().to_string();
    assert!(error.contains("plan p: two fslab programs can't be compared"), "{error}");
}

/// The plans that are shipped with fslab are valid in both forms.
#[test]
fn shipped_plans_parse() {
    let directory = std::path::Path::new("../../plans");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            Plan::read(&path, Form::Full).unwrap();
            Plan::read(&path, Form::Quick).unwrap();
            count += 1;
        }
    }
    assert!(count >= 4, "{count} plans");
}

#[track_caller]
fn parsed(plan: &str, form: Form) -> Plan {
    Plan::parse("p.toml", plan, form).unwrap()
}

/// A matrix makes one target for each combination of its values. In all keys of a target, the
/// values replace `{KEY}`.
#[test]
fn a_matrix_of_targets_is_expanded() {
    let plan = format!(
        "name = \"x\"\n[[target]]\nname = \"{{fs}}\"\nfilesystem = \"{{fs}}\"\n\
         mkfs = [\"-b\", \"{{block}}\"]\n\
         matrix = {{ fs = [\"ext2\", \"ext4\"], block = [1024, 4096] }}\n{WORKLOAD}"
    );
    let plan = parsed(&plan, Form::Full);
    let names: Vec<_> = plan.targets.iter().map(|target| target.name.as_str()).collect();
    let expected = ["ext2 block=1024", "ext4 block=1024", "ext2 block=4096", "ext4 block=4096"];
    assert_eq!(names, expected);
    let TargetKind::Image { base, .. } = &plan.targets[3].kind else { panic!("no image") };
    assert_eq!((base.kind.name(), base.mkfs[1].as_str()), ("ext4", "4096"));
    assert_eq!(plan.baseline, "ext2 block=1024");
}

/// A matrix of a workload sets its parameters. The quick form has its own values and matrix.
#[test]
fn a_matrix_of_workloads_is_expanded_in_both_forms() {
    let text = format!(
        "name = \"x\"\nrounds = 10\nquick = {{ rounds = 2 }}\n{TARGET}\
         [[target]]\nname = \"only full\"\nin_process = \"mem:\"\nquick = false\n\
         [[workload]]\nname = \"file-append\"\nlabel = \"append {{append}}\"\n\
         matrix = {{ append = [10, 100], data = [\"text\", \"all-a\"] }}\n\
         quick = {{ largest = \"1 KiB\", matrix = {{ append = [10] }} }}\n\
         [[workload]]\nname = \"stream\"\nquick = false\n"
    );
    let labels = |plan: &Plan| -> Vec<String> {
        plan.workloads.iter().map(|workload| workload.label.clone()).collect()
    };
    let full = parsed(&text, Form::Full);
    let expected = [
        "append 10 data=text",
        "append 10 data=all-a",
        "append 100 data=text",
        "append 100 data=all-a",
        "stream",
    ];
    assert_eq!(labels(&full), expected);
    assert_eq!((full.rounds, full.targets.len()), (10, 2));
    let quick = parsed(&text, Form::Quick);
    assert_eq!(labels(&quick), ["append 10"]);
    assert_eq!((quick.rounds, quick.targets.len()), (2, 1));
}

#[test]
fn invalid_matrices_and_forms_are_refused() {
    let target = |keys: &str| format!("name = \"x\"\n[[target]]\nname = \"t\"\n{keys}\n{WORKLOAD}");
    let workload = |keys: &str| format!("name = \"x\"\n{TARGET}[[workload]]\n{keys}\n");
    let ext4 = |keys: &str| target(&format!("filesystem = \"ext4\"\n{keys}"));
    let stream = |keys: &str| workload(&format!("name = \"stream\"\n{keys}"));
    let cases = [
        (ext4("matrix = { block = [1] }"), "`matrix`: no other key of the target uses {block}"),
        (ext4("matrix = { block = [] }\nmkfs = [\"{block}\"]"), "`block` has no values"),
        (stream("matrix = { sise = [1] }"), "has no parameter `sise`"),
        (stream("matrix = { size = 1 }"), "`size` must be a list"),
        (stream("quick = { sise = 1 }"), "has no parameter `sise`"),
        (stream("quick = true"), "`quick`: must be a table"),
        (target("filesystem = \"squashfs\""), "squashfs is made from a directory"),
        (target("filesystem = \"overlay\""), "`overlay` needs `over`"),
        (ext4("fill = \"120 %\""), "`fill`: must be a share"),
        (ext4("memory = \"1 MiB\""), "`memory`: must be at least"),
        (target("filesystem = \"tmpfs\"\naged = \"x\""), "tmpfs has no image"),
        (target("in_process = \"mem:\"\nfill = \"1 %\""), "`fill` can't be used with"),
        (ext4("overlay_options = \"x\""), "`overlay_options` can't be used with"),
    ];
    for (plan, expected) in cases {
        refused(&plan, expected);
    }
}

/// Gates are checked against these phases before a run.
#[test]
fn phases_of_a_workload_follow_from_its_parameters() {
    let phases = |keys: &str| {
        let text = format!("name = \"x\"\n{TARGET}[[workload]]\n{keys}\n");
        parsed(&text, Form::Full).workloads[0].phases()
    };
    let scaled = phases("name = \"metadata\"\nthreads = 3");
    assert_eq!(scaled.len(), 3 * 5);
    assert_eq!((&*scaled[0], &*scaled[14]), ("create, 1 thread", "unlink, 3 threads"));
    let together = phases(
        "name = \"together\"\nworkloads = [{ name = \"metadata\", threads = 1 }, \
         { name = \"random-io\", label = \"beside\" }]",
    );
    assert_eq!(together.len(), 6);
    assert_eq!((&*together[0], &*together[5]), ("metadata: create, 1 thread", "beside: random"));
    assert_eq!(phases("name = \"sqlite\""), ["load", "transactions", "queries"]);
}
