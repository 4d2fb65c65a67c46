//! Tests that invalid input prints one line with the error, has the documented exit code, and
//! mounts nothing.

use std::path::Path;

use crate::support::{self, Place, is_mounted, require_mounting, run};

const USAGE: i32 = 2;
const BAD_INPUT: i32 = 3;

#[track_caller]
fn refused(arguments: &[&str], code: i32, part: &str) {
    let (found, message) = run(arguments);
    assert_eq!(found, code, "{arguments:?}: {message}");
    assert!(message.contains(part), "{arguments:?}: {message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    assert!(message.starts_with("fslab: "), "{message}");
}

/// Unusable input has another exit code than wrong usage, whether the argument parser or later code
/// detects the error.
#[test]
fn invalid_input_and_wrong_usage_have_distinct_exit_codes() {
    let place = Place::new();
    let (lower, point) = (place.lower.to_str().unwrap(), place.point.to_str().unwrap());
    let image = place.lower.join("image");
    assert_eq!(run(&["ext2", "mkfs", image.to_str().unwrap(), "1MiB"]).0, 0);
    let mistyped = format!("ext2:{}?polcy=x", image.display());
    for (arguments, part) in [
        (["mount", "-l", "zstd:level=99", lower, point].as_slice(), "level=99"),
        (&["mount", "-l", "zstd:chunk=5000", lower, point], "chunk"),
        (&["mount", "ext2:/no/such", point], "the image /no/such does not exist"),
        (&["mount", mistyped.as_str(), point], "'polcy=x' is not an option"),
        (&["ext2", "info", "/no/such"], "the image /no/such does not exist"),
        (&["umount", "/no/such"], "/no/such does not exist"),
        (&["stats", "/no/such"], "/no/such does not exist"),
        (&["age", "simulate", "--profile", "smith97", "--days", "20x"], "it is not a whole number"),
        (&["reproduce", "hitree"], "'hitree'"),
    ] {
        refused(arguments, BAD_INPUT, part);
    }
    for (arguments, part) in [
        (["mount", "--no-such", lower, point].as_slice(), "'--no-such'"),
        (&["mount", "-l"], "a value is required"),
        (&["mount", lower, point, "third"], "'third'"),
        (&["mont"], "'mont'"),
    ] {
        refused(arguments, USAGE, part);
    }
    let (code, told) = run(&["ext2"]);
    assert!(
        code == USAGE && told.contains("Usage:"),
        "the help is printed without a subcommand: \
                                                       {told}"
    );
    assert!(!is_mounted(&place.point));
}

#[test]
fn unknown_layers_and_options_are_named_in_the_error() {
    let place = Place::new();
    let (lower, point) = (place.lower.to_str().unwrap(), place.point.to_str().unwrap());
    refused(&["mount", "-l", "nul", lower, point], BAD_INPUT, "did you mean 'null'?");
    refused(
        &["mount", "-o", "layer=nul", lower, point],
        BAD_INPUT,
        "unknown layer 'nul'; did you mean 'null'?",
    );
    refused(&["mount", "-o", "fast", lower, point], BAD_INPUT, "unknown mount option 'fast'");
    refused(&["mount", lower], USAGE, "MOUNT_POINT");
    assert!(!is_mounted(&place.point));
}

#[test]
fn closed_output_is_ignored_and_full_output_is_reported() {
    for arguments in [&["age", "profile", "--list"][..], &["completions", "bash"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = support::fslab(arguments).stdout(writer).output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && told.is_empty(), "{arguments:?}: {told}");
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let done = support::fslab(arguments).stdout(full).output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{arguments:?}");
        let line = "fslab: can't write to standard output: No space left on device\n";
        assert_eq!(told, line, "{arguments:?}");
    }
}

#[test]
fn unsuitable_paths_are_refused_with_the_reason() {
    let place = Place::new();
    let (lower, point) = (place.lower.to_str().unwrap(), place.point.to_str().unwrap());
    let inner = place.lower.join("inner");
    std::fs::create_dir(&inner).unwrap();
    let inner = inner.to_str().unwrap();
    refused(&["mount", lower, inner], BAD_INPUT, "lies inside the lower directory");
    refused(&["mount", inner, lower], BAD_INPUT, "lies inside the mount point");
    refused(&["mount", point, lower], BAD_INPUT, "is not empty");
    refused(&["mount", "/no/such", point], BAD_INPUT, "/no/such does not exist");
    refused(&["umount", point], BAD_INPUT, "is not a mount of fslab");
    assert!(!is_mounted(&place.point) && !is_mounted(&place.lower));
}

#[test]
fn error_in_a_layers_file_names_file_and_line() {
    let place = Place::new();
    let file = place.lower.join("layers.toml");
    std::fs::write(&file, "[[layer]]\nname = \"null\"\n[[layr]]\n").unwrap();
    let (code, message) = place.try_mount(&["--layers-file", file.to_str().unwrap()]);
    assert_eq!(code, BAD_INPUT);
    assert!(message.contains("layers.toml, line 3: unknown field `layr`"), "{message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    let (code, message) = place.try_mount(&["--layers-file", "/no/such.toml"]);
    assert_eq!(code, BAD_INPUT);
    assert_eq!(message, "fslab: /no/such.toml: No such file or directory\n");
}

#[test]
fn a_second_mount_on_the_same_place_is_refused() {
    require_mounting!();
    let place = Place::mounted(&[]);
    let (code, message) = place.try_mount(&[]);
    assert_eq!(code, BAD_INPUT);
    assert!(message.contains("fuse.fslab mounted on it already"), "{message}");
    place.umount();
}

#[test]
fn umount_refuses_a_mount_in_use() {
    require_mounting!();
    let place = Place::mounted(&[]);
    let user = std::fs::File::create(place.point.join("file")).unwrap();
    let (code, message) = run(&["umount", place.point.to_str().unwrap()]);
    assert_eq!(code, BAD_INPUT);
    assert!(message.contains("is in use"), "{message}");
    drop(user);
    place.umount();
}

#[test]
fn invalid_log_filter_prints_a_warning() {
    require_mounting!();
    let place = Place::new();
    let output = crate::support::fslab(&["mount"])
        .args([&place.lower, &place.point])
        .env("FSLAB_LOG", "fslab=nonsense")
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && message.contains("FSLAB_LOG=fslab=nonsense"), "{message}");
    assert!(!message.contains('\x1b'), "colours without a terminal: {message}");
    place.umount();
}

#[test]
fn a_dry_run_mounts_nothing() {
    let place = Place::new();
    assert_eq!(place.try_mount(&["--dry-run"]), (0, String::new()));
    let output = place.mount_command(&["--dry-run"]).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.ends_with("; nothing was mounted\n"), "{told}");
    assert!(!is_mounted(&place.point));
}

