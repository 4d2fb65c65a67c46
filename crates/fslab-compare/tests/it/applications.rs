//! Tests of workloads that run applications: results, messages about missing programs, and
//! leftovers.

use std::path::Path;
use std::process::{Command, Stdio};

use fslab_compare::Plan;
use fslab_compare::plan::Form;
use fslab_report::sample::{NoteKind, Record, Sample};
use fslab_sys::signals::Interrupt;

use crate::support::{Silent, TestHost, directory_on_disk, has_program, run, samples};

/// For each workload: its name, the program that it needs, parameters of a small version, and its
/// phases.
const APPLICATIONS: &[(&str, &str, &str, &[&str])] = &[
    ("sqlite", "sqlite3", "rows = 500\ntransactions = 20", &["load", "transactions", "queries"]),
    ("git", "git", "files = 60\ncommits = 4", &["clone", "checkout", "status", "gc"]),
    ("untar", "tar", "files = 60", &["unpack", "compare"]),
    ("rsync", "rsync", "files = 60", &["copy", "repeat", "update"]),
    ("cargo-build", "cargo", "units = 2", &["unpack", "build"]),
    ("pgbench", "pg_ctlcluster", "scale = 1\ntransactions = 40", &["load", "transactions"]),
];

fn plan(target: &Path, workloads: &str) -> String {
    format!(
        "name = \"applications\"\nrounds = 1\nnoise_floor = false\n\
         [[target]]\nname = \"directory\"\ndirectory = \"{}\"\n{workloads}",
        target.display()
    )
}

fn of_workload<'a>(records: &'a [Record], workload: &str) -> Vec<&'a Sample> {
    samples(records).into_iter().filter(|sample| sample.workload == workload).collect()
}

#[test]
fn each_application_runs_its_phases_and_checks_what_it_wrote() {
    let there: Vec<_> = APPLICATIONS
        .iter()
        .filter(|(_, program, ..)| has_program("applications as workloads", program))
        .collect();
    let (target, out) = (directory_on_disk(), directory_on_disk());
    let table = |(name, _, keys, _): &&&(&str, &str, &str, &[&str])| {
        format!("[[workload]]\nname = \"{name}\"\n{keys}\n")
    };
    let workloads: String = there.iter().map(|one| table(&one)).collect();
    let plan = plan(target.path(), &workloads);
    let (outcome, records) =
        run(&plan, out.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
    assert!(outcome.notes.iter().all(|note| note.kind == NoteKind::Remark), "{:?}", outcome.notes);
    for (name, _, _, phases) in there {
        let found = of_workload(&records, name);
        let names: Vec<_> = found.iter().map(|sample| sample.phase.as_str()).collect();
        assert_eq!(names, *phases, "{name}");
        assert!(found.iter().all(|one| one.operations > 0 && one.elapsed_ns > 0), "{found:?}");
    }
    for name in ["sqlite", "pgbench"] {
        for sample in of_workload(&records, name).iter().filter(|one| one.phase == "transactions") {
            let tps = sample.metrics.iter().find(|metric| metric.name == "tps").unwrap();
            assert!(tps.value > 0.0, "{sample:?}");
        }
    }
    for sample in of_workload(&records, "pgbench").iter().filter(|one| !one.latencies.is_empty()) {
        assert_eq!(
            (&*sample.latencies[0].operation, sample.latencies[0].count),
            ("transaction", 40)
        );
    }
}

/// Runs the plan in the directory that the variable [`CHILD`] contains. Without this variable it
/// does nothing.
#[test]
fn comparing_process() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let directory = Path::new(&directory);
    let plan = std::fs::read_to_string(directory.join("plan.toml")).unwrap();
    let (outcome, _) = run(&plan, directory, &TestHost, Interrupt::default(), &mut Silent).unwrap();
    let notes: Vec<String> =
        outcome.notes.iter().map(|note| format!("{:?}: {}\n", note.kind, note.text)).collect();
    std::fs::write(directory.join("notes"), notes.concat()).unwrap();
}

