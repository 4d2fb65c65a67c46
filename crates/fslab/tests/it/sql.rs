//! Tests `fslab sql` with a shell script in place of the SQL engine, which has its own tests.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{copy_program, run};

/// A copy of `fslab` in a separate directory, and two data sets of snapshots.
struct Installed {
    scratch: TempDir,
}

impl Installed {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir(scratch.path().join("bin")).unwrap();
        let installed = Self { scratch };
        copy_program(env!("CARGO_BIN_EXE_fslab").as_ref(), &installed.path("bin/fslab"));
        let path = |name: &str| installed.path(name).to_str().unwrap().to_owned();
        let made = run(&["age", "snapshot", "--synthetic", "20", &path("1"), &path("2")]);
        assert_eq!(made.0, 0, "{}", made.1);
        for (snapshot, name) in [("1", "monday"), ("2", "tuesday")] {
            let made = run(&["dataset", "create", &path(snapshot), "-o", &path(name)]);
            assert_eq!(made.0, 0, "{}", made.1);
        }
        installed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Writes a shell script that acts as the engine.
    fn engine(&self, path: &str, script: &str) {
        let path = self.path(path);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs `fslab sql` in the directory with the data sets; returns its exit code, standard output
    /// and standard error.
    fn sql(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(self.path("bin/fslab"));
        command.arg("sql").args(arguments).current_dir(self.scratch.path());
        command.env("PATH", format!("{}:/usr/bin:/bin", self.scratch.path().display()));
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

#[test]
fn query_reaches_the_engine_and_its_answer_is_printed() {
    let installed = Installed::new();
    installed.engine("bin/fslab-sql", "cat > request; echo answer");
    let (code, output, message) = installed.sql(&[
        "SELECT 1",
        "monday",
        "after=tuesday",
        "--memory",
        "2GiB",
        "-t3",
        "--temporary",
        "monday",
        "--csv",
    ]);
    assert_eq!((code, output.as_str(), message.as_str()), (Some(0), "answer\n", ""));
    let request = fs::read(installed.path("request")).unwrap();
    let request: Value = serde_json::from_slice(&request).unwrap();
    assert_eq!(request["sql"], "SELECT 1");
    assert_eq!(request["memory_bytes"], 2_u64 << 30);
    assert_eq!(request["threads"], 3);
    assert_eq!(request["output"], "csv");
    assert_eq!(request["tables"][0]["name"], "snapshot");
    assert_eq!(request["tables"][1]["name"], "after");
    let directory = installed.path("tuesday");
    assert_eq!(request["tables"][1]["directory"], directory.to_str().unwrap());
}

#[test]
fn error_of_the_engine_has_its_exit_code() {
    let installed = Installed::new();
    installed.engine("bin/fslab-sql", "cat > /dev/null; echo 'part: it is damaged' >&2; exit 3");
    let answer = installed.sql(&["SELECT 1", "monday"]);
    assert_eq!(answer, (Some(3), String::new(), "fslab: part: it is damaged\n".into()));
    installed.engine("bin/fslab-sql", "kill -ABRT $$");
    let (code, _, message) = installed.sql(&["SELECT 1", "monday"]);
    assert_eq!(code, Some(1));
    assert!(message.contains("ended by signal 6"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn engine_is_not_searched_in_the_path_or_the_current_directory() {
    if PathBuf::from("/usr/lib/fslab/fslab-sql").exists() {
        println!("skipped: the SQL engine is installed on this machine");
        return;
    }
    let installed = Installed::new();
    installed.engine("fslab-sql", "echo wrong");
    let (code, output, message) = installed.sql(&["SELECT 1", "monday"]);
    assert_eq!((code, output.as_str()), (Some(4), ""));
    assert!(message.contains("build it with `cargo build --release`"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn named_queries_check_their_tables() {
    let installed = Installed::new();
    installed.engine("bin/fslab-sql", "cat > request");
    let good = installed.sql(&["--named", "diff", "before=monday", "after=tuesday"]);
    assert_eq!(good, (Some(0), String::new(), String::new()));
    let request = fs::read_to_string(installed.path("request")).unwrap();
    assert!(request.contains("FULL JOIN after"), "{request}");
    for (arguments, code, part) in [
        (["--named", "diff", "before=monday"].as_slice(), 3, "add after=DIR"),
        (&["--named", "dif", "monday"], 3, "--list"),
        (&["--show", "dif"], 3, "--list"),
        (&["SELECT 1"], 3, "no data set is given"),
        (&["SELECT 1", "monday", "tuesday"], 3, "two tables are named snapshot"),
        (&["SELECT 1", "bin"], 3, "not a data set"),
        (&["SELECT 1", "monday", "--memory", "1MiB"], 3, "at least 64 MiB"),
        (&["SELECT 1", "monday", "--temporary", "missing"], 3, "--temporary"),
        (&["SELECT 1", "monday", "--json", "--csv"], 2, "cannot be used with"),
        (&[], 2, "required"),
    ] {
        let (found, output, message) = installed.sql(arguments);
        assert_eq!((found, output.as_str()), (Some(code), ""), "{arguments:?}: {message}");
        assert!(message.contains(part), "{arguments:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn data_sets_with_columns_of_another_kind_are_refused() {
    let installed = Installed::new();
    installed.engine("bin/fslab-sql", "cat > request");
    let manifest = installed.path("monday/manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    for (kind, part) in [("tier", "it has no column 'path_bytes'"), ("other", "'other' is unknown")]
    {
        let changed = text.replace("\"snapshot\"", &format!("\"{kind}\""));
        assert_ne!(changed, text);
        fs::write(&manifest, changed).unwrap();
        let (code, output, message) = installed.sql(&["SELECT 1", "monday"]);
        assert_eq!((code, output.as_str()), (Some(3), ""), "{message}");
        assert!(message.contains(part), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    assert!(!installed.path("request").exists());
}

#[test]
fn named_queries_are_listed_and_shown_without_the_engine() {
    assert_eq!(run(&["sql", "--list"]).0, 0);
    let installed = Installed::new();
    let (code, list, _) = installed.sql(&["--list", "--json"]);
    assert_eq!(code, Some(0));
    let list: Value = serde_json::from_str(&list).unwrap();
    let queries = list.as_array().unwrap();
    assert_eq!(queries.len(), 10);
    for query in queries {
        let (code, text, _) = installed.sql(&["--show", query["name"].as_str().unwrap()]);
        assert_eq!(code, Some(0));
        assert!(text.starts_with("-- ") && text.contains("SELECT"), "{text}");
    }
}
