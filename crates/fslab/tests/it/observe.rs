//! Tests the layers `stats` and `trace` in real mounts, also after a kill of the daemon and on a
//! full disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fslab_dataset::{Cell, Manifest, PartReader};
use fslab_sys::mounts::Mount;
use fslab_trace::{Reader, Record};
use fslab_vfs::Operation;
use fslab_vfs_testing::skip::skip;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    Place, copy_program, fslab, has_own_run, is_mounted, program, require_mounting, run, soon,
    umount_unused,
};

/// Returns the counters of the layer at a position of the stack, from `fslab stats --json`.
fn stats(point: &Path, position: usize) -> Value {
    let output = fslab(&["stats", "--json", point.to_str().unwrap()]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["layers"][position - 1].clone()
}

fn operation<'a>(layer: &'a Value, name: &str) -> &'a Value {
    let operations = layer["operations"].as_array().unwrap();
    operations.iter().find(|each| each["operation"] == name).unwrap_or(&Value::Null)
}

fn measure(layer: &Value, name: &str) -> u64 {
    let measures = layer["measures"].as_array().unwrap();
    measures.iter().find(|each| each["name"] == name).unwrap()["value"].as_u64().unwrap()
}

#[test]
fn stats_agree_with_a_script_of_system_calls() {
    require_mounting!();
    let place = Place::mounted(&["-l", "stats", "-l", "null"]);
    let (at, page) = (|name: &str| place.point.join(name), vec![1; 4096]);
    for number in 0..7 {
        fs::create_dir(at(&format!("d{number}"))).unwrap();
    }
    for number in 0..11 {
        let file = File::create_new(at(&format!("d0/f{number}"))).unwrap();
        for piece in 0..3 {
            // Write whole pages, because the kernel may send a partial page in two requests.
            file.write_all_at(&page, piece * 4096).unwrap();
        }
        if number < 5 {
            file.sync_all().unwrap();
        }
    }
    for number in 0..4 {
        fs::rename(at(&format!("d0/f{number}")), at(&format!("d1/g{number}"))).unwrap();
    }
    symlink("d0", at("link")).unwrap();
    fs::hard_link(at("d0/f9"), at("d0/f9-too")).unwrap();
    fs::remove_file(at("d0/f10")).unwrap();
    assert!(fs::remove_dir(at("d0")).is_err() && fs::remove_dir(at("d1")).is_err());
    fs::remove_dir(at("d6")).unwrap();
    for number in 0..6 {
        assert!(fs::metadata(at(&format!("none{number}"))).is_err());
    }
    let layer = stats(&place.point, 1);
    for (name, count) in [
        ("mkdir", 7),
        ("create", 11),
        ("write", 33),
        ("fsync", 5),
        ("rename", 4),
        ("symlink", 1),
        ("link", 1),
        ("unlink", 1),
        ("rmdir", 3),
    ] {
        assert_eq!(operation(&layer, name)["count"], count, "{name}: {layer:#}");
        assert_eq!(operation(&layer, name)["in_flight"], 0);
    }
    assert_eq!(operation(&layer, "write")["bytes"], 33 * 4096);
    assert_eq!(operation(&layer, "rmdir")["errors"]["ENOTEMPTY"], 2);
    let absent = operation(&layer, "lookup")["errors"]["ENOENT"].as_u64().unwrap();
    // Each new name was looked up before it was created, unless the kernel knew that it did not
    // exist.
    assert!((6 + 7..=6 + 7 + 11 + 4 + 2 + 6).contains(&absent), "{absent}");
    let shown = fslab(&["stats", place.point.to_str().unwrap()]).output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains("ENOTEMPTY: 2"));
    place.umount();
}

#[test]
fn reads_and_writes_are_counted_unless_passed_through() {
    require_mounting!();
    for (layer, counted) in [("stats", true), ("stats:passthrough=on", false)] {
        let place = Place::mounted(&["-l", layer]);
        fs::write(place.point.join("file"), vec![7; 1 << 20]).unwrap();
        let layer = stats(&place.point, 1);
        let bytes = operation(&layer, "write")["bytes"].as_u64().unwrap_or_default();
        assert_eq!(bytes == 1 << 20, counted, "{layer:#}");
        assert_eq!(
            layer["notes"].as_array().unwrap().is_empty(),
            counted,
            "a note mentions passthrough"
        );
        place.umount();
    }
}