const CHILD: &str = "FSLAB_TEST_COMPARING";

/// Returns a command that starts this test program again, to run a plan in another process.
fn comparing(directory: &Path, plan: &str) -> Command {
    std::fs::write(directory.join("plan.toml"), plan).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "applications::comparing_process"]).env(CHILD, directory);
    command.stdout(Stdio::null());
    command
}

#[test]
fn missing_programs_are_noted_and_the_run_continues() {
    let (target, out) = (directory_on_disk(), directory_on_disk());
    let tables = APPLICATIONS.iter().map(|(name, ..)| format!("[[workload]]\nname = \"{name}\"\n"));
    // pgbench is left out, because PostgreSQL is found in its installation directory even without
    // PATH.
    let tables: Vec<String> = tables.filter(|table| !table.contains("pgbench")).collect();
    let last = "[[workload]]\nname = \"stream\"\nsize = \"64 KiB\"\n";
    let plan = plan(target.path(), &(tables.concat() + last));
    let status = comparing(out.path(), &plan).env("PATH", "/nonexistent").status().unwrap();
    assert!(status.success());
    let notes = std::fs::read_to_string(out.path().join("notes")).unwrap();
    for (name, program, ..) in APPLICATIONS.iter().filter(|(name, ..)| *name != "pgbench") {
        let line = format!("workload {name}: the program {program} is missing; install it (Debian");
        let found = notes.lines().find(|note| note.contains(&line)).unwrap_or(&notes);
        assert!(found.starts_with("LeftOut"), "{name}: {found}");
    }
    let records = fslab_report::sample::read(&fslab_compare::samples_path(out.path())).unwrap();
    assert_eq!(of_workload(&records, "stream").len(), 4);
}