#[test]
fn lists_completions_and_man_pages_come_from_the_registries() {
    let list = crate::support::fslab(&["list", "--json"]).output().unwrap();
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    assert_eq!(list["layers"][0]["name"], "null");
    assert_eq!(list["leaves"][1]["name"], "mem:");
    assert_eq!(list["archive_kinds"][0]["name"], "dir");
    assert!(list["workloads"].as_array().unwrap().iter().any(|each| each["name"] == "file-copy"));
    let completions = crate::support::fslab(&["completions", "bash"]).output().unwrap();
    assert!(String::from_utf8(completions.stdout).unwrap().contains("FSLAB_COMPLETE"));
    let mut candidates = crate::support::fslab(&["--", "fslab", "um"]);
    candidates.env("FSLAB_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "1");
    assert_eq!(String::from_utf8(candidates.output().unwrap().stdout).unwrap().trim(), "umount");
    let place = Place::new();
    assert_eq!(run(&["man", place.lower.to_str().unwrap()]).0, 0);
    let page = std::fs::read_to_string(Path::new(&place.lower).join("fslab-mount.1")).unwrap();
    assert!(page.contains("[\\fB\\-o\\fR|\\fB\\-\\-options\\fR \\fIOPTIONS\\fR]"), "{page}");
    let (_, notes) = page.split_once(".SH NOTES\n.nf\nMount options").unwrap();
    assert!(notes.contains("\n  ro, rw ") && notes.contains("\n.fi\n.SH EXAMPLES"), "{page}");
    for section in ["EXIT STATUS", "ENVIRONMENT", "FILES"] {
        assert!(page.contains(&format!("\n.SH \"{section}\"\n.TP\n")), "{section}: {page}");
    }
    let list = crate::support::fslab(&["list", "gzip"]).env("COLUMNS", "500").output().unwrap();
    assert!(String::from_utf8(list.stdout).unwrap().contains("(idle, close, off)"));
    let list = crate::support::fslab(&["list"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    for name in ["zstd", "mem:", "file-copy", "dmfs", "smith97", "block-size"] {
        assert!(list.contains(name), "{name}: {list}");
    }
    refused(&["list", "zsdt"], BAD_INPUT, "did you mean zstd");
}