fn socket_of(place: &Place) -> PathBuf {
    let device = fslab_sys::mounts::mounted_on(&place.point).unwrap().unwrap().device;
    PathBuf::from(format!("/run/fslab/{}-{}.sock", device.0, device.1))
}

#[test]
fn stats_socket_is_private_and_removed_with_the_mount() {
    require_mounting!();
    let place = Place::mounted(&["-l", "stats"]);
    let socket = socket_of(&place);
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let directory = socket.parent().unwrap().metadata().unwrap();
    assert_eq!((directory.permissions().mode() & 0o777, directory.uid()), (0o700, 0));
    let program = place.lower.join("fslab");
    copy_program(env!("CARGO_BIN_EXE_fslab").as_ref(), &program);
    for (asked, answer) in [
        (&["stats"][..], "was mounted by user 0; only that user and root may send"),
        (&["tier", "state"], "is mounted without the layer tier"),
    ] {
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .args(asked)
            .arg(&place.point)
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{message}");
        assert!(message.contains(answer), "{message}");
    }
    place.umount();
    assert!(!socket.exists());
}

#[test]
fn a_socket_of_a_killed_daemon_is_cleaned_up_by_the_next() {
    require_mounting!();
    let test = "observe::a_socket_of_a_killed_daemon_is_cleaned_up_by_the_next";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "not root, and only root can have a separate /run");
    }
    if !has_own_run(test) {
        return;
    }
    let place = Place::mounted(&["-l", "stats"]);
    let socket = socket_of(&place);
    place.kill_daemon();
    assert!(socket.exists());
    let (code, message) = run(&["stats", place.point.to_str().unwrap()]);
    assert!(code == 1 && message.contains("does not answer"), "{code}: {message}");
    assert_eq!(run(&["umount", "--lazy", place.point.to_str().unwrap()]).0, 0);
    let next = Place::new();
    // This mount takes the device number of the dead mount, so that `next` can't reuse it.
    let other = Place::mounted(&["-l", "null"]);
    next.mount(&["-l", "stats"]);
    assert!(!socket.exists() || socket == socket_of(&next));
    assert!(stats(&next.point, 1)["layer"] == "stats");
    next.umount();
    other.umount();
}

#[test]
fn stats_refuses_a_mount_without_counters() {
    require_mounting!();
    let place = Place::mounted(&["-l", "null"]);
    let (code, message) = run(&["stats", place.point.to_str().unwrap()]);
    assert!(code == 3 && message.contains("mount with -l stats"), "{message}");
    place.umount();
    let (code, message) = run(&["stats", place.point.to_str().unwrap()]);
    assert!(code == 3 && message.contains("is not a mount of fslab"), "{message}");
}

/// A mount, and its trace in another directory.
struct Traced {
    place: Place,
    scratch: TempDir,
}

impl Traced {
    fn new(options: &str) -> Self {
        let (place, scratch) = (Place::new(), TempDir::new().unwrap());
        let layer = format!("trace:to={}{options}", scratch.path().join("trace").display());
        place.mount(&["-l", &layer, "-l", "null"]);
        Self { place, scratch }
    }

    fn trace(&self) -> PathBuf {
        self.scratch.path().join("trace")
    }
}

fn records(trace: &Path) -> Vec<Record> {
    Reader::open(trace).unwrap().map(|record| record.unwrap()).collect()
}

/// Counts the created files whose names have a prefix, according to a trace.
fn creations(trace: &Path, prefix: &[u8]) -> usize {
    let named = |record: &Record| {
        record.operation == Operation::Create
            && record.name.as_ref().is_some_and(|name| name.starts_with(prefix))
    };
    records(trace).into_iter().filter(named).count()
}