/// A different owner is allowed, because files belong to the user who unpacks them. Any other
/// difference fails the run.
#[test]
fn archive_of_another_owner_is_unpacked_and_compared() {
    if !has_program("applications as workloads", "tar") {
        return;
    }
    let (target, out, files) = (directory_on_disk(), directory_on_disk(), directory_on_disk());
    std::fs::write(files.path().join("one"), "text").unwrap();
    let archive = out.path().join("given.tar");
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg(&archive).arg("-C").arg(files.path());
    let status = tar.args(["--owner=12345", "--group=12345", "--mode=a+w", "one"]).status();
    assert!(status.unwrap().success());
    let workload = format!("[[workload]]\nname = \"untar\"\narchive = {archive:?}\n");
    let plan = plan(target.path(), &workload);
    let (outcome, records) =
        run(&plan, out.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
    assert!(outcome.notes.iter().all(|note| note.kind == NoteKind::Remark), "{:?}", outcome.notes);
    assert_eq!(of_workload(&records, "untar").len(), 2);
    // The archive contains one name twice. After the second member is unpacked, the first one
    // differs.
    std::fs::write(files.path().join("one"), "longer text").unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-rf").arg(&archive).arg("-C").arg(files.path()).arg("one");
    assert!(tar.status().unwrap().success());
    let out = directory_on_disk();
    let (outcome, _) =
        run(&plan, out.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
    let failed = outcome.notes.iter().find(|note| note.kind == NoteKind::Failed).unwrap();
    assert!(failed.text.contains("an unpacked file differs: one: "), "{failed:?}");
}

#[test]
fn repository_of_another_user_is_cloned() {
    if !rustix::process::geteuid().is_root() || !has_program("a repository of another user", "git")
    {
        return;
    }
    let (target, out, users) = (directory_on_disk(), directory_on_disk(), directory_on_disk());
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(users.path()).args(["-c", "user.name=u", "-c", "user.email=u@h"]);
        assert!(git.args(words).status().unwrap().success(), "{words:?}");
    };
    git(&["init", "--quiet"]);
    for message in ["one", "two", "three"] {
        std::fs::write(users.path().join(message), message).unwrap();
        git(&["add", "."]);
        git(&["commit", "--quiet", "-m", message]);
    }
    let owner = Command::new("chown").args(["-R", "12345"]).arg(users.path()).status();
    assert!(owner.unwrap().success());
    let source = users.path();
    let workload = format!("[[workload]]\nname = \"git\"\nsource = {source:?}\n");
    let plan = plan(target.path(), &workload);
    let (outcome, records) =
        run(&plan, out.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
    assert!(outcome.notes.iter().all(|note| note.kind == NoteKind::Remark), "{:?}", outcome.notes);
    assert_eq!(of_workload(&records, "git").len(), 4);
}

/// A git hook may start the comparison. Its environment variables refer to its own repository.
#[test]
fn git_workload_does_not_change_the_callers_repository() {
    if !has_program("applications as workloads", "git") {
        return;
    }
    let (target, out, users) = (directory_on_disk(), directory_on_disk(), directory_on_disk());
    let repository = users.path().join("users.git");
    let git = |words: &[&str]| {
        let output = Command::new("git").arg("--git-dir").arg(&repository).args(words).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    git(&["init", "--quiet", "--bare"]);
    assert!(repository.join("HEAD").exists());
    let plan = plan(target.path(), "[[workload]]\nname = \"git\"\nfiles = 20\ncommits = 3\n");
    let mut process = comparing(out.path(), &plan);
    process.env("GIT_DIR", &repository).env("GIT_INDEX_FILE", users.path().join("index"));
    assert!(process.status().unwrap().success());
    assert_eq!(git(&["for-each-ref"]), "");
    assert!(!users.path().join("index").exists());
    let records = fslab_report::sample::read(&fslab_compare::samples_path(out.path())).unwrap();
    assert_eq!(of_workload(&records, "git").len(), 4);
}

/// Returns a plan whose command starts a process in the background, writes the process IDs of both
/// to a file, and waits.
fn leaving(target: &Path) -> String {
    let place = target.display();
    let command = format!("cd {place}; sleep 1000 & echo $$ $! > new; mv new numbers; wait");
    let keys = "[[workload]]\nname = \"command\"\ncache = \"as is\"\n";
    plan(target, &format!("{keys}command = [\"sh\", \"-c\", \"{command}\"]\n"))
}

fn numbers(target: &Path) -> Vec<String> {
    wait_for("the command has started", || target.join("numbers").exists());
    let text = std::fs::read_to_string(target.join("numbers")).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

#[track_caller]
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed().as_secs() < 60, "{what}: not within a minute");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Whether a process has exited. A zombie, whose parent has not yet waited for it, has exited too.
fn is_gone(number: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    status.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}

#[test]
fn interrupting_a_run_kills_its_command_and_all_children() {
    let (target, out) = (directory_on_disk(), directory_on_disk());
    let interrupt = Interrupt::default();
    let found = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let found = numbers(target.path());
            interrupt.raise();
            found
        });
        let plan = leaving(target.path());
        run(&plan, out.path(), &TestHost, interrupt.clone(), &mut Silent).unwrap();
        watching.join().unwrap()
    });
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|number| is_gone(number)), "{found:?}");
}

#[test]
fn killing_a_comparison_kills_its_command_and_all_children() {
    let (target, out) = (directory_on_disk(), directory_on_disk());
    let mut child = comparing(out.path(), &leaving(target.path())).spawn().unwrap();
    let found = numbers(target.path());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the command has ended", || found.iter().all(|number| is_gone(number)));
}

#[test]
fn killing_a_comparison_ends_its_server() {
    if !has_program("the server of a killed comparison", "pg_ctlcluster") {
        return;
    }
    let (target, out) = (directory_on_disk(), directory_on_disk());
    let long = "[[workload]]\nname = \"pgbench\"\nscale = 1\ntransactions = 10_000_000\n";
    let mut child = comparing(out.path(), &plan(target.path(), long)).spawn().unwrap();
    let is_ready = |number: &mut String| {
        // The PID file is in the directory that the comparison makes in the target.
        let found = pid_files(target.path());
        let text = found.first().map(std::fs::read_to_string).and_then(Result::ok);
        let text = text.unwrap_or_default();
        text.lines().next().unwrap_or_default().clone_into(number);
        text.contains("ready")
    };
    let mut server = String::new();
    wait_for("the server is ready", || {
        let mut found = String::new();
        is_ready(&mut found)
    });
    is_ready(&mut server);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the server has ended", || is_gone(&server));
}

fn pid_files(directory: &Path) -> Vec<std::path::PathBuf> {
    let direct = directory.join("postgresql/postmaster.pid");
    let below = std::fs::read_dir(directory).unwrap().flatten();
    let below = below.map(|entry| entry.path().join("postgresql/postmaster.pid"));
    std::iter::once(direct).chain(below).filter(|path| path.exists()).collect()
}

/// The processor time of one workload is not reported as interference with another one.
#[test]
fn parallel_parts_do_not_count_as_interference() {
    let (target, out) = (directory_on_disk(), directory_on_disk());
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
    let workload = format!(
        "[[workload]]\nname = \"together\"\nworkloads = [\
         {{ name = \"command\", cache = \"as is\", command = [\"sh\", \"-c\", \"{busy}\"] }}, \
         {{ name = \"stream\", size = \"64 MiB\" }}]\n"
    );
    let plan = plan(target.path(), &workload);
    let (_, records) =
        run(&plan, out.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
    let found = of_workload(&records, "together");
    assert!(found.len() >= 5, "{found:?}");
    for sample in found {
        let reason = sample.contaminated.as_deref().unwrap_or_default();
        assert!(!reason.contains("other programs"), "{}: {reason}", sample.phase);
    }
}

#[test]
fn wrong_parameters_of_applications_are_refused() {
    let refused = |keys: &str| {
        let plan = plan(Path::new("/"), &format!("[[workload]]\n{keys}\n"));
        Plan::parse("test", &plan, Form::Full).unwrap_err().to_string()
    };
    for (keys, reason) in [
        (
            "name = \"pgbench\"\nclients = 5\ntransactions = 2",
            "`clients`: must not exceed `transactions`",
        ),
        ("name = \"pgbench\"\nbuffers = 10", "`buffers`: PostgreSQL needs at least 128 KiB"),
        ("name = \"git\"\ncommits = 1", "`commits`: must be at least 2"),
        ("name = \"sqlite\"\njournal = \"none\"", "must be one of rollback, wal"),
        ("name = \"metadata\"\nthreads = 5\nfiles = 4", "`threads`: must not exceed `files`"),
        (
            "name = \"random-io\"\nrate = 1e-300",
            "`rate`: must be at least 0.000001 requests a second",
        ),
        ("name = \"together\"", "`workloads`: must list at least 2"),
        ("name = \"together\"\nworkloads = [{ name = \"what\" }]", "unknown workload \"what\""),
        (
            "name = \"together\"\nworkloads = [{ name = \"stream\", speed = 1 }]",
            "stream: unknown parameter `speed`; known: size, request",
        ),
        (
            "name = \"together\"\nworkloads = [{ name = \"stream\" }, { name = \"stream\" }]",
            "stream appears twice; give one a `label`",
        ),
    ] {
        let error = refused(keys);
        assert!(error.contains(reason), "{keys}: {error}");
    }
    let (target, out) = (directory_on_disk(), directory_on_disk());
    if !rustix::process::geteuid().is_root()
        || !has_program("a server's user who is not there", "pg_ctlcluster")
    {
        return;
    }
    let plan = plan(target.path(), "[[workload]]\nname = \"pgbench\"\naccount = \"no such\"\n");
    let (outcome, _) =
        run(&plan, out.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
    let failed: Vec<_> = outcome.notes.iter().filter(|n| n.kind == NoteKind::Failed).collect();
    assert!(
        failed[0].text.contains("\"no such\" must be the name of a user and of a group"),
        "{failed:?}"
    );
}