#[test]
fn trace_inside_the_mounted_tree_is_refused() {
    require_mounting!();
    let place = Place::new();
    let link = TempDir::new().unwrap();
    symlink(&place.lower, link.path().join("link")).unwrap();
    for (to, part) in [
        (place.point.join("trace"), "lies inside the mount point"),
        (place.lower.join("a/../trace"), "lies inside the lower directory"),
        (link.path().join("link/trace"), "lies inside the lower directory"),
    ] {
        let (code, message) = place.try_mount(&["-l", &format!("trace:to={}", to.display())]);
        assert!(code == 3 && message.contains(part), "{code}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    }
    assert!(!is_mounted(&place.point));
    assert_eq!(fs::read_dir(&place.lower).unwrap().count(), 0);
}

/// If the daemon is killed, all records older than `save_every` survive, and all segments are
/// complete.
#[test]
fn a_killed_daemon_leaves_a_trace_that_can_be_read() {
    require_mounting!();
    let traced = Traced::new(",save_every=50ms");
    for number in 0..50 {
        fs::write(traced.place.point.join(format!("before-{number}")), "data").unwrap();
    }
    let recorded = |prefix: &[u8]| creations(&traced.trace(), prefix);
    soon("the first records are saved", || recorded(b"before-") == 50);
    let point = traced.place.point.clone();
    let worker = std::thread::spawn(move || {
        (0..)
            .take_while(|number| fs::write(point.join(format!("n{number}")), "data").is_ok())
            .count()
    });
    soon("some of the others are saved", || recorded(b"n") > 0);
    traced.place.kill_daemon();
    let made = worker.join().unwrap();
    assert_eq!(recorded(b"before-"), 50);
    let late = recorded(b"n");
    assert!(late > 0 && late <= made + 1, "{late} recorded of {made}");
    let shown = fslab(&["trace", "show", traced.trace().to_str().unwrap()]).output().unwrap();
    assert!(shown.status.success());
    assert!(
        String::from_utf8_lossy(&shown.stderr).contains("was not closed"),
        "no message about the missing end"
    );
    assert_eq!(run(&["umount", "--lazy", traced.place.point.to_str().unwrap()]).0, 0);
}

/// Makes a small file system in memory for a trace, and a mount with the trace layer.
fn traced_on_small_disk(bytes: u64, options: &str) -> (TempDir, Mount, Place) {
    let (scratch, place) = (TempDir::new().unwrap(), Place::new());
    let size = format!("size={bytes}");
    let disk = Mount::new("none".as_ref(), scratch.path(), "tmpfs", &size).unwrap();
    let log = scratch.path().with_extension("log");
    let layer = format!("trace:to={}{options}", scratch.path().join("trace").display());
    place.mount(&["-l", &layer, "-o", &format!("log={}", log.display())]);
    (scratch, disk, place)
}

/// Returns bytes that don't compress.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fslab_trace::noise(seed, &mut bytes);
    bytes
}

#[test]
fn full_trace_disk_loses_records_but_no_operations() {
    require_mounting!();
    let (scratch, disk, place) = traced_on_small_disk(4 << 20, ",data=full,save_every=20ms");
    fs::write(place.point.join("first"), "saved while there is space").unwrap();
    soon("the first record is saved", || measure(&stats(&place.point, 1), "records_saved") > 0);
    for number in 0..48 {
        fs::write(place.point.join(format!("f{number}")), noise(1 << 20, number)).unwrap();
    }
    for number in 0..48 {
        let stored = fs::read(place.lower.join(format!("f{number}"))).unwrap();
        assert!(stored == noise(1 << 20, number), "f{number} is as it was written");
    }
    soon("the loss is reported", || measure(&stats(&place.point, 1), "records_lost") > 0);
    let (code, message) = umount_unused(&place.point);
    assert!(code == 1 && message.contains("its daemon failed"), "{code} {message}");
    let log = scratch.path().with_extension("log");
    let told = fs::read_to_string(&log).unwrap();
    fs::remove_file(&log).unwrap();
    assert!(told.contains("the trace can't be written"), "{told}");
    assert!(told.contains("records were lost: ") && told.contains("No space left"), "{told}");
    let kept = records(&scratch.path().join("trace"));
    assert!(!kept.is_empty(), "the records that were saved earlier are readable");
    disk.unmount().unwrap();
}

#[test]
fn waiting_trace_blocks_operations_while_its_disk_is_full() {
    require_mounting!();
    let (scratch, disk, place) =
        traced_on_small_disk(160 << 20, ",data=full,when_full=wait,save_every=20ms");
    let ballast = scratch.path().join("ballast");
    fs::write(&ballast, vec![1; 150 << 20]).unwrap();
    let point = place.point.clone();
    let writer = std::thread::spawn(move || {
        for number in 0..90 {
            fs::write(point.join(format!("f{number}")), noise(1 << 20, number)).unwrap();
        }
    });
    soon("operations wait", || measure(&stats(&place.point, 1), "waits") > 0);
    std::thread::sleep(Duration::from_millis(500));
    assert!(!writer.is_finished(), "90 MiB of writes did not wait for space on the full disk");
    fs::remove_file(&ballast).unwrap();
    writer.join().unwrap();
    place.umount();
    let mut reader = Reader::open(&scratch.path().join("trace")).unwrap();
    let written: usize = reader
        .by_ref()
        .map(|record| record.unwrap())
        .filter_map(|record| record.data.map(|data| data.len()))
        .sum();
    assert_eq!((written, reader.missing()), (90 << 20, 0));
    let last = reader.last_segment().unwrap().metadata;
    assert!(last.closed && last.lost == 0);
    fs::remove_file(scratch.path().with_extension("log")).unwrap();
    disk.unmount().unwrap();
}

/// Returns the recorded names of the threads that looked up a name.
fn callers_of(records: &[Record], name: &str) -> Vec<Vec<u8>> {
    let looked_up = |record: &&Record| {
        record.operation == Operation::Lookup && record.name.as_deref() == Some(name.as_bytes())
    };
    let mut callers: Vec<_> =
        records.iter().filter(looked_up).map(|record| record.program.clone().unwrap()).collect();
    callers.dedup();
    callers
}

#[test]
fn renamed_thread_is_recorded_with_its_new_name() {
    require_mounting!();
    let traced = Traced::new("");
    let point = traced.place.point.clone();
    let renamed = std::thread::spawn(move || {
        let look_up = |name: &str| assert!(fs::metadata(point.join(name)).is_err());
        rustix::thread::set_name(c"first").unwrap();
        look_up("a");
        rustix::thread::set_name(c"second name").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        look_up("b");
        fs::write("/proc/thread-self/comm", b"third\\\xff").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        look_up("c");
    });
    renamed.join().unwrap();
    traced.place.umount();
    let records = records(&traced.trace());
    for (name, caller) in [("a", &b"first"[..]), ("b", b"second name"), ("c", b"third\\\xff")] {
        assert_eq!(callers_of(&records, name), [caller], "{name}");
    }
}

/// A program's name comes from its file and can contain any byte except slash and 0. Control
/// characters in it must not reach the terminal.
#[test]
fn hostile_names_of_programs_are_harmless() {
    require_mounting!();
    let traced = Traced::new("");
    fs::write(traced.place.lower.join("file"), "content").unwrap();
    let hostile = OsStr::from_bytes(b"a\x1b[2J\n\\\xff\"");
    let program = traced.scratch.path().join(hostile);
    copy_program(&crate::support::program("cat").unwrap(), &program);
    let output = Command::new(&program).arg(traced.place.point.join("file")).output().unwrap();
    assert_eq!(output.stdout, b"content");
    traced.place.umount();
    let records = records(&traced.trace());
    assert_eq!(callers_of(&records, "file"), [hostile.as_bytes()]);
    let (trace, set) = (traced.trace(), traced.scratch.path().join("set"));
    let (trace, set) = (trace.to_str().unwrap(), set.to_str().unwrap());
    let printed = |arguments: &[&str]| {
        let output = fslab(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'), "{text:?}");
        text
    };
    let shown = printed(&["trace", "show", trace]);
    assert_eq!(shown.lines().count(), records.len(), "{shown}");
    assert!(shown.contains(r#" "a\x1b[2J\x0a\\\xff"" lookup("#), "{shown}");
    let shown = printed(&["trace", "show", "--json", trace]);
    let lines: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let programs = lines.iter().filter(|line| line["name"] == "file");
    assert!(programs.clone().count() > 0, "{shown}");
    programs.for_each(|line| assert_eq!(line["program"], "a\u{1b}[2J\n\\\\\\xff\""));
    printed(&["dataset", "create", "-o", set, trace]);
    let programs = programs_of(set.as_ref());
    assert!(programs.contains(r#"a\x1b[2J\x0a\\\xff""#), "{programs:?}");
    assert!(!programs.iter().any(|name| name.contains(char::is_control)), "{programs:?}");
}

/// Returns the values of the column `program` of a data set.
fn programs_of(set: &Path) -> BTreeSet<String> {
    let manifest = Manifest::read(set).unwrap();
    let columns = &fslab_trace::DATASET_SCHEMA.columns;
    let at = columns.iter().position(|column| column.name == "program").unwrap();
    let mut programs = BTreeSet::new();
    for part in 0..manifest.parts.len() {
        let schema = &fslab_trace::DATASET_SCHEMA;
        let mut reader = PartReader::open(set, &manifest, part, schema).unwrap();
        while let Some(group) = reader.next_group().unwrap() {
            programs.extend((0..group.rows()).filter_map(|row| match group.cell(row, at) {
                Cell::Bytes(bytes) => Some(String::from_utf8(bytes.to_vec()).unwrap()),
                _ => None,
            }));
        }
    }
    programs
}

#[test]
fn trace_is_readable_by_other_parquet_tools() {
    require_mounting!();
    let traced = Traced::new(",data=full");
    for number in 0..20 {
        fs::write(traced.place.point.join(format!("f{number}-\u{fc}\\")), "some data").unwrap();
    }
    traced.place.umount();
    let recorded = records(&traced.trace());
    let count = |operation| recorded.iter().filter(|each| each.operation == operation).count();
    let expected = format!(
        "{} {} {} {}",
        recorded.len(),
        count(Operation::Create),
        count(Operation::Write),
        fslab_trace::COLUMNS.len()
    );
    let glob = traced.trace().join("*.parquet").display().to_string();
    let duckdb = "import duckdb, sys\n\
        t = f\"read_parquet('{sys.argv[1]}')\"\n\
        c = lambda w: duckdb.sql(f'select count(*) from {t} where {w}').fetchall()[0][0]\n\
        n = c(\"name like '%-\\u00fc\\\\\\\\%' and operation = 'create' and not errno\")\n\
        assert n == 20, n\n\
        w = duckdb.sql(f\"select distinct data from {t} where operation = 'write'\").fetchall()\n\
        assert w == [(b'some data',)], w\n\
        columns = len(duckdb.sql(f'describe select * from {t}').fetchall())\n\
        print(c('true'), c(\"operation = 'create'\"), c(\"operation = 'write'\"), columns)\n";
    let pyarrow = "import pyarrow.dataset, pyarrow.compute as pc, sys, os\n\
        t = pyarrow.dataset.dataset(os.path.dirname(sys.argv[1]), format='parquet').to_table()\n\
        c = lambda o: pc.sum(pc.equal(t['operation'], o)).as_py()\n\
        assert str(t.schema.field('time_ns').type) == 'timestamp[ns, tz=UTC]', t.schema\n\
        assert str(t.schema.field('inode').type) == 'uint64', t.schema\n\
        print(t.num_rows, c('create'), c('write'), t.num_columns)\n";
    let python = || Command::new(program("python3").unwrap_or_else(|| "python3".into()));
    for (module, script) in [("duckdb", duckdb), ("pyarrow", pyarrow)] {
        let there = python().args(["-c", &format!("import {module}")]).output();
        if !there.is_ok_and(|output| output.status.success()) {
            skip(
                &format!("observe::trace_is_readable_by_other_parquet_tools[{module}]"),
                "no such Python module",
            );
            continue;
        }
        let output = python().args(["-c", script, &glob]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{module}: {message}");
    }
}

/// Returns, for each path in a tree, the kind, mode, size, links, owner, and content or target.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    fn walk(root: &Path, at: &Path, found: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let status = path.symlink_metadata().unwrap();
            let contents = if status.is_file() {
                format!(
                    "{} bytes, {:08x}",
                    status.size(),
                    crc32c::crc32c(&fs::read(&path).unwrap())
                )
            } else if status.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else {
                String::new()
            };
            let shown = (status.mode(), status.nlink(), status.uid(), status.gid());
            found.insert(
                path.strip_prefix(root).unwrap().to_owned(),
                format!("{shown:?} {contents}"),
            );
            if status.is_dir() {
                walk(root, &path, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(root, root, &mut found);
    found
}

/// Returns the source folder of a small crate without dependencies, from cargo's own cache.
fn small_crate() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo"),
        PathBuf::from,
    );
    let registries = fs::read_dir(home.join("registry/src")).ok()?;
    let crates = registries.flatten().filter_map(|each| fs::read_dir(each.path()).ok()).flatten();
    crates.flatten().map(|each| each.path()).find(|path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"itoa-1"))
    })
}

/// Removes tests and dependencies from the crate's manifest.
fn without_dependencies(manifest: &Path) {
    let mut table: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
    table.retain(|key, _| key == "package" || key == "lib");
    fs::write(manifest, table.to_string()).unwrap();
    fs::remove_file(manifest.with_file_name("Cargo.lock")).ok();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_recorded_cargo_build_replays_to_the_same_tree() {
    require_mounting!();
    let Some(source) = small_crate() else {
        return skip("observe::a_recorded_cargo_build_replays_to_the_same_tree", "no crate itoa");
    };
    let traced = Traced::new(",data=full");
    let within = traced.place.point.join("itoa");
    copy(&source, &within);
    without_dependencies(&within.join("Cargo.toml"));
    let built = Command::new(env!("CARGO"))
        .args(["build", "--offline"])
        .env_remove("CARGO_TARGET_DIR")
        .env("CARGO_BUILD_JOBS", "2")
        .current_dir(&within)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    traced.place.umount();
    let made = tree(&traced.place.lower);
    assert!(made.keys().any(|path| path.extension().is_some_and(|extension| extension == "rlib")));
    let target = TempDir::new().unwrap();
    let output = fslab(&["trace", "replay", "--strict"])
        .args([&traced.trace(), target.path()])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.is_empty(), "{told}{message}");
    let again = tree(target.path());
    for (path, shown) in &made {
        assert_eq!(again.get(path), Some(shown), "{}", path.display());
    }
    assert_eq!(again.len(), made.len());
}

#[test]
fn populate_creates_files_that_existed_before_the_trace() {
    require_mounting!();
    let (place, scratch) = (Place::new(), TempDir::new().unwrap());
    fs::create_dir(place.lower.join("old")).unwrap();
    fs::write(place.lower.join("old/file"), vec![3; 12_345]).unwrap();
    fs::hard_link(place.lower.join("old/file"), place.lower.join("old/second")).unwrap();
    symlink("old/file", place.lower.join("link")).unwrap();
    let trace = scratch.path().join("trace");
    place.mount(&["-l", &format!("trace:to={}", trace.display())]);
    assert_eq!(fs::read(place.point.join("link")).unwrap().len(), 12_345);
    assert_eq!(fs::metadata(place.point.join("old/second")).unwrap().nlink(), 2);
    let mut file = OpenOptions::new().append(true).open(place.point.join("old/file")).unwrap();
    file.write_all(b"more").unwrap();
    drop(file);
    place.umount();
    let target = TempDir::new().unwrap();
    let arguments = ["trace", "replay", "--strict", "--populate"];
    let output = fslab(&arguments).args([&trace, target.path()]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}{}", String::from_utf8_lossy(&output.stdout));
    let sizes = |root: &Path| {
        let shown = tree(root)
            .into_iter()
            .map(|(path, shown)| (path, shown.split(',').take(4).collect::<String>()));
        shown.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(sizes(target.path()), sizes(&place.lower));
    assert_eq!(fs::metadata(target.path().join("old/file")).unwrap().len(), 12_349);
}

#[test]
fn invalid_traces_and_filters_are_named_in_the_error() {
    let scratch = TempDir::new().unwrap();
    let path = scratch.path().to_str().unwrap();
    for (arguments, code, part) in [
        (vec!["trace", "show", path], 3, "is not a trace"),
        (vec!["trace", "show", "/no/such"], 3, "/no/such: No such file"),
        (
            vec!["trace", "show", "-o", "chmod", path],
            3,
            "unknown operation 'chmod'; the operations are lookup, ",
        ),
        (vec!["trace", "show", "--errno", "ENONE", path], 3, "there is no error 'ENONE'"),
        (vec!["trace", "replay", path, "mem:"], 3, "is not a trace"),
    ] {
        let (found, message) = run(&arguments);
        assert_eq!(found, code, "{arguments:?}: {message}");
        assert!(message.contains(part), "{arguments:?}: {message}");
    }
}
