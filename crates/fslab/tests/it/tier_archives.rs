//! Tests the archives of tiers as users see them: lost, new and read-only archives.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{fslab, require_mounting, run, soon};
use crate::tiering::{Tiered, noise};

const MIB: usize = 1 << 20;

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns a tier with two archives and an offline file, and the content of that file.
fn twofold() -> (Tiered, Vec<u8>) {
    let (tiered, data) = (Tiered::over(None), noise(71, 2 * MIB + 5));
    let file = tiered.tree().join("file");
    fs::write(&file, &data).unwrap();
    tiered.ok(&["archive", shown(&file)]);
    let second = tiered.beside("second");
    let too_many = ["tier", "attach", "--copies", "3", shown(tiered.tree()), shown(&second)];
    let (code, message) = run(&too_many);
    assert!(code == 3 && message.contains("archives needed: 3"), "{code} {message}");
    assert!(!second.exists());
    tiered.ok(&["attach", "--copies", "2", shown(tiered.tree()), shown(&second)]);
    let scrubbed = tiered.ok(&["scrub", "--rate", "100MiB", shown(tiered.tree())]);
    assert!(
        scrubbed.contains("copies verified 1, repaired 0, damaged 0, copies made 1"),
        "{scrubbed}"
    );
    tiered.ok(&["release", shown(&file)]);
    (tiered, data)
}

/// Returns the identity and the path of each archive, and whether it is attached.
fn archives(tiered: &Tiered) -> Vec<(String, String, bool)> {
    let told = tiered.ok(&["archives", "--json", shown(tiered.tree())]);
    let events = told.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let told = events.filter(|event| event["event"] == "archive").map(|event| {
        assert_eq!((&event["objects"], event["encrypted"].as_bool()), (&1.into(), Some(false)));
        let text = |name: &str| event[name].as_str().unwrap().to_owned();
        let place = text("address").strip_prefix("dir:").unwrap().to_owned();
        (text("archive"), place, event["attached"].as_bool().unwrap())
    });
    told.collect()
}

#[test]
fn lost_archive_is_reported_and_can_be_replaced() {
    require_mounting!();
    let (tiered, data) = twofold();
    let (first, tree) = (tiered.archive(), tiered.tree().to_owned());
    let before = archives(&tiered);
    assert_eq!(before.iter().map(|(.., attached)| *attached).collect::<Vec<_>>(), [true, true]);
    let lost = before[0].0.clone();
    let new = tiered.beside("new");
    let replace = ["tier", "attach", "--in-place-of", &lost, shown(&tree), shown(&new)];
    let (code, message) = run(&replace);
    assert!(code == 3 && message.contains("is not lost"), "{code} {message}");
    fs::remove_dir_all(&first).unwrap();
    let (code, message) = run(&["tier", "scrub", shown(&tree)]);
    let missing = format!("archive {lost} ({}) is not attached, so 1 copies", shown(&first));
    assert!(code == 1 && message.contains(&missing), "{code} {message}");
    assert!(message.contains("1 versions have fewer than 2 intact copies"), "{message}");
    let (code, message) = run(&["tier", "scan", shown(&tree)]);
    assert!(code == 1 && message.contains(&missing), "{code} {message}");
    assert_eq!(archives(&tiered)[0], (lost.clone(), shown(&first).to_owned(), false));
    assert!(tiered.ok(&["archives", shown(&tree)]).contains(" unavailable plain "));

    assert!(tiered.ok(&replace[1..]).contains("fslab tier scrub"));
    assert!(
        tiered
            .ok(&["scrub", shown(&tree)])
            .contains("copies verified 2, repaired 1, damaged 0, copies made 0")
    );
    fs::remove_dir_all(tiered.beside("second")).unwrap();
    let file = tree.join("file");
    tiered.ok(&["recall", shown(&file)]);
    assert!(fs::read(&file).unwrap() == data);
    // The file is removed while no daemon is running. A scan finds this, and reports the lost
    // archive.
    fs::remove_file(&file).unwrap();
    assert_eq!(run(&["tier", "scan", shown(&tree)]).0, 1);
    tiered.ok(&["undelete", "-r", shown(&tree)]);
    tiered.ok(&["recall", shown(&file)]);
    assert!(fs::read(&file).unwrap() == data);
}

/// A read-only bind mount of a directory.
struct Protected(PathBuf);

impl Protected {
    fn new(directory: &Path, point: PathBuf) -> Self {
        fs::create_dir(&point).unwrap();
        mounted(&["--bind", shown(directory), shown(&point)]);
        let protected = Self(point);
        mounted(&["-o", "remount,bind,ro", shown(&protected.0)]);
        protected
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        assert!(Command::new("umount").arg(&self.0).status().unwrap().success());
    }
}

#[track_caller]
fn mounted(arguments: &[&str]) {
    assert!(Command::new("mount").args(arguments).status().unwrap().success());
}

#[test]
fn tree_is_rebuilt_from_read_only_archives() {
    require_mounting!();
    let (tiered, data) = twofold();
    tiered.ok(&["tree", shown(tiered.tree())]);
    let (again, home) = (tiered.beside("again"), tiered.beside("home-again"));
    let left = tiered.archive().join("incoming").join("00".repeat(16));
    fs::write(&left, "x").unwrap();
    {
        let first = Protected::new(&tiered.archive(), tiered.beside("protected"));
        let none = tiered.beside("none");
        let archives = ["--archive", shown(&first.0), "--archive", shown(&none)];
        let wanted = ["--home", shown(&home), shown(&again)];
        let (code, message) = run(&[&["tier", "rebuild"], &archives[..], &wanted].concat());
        assert!(code == 3 && message.contains("none: the archive is not there"), "{message}");
        assert!(!home.exists() && !again.exists(), "a refused rebuild makes nothing");
        let made = tiered.ok(&[&["rebuild"], &archives[..2], &wanted].concat());
        assert!(made.contains("made 1 file,"), "{made}");
        assert!(left.exists());
    }
    // The new home contains the path at which the archive was found, so the archive is moved to it.
    fs::remove_dir(tiered.beside("protected")).unwrap();
    fs::rename(tiered.archive(), tiered.beside("protected")).unwrap();
    let file = again.join("file");
    tiered.ok(&["recall", shown(&file)]);
    assert!(fs::read(&file).unwrap() == data);
}

/// A copy of a live tree must not expire objects. The files of the copy are not those that were
/// archived, so all objects would appear to be unneeded.
#[test]
fn copied_tree_cannot_expire_objects_of_the_original() {
    require_mounting!();
    let (tiered, data) = (Tiered::mounted(), noise(74, MIB));
    fs::write(tiered.path("file"), &data).unwrap();
    tiered.of("archive", "");
    tiered.of("release", "");
    tiered.umount();
    let copy = tiered.beside("copy");
    let copied = Command::new("cp").arg("-a").args([tiered.tree(), &copy]).status().unwrap();
    assert!(copied.success());
    fs::remove_file(copy.join("file")).unwrap();
    let settings = tiered.beside("home/tier.toml");
    let text = fs::read_to_string(&settings).unwrap();
    let at_once = text.replace("keep_seconds = 2592000", "keep_seconds = 0");
    assert_ne!(at_once, text);
    fs::write(&settings, at_once).unwrap();
    let (code, _) = run(&["tier", "scan", shown(&copy)]);
    assert_eq!(code, 0, "the remaining files of the copy are intact");
    let (code, message) = run(&["tier", "expire", shown(&copy)]);
    assert!(code == 1 && message.contains("is written by another tree"), "{code} {message}");
    tiered.ok(&["recall", shown(&tiered.tree().join("file"))]);
    assert!(fs::read(tiered.tree().join("file")).unwrap() == data);
}

/// An offline file can be read while its only archive is read-only, like a disk after an error.
#[test]
fn sole_archive_can_be_read_while_it_is_read_only() {
    require_mounting!();
    let (tiered, data) = (Tiered::mounted(), noise(75, MIB));
    fs::write(tiered.path("file"), &data).unwrap();
    tiered.of("archive", "");
    tiered.of("release", "");
    tiered.umount();
    let file = tiered.tree().join("file");
    let alone = |action: &str| {
        let (fslab, archive) = (env!("CARGO_BIN_EXE_fslab"), tiered.archive());
        let script = "mount --bind $1 $1 && mount -o remount,bind,ro $1 && exec $2 tier $3 $4";
        let mut command = Command::new("unshare");
        command.args([
            "-m",
            "sh",
            "-c",
            script,
            "sh",
            shown(&archive),
            fslab,
            action,
            shown(&file),
        ]);
        command.output().unwrap()
    };
    assert!(alone("recall").status.success());
    assert!(fs::read(&file).unwrap() == data);
    fs::write(&file, "changed").unwrap();
    let refused = alone("archive");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && said.contains("read-only"), "{said}");
}

#[test]
fn rebuilt_tree_cannot_archive_before_it_takes_over_its_archive() {
    require_mounting!();
    let (tiered, data) = (Tiered::mounted(), noise(73, MIB));
    fs::write(tiered.path("file"), &data).unwrap();
    tiered.of("archive", "");
    tiered.of("tree", "");
    tiered.umount();
    let (archive, again) = (tiered.archive(), tiered.beside("again"));
    let home = tiered.beside("home-again");
    let into = ["--archive", shown(&archive), "--home", shown(&home), shown(&again)];
    let take_over = ["attach", "--take-over", shown(&again), shown(&archive)];
    let made = tiered.ok(&[&["rebuild"], &into[..]].concat());
    let command = format!("fslab tier {}", take_over.join(" "));
    assert!(made.contains("files can be read now; ") && made.contains(&command), "{made}");
    let file = again.join("file");
    tiered.ok(&["recall", shown(&file)]);
    assert!(fs::read(&file).unwrap() == data);
    fs::write(again.join("new"), "new").unwrap();
    for action in ["archive", "release", "tree", "expire"] {
        let (code, message) = run(&["tier", action, shown(&again)]);
        assert!(code == 1 && message.contains(&command), "{action}: {code} {message}");
        assert_eq!(message.lines().count(), 1, "{action}: {message}");
    }
    let told = fslab(&["tier", "archives", "--json", shown(&again)]).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let told: serde_json::Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert_eq!(told["event"], "archive", "{told}");
    assert!(told["refusal"].as_str().unwrap().contains(shown(tiered.tree())), "{told}");
    let told = fslab(&["tier", "archives", shown(&again)]).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains(" readonly plain ") && told.contains(&command), "{told}");

    tiered.place().mount(&["-l", "tier"]);
    let (code, message) = run(&[&["tier"], &take_over[..]].concat());
    assert!(code == 3 && message.contains("is being written by another fslab"), "{message}");
    tiered.umount();
    tiered.ok(&take_over);
    assert!(tiered.ok(&["archive", "-v", shown(&again)]).contains("new"));
    let (code, message) = run(&["tier", "archive", shown(tiered.tree())]);
    assert!(code == 1 && message.contains(shown(&again)), "the message names the owner: {message}");
    tiered.ok(&[
        "rebuild",
        "--take-over",
        "--archive",
        shown(&archive),
        "--home",
        shown(&home),
        shown(&tiered.beside("third")),
    ]);
}

#[test]
fn init_with_more_archives_than_copies_explains_which_are_used() {
    require_mounting!();
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    for (copies, is_said) in [("1", true), ("2", false)] {
        let [tree, home, one, two] =
            ["tree", "home", "one", "two"].map(|name| path(&format!("{name}-{copies}")));
        fs::create_dir(&tree).unwrap();
        let archives = ["--archive", &one, "--archive", &two];
        let arguments = ["tier", "init", "--copies", copies, "--home", &home, &tree];
        let output = fslab(&arguments).args(archives).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said.contains("each file is copied to 1 of 2 archives"), is_said, "{said}");
    }
}

#[test]
fn rebuild_without_an_archived_tree_reports_what_it_made() {
    require_mounting!();
    let tiered = Tiered::mounted();
    for name in ["one", "two", "three"] {
        fs::write(tiered.path(name), name).unwrap();
    }
    tiered.of("archive", "");
    tiered.umount();
    let (home, tree) = (tiered.beside("home-again"), tiered.beside("new"));
    let archive = tiered.archive();
    let [archive, home, tree] = [&archive, &home, &tree].map(|path| path.to_str().unwrap());
    let said = tiered.ok(&["rebuild", "--archive", archive, "--home", home, tree]);
    assert!(said.contains("no archived tree was found"), "{said}");
    assert!(said.contains("made 3 files, 0 directories") && !said.contains("younger"), "{said}");
}

/// The address of an archive can be a URL or a path. A relative URL is relative to the current
/// directory.
#[test]
fn archive_is_named_by_url_or_by_path() {
    require_mounting!();
    let (tiered, data) = twofold();
    let tree = shown(tiered.tree());
    let wrong = ["tier", "attach", tree, "vtl:bucket"];
    let (code, message) = run(&wrong);
    let expected = "fslab: archive 'vtl:bucket': unknown kind of archive; known kinds: dir, s3\n";
    assert_eq!((code, message.as_str()), (3, expected));
    let place = tiered.beside("third one");
    let beside = place.parent().unwrap();
    let attach = fslab(&["tier", "attach", tree, "dir:third%20one"]).current_dir(beside).output();
    let attached = attach.unwrap();
    assert!(attached.status.success(), "{attached:?}");
    let url = format!("dir:{}/third%20one", shown(beside));
    assert!(tiered.ok(&["archives", tree]).trim_end().ends_with(&url));
    tiered.ok(&["tree", tree]);
    let (again, home) = (tiered.beside("again"), tiered.beside("home-again"));
    let first = format!("dir:{}", shown(&tiered.archive()));
    let places = ["--archive", &first, "--home", shown(&home), shown(&again)];
    assert!(tiered.ok(&[&["rebuild"][..], &places[..]].concat()).contains("made 1 file,"));
    let file = again.join("file");
    tiered.ok(&["recall", shown(&file)]);
    assert!(fs::read(&file).unwrap() == data);
}

/// Returns the requests and bytes of each archive, by name.
fn traffic(tiered: &Tiered, tree: &Path) -> BTreeMap<String, BTreeMap<&'static str, u64>> {
    let told = tiered.ok(&["archives", "--json", shown(tree)]);
    let archives =
        told.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let archives = archives.filter(|event| event["event"] == "archive");
    let names = ["put_requests", "get_requests", "sent_bytes", "received_bytes"];
    let counts = |event: &serde_json::Value| {
        names.into_iter().map(|name| (name, event[name].as_u64().unwrap())).collect()
    };
    archives.map(|event| (event["archive"].as_str().unwrap().to_owned(), counts(&event))).collect()
}

/// Returns the state of each archive, as `fslab tier archives` prints it.
fn states(tiered: &Tiered, tree: &Path) -> Vec<String> {
    let told = tiered.ok(&["archives", shown(tree)]);
    // After an empty line, the traffic follows.
    let lines = told.lines().skip(1).take_while(|line| !line.is_empty());
    lines.map(|line| line.split_whitespace().nth(1).unwrap().to_owned()).collect()
}

/// Returns whether no process holds the lease of an archive.
fn is_free(archive: &Path) -> bool {
    let lease = fs::File::open(archive.join("lease")).unwrap();
    lease.try_lock().is_ok()
}

#[test]
fn mounted_tree_changes_from_one_archive_to_another() {
    require_mounting!();
    let (tiered, data) = (Tiered::mounted(), noise(76, 2 * MIB + 5));
    let point = tiered.path("");
    let (first, second) = (tiered.archive(), tiered.beside("second"));
    fs::write(tiered.path("file"), &data).unwrap();
    tiered.of("archive", "");
    tiered.of("release", "");
    let with_copies = ["tier", "attach", "--copies", "2", shown(&point), shown(&second)];
    let (code, message) = run(&with_copies);
    assert!(
        code == 3 && message.contains("is mounted; unmount it to use --take-over,"),
        "{code} {message}"
    );
    let inside = tiered.tree().join("inside");
    let (code, message) = run(&["tier", "attach", shown(&point), shown(&inside)]);
    assert!(code == 3 && message.contains("must lie outside of the tree"), "{code} {message}");
    let around = tiered.tree().parent().unwrap();
    let (code, message) = run(&["tier", "attach", shown(&point), shown(around)]);
    assert!(code == 3 && message.contains(" contains the tree "), "{code} {message}");
    let alone = run(&["tier", "retire", shown(&point), shown(&first)]);
    assert!(alone.0 == 3 && alone.1.contains("archives needed: 1"), "{alone:?}");
    assert_eq!(run(&["tier", "drain", "-n", shown(&point), shown(&first)]), alone);
    let attached = tiered.ok(&["attach", shown(&point), shown(&second)]);
    assert!(attached.contains(" attached ") && attached.contains("/second"), "{attached}");
    assert_eq!(states(&tiered, &point), ["attached", "attached"]);
    let refused = run(&["tier", "detach", shown(&point), shown(&first)]);
    assert!(refused.0 == 3 && refused.1.contains("run `fslab tier drain` first"), "{refused:?}");
    let dry = tiered.ok(&["drain", "-n", shown(&point), shown(&first)]);
    let would = "versions only there 1, copies to make 1, content 2.0 MiB, without another archive \
                 0\n";
    assert!(dry.starts_with(would) && dry.ends_with("\nnothing was changed\n"), "{dry}");
    assert!(dry.contains("\nat least "), "{dry}");
    assert_eq!(states(&tiered, &point), ["attached", "attached"]);
    let plan = tiered.ok(&["drain", "-n", "--json", shown(&point), shown(&first)]);
    let plan = plan.lines().rev().nth(1).unwrap();
    let plan: serde_json::Value = serde_json::from_str(plan).unwrap();
    let before = traffic(&tiered, &point);
    assert!(tiered.ok(&["drain", shown(&point), shown(&first)]).contains(" retired "));
    let after = traffic(&tiered, &point);
    assert_eq!(plan["archives"].as_array().unwrap().len(), 2, "{plan}");
    for planned in plan["archives"].as_array().unwrap() {
        let archive = planned["archive"].as_str().unwrap();
        for (name, count) in &after[archive] {
            let caused = count - before[archive][name];
            assert!(planned[name].as_u64().unwrap() <= caused, "{name}: {caused}: {plan}");
        }
    }
    assert!(
        tiered
            .ok(&["drain", "-n", shown(&point), shown(&first)])
            .starts_with("versions only there 0,")
    );
    assert!(!is_free(&first));
    assert!(tiered.ok(&["detach", shown(&point), shown(&first)]).contains(" detached "));
    assert!(is_free(&first));
    assert_eq!(states(&tiered, &point), ["detached", "attached"]);
    fs::remove_dir_all(&first).unwrap();
    assert!(fs::read(tiered.path("file")).unwrap() == data);
    assert!(
        tiered.of("scrub", "").contains("copies verified 2, repaired 0, damaged 0, copies made 0")
    );
    tiered.umount();
    // The change is also visible while the tree is not mounted, and in a rebuild from the archives
    // only.
    assert_eq!(states(&tiered, tiered.tree()), ["detached", "attached"]);
    let (again, home) = (tiered.beside("again"), tiered.beside("home-again"));
    let places = ["--archive", shown(&second), "--home", shown(&home), shown(&again)];
    assert!(tiered.ok(&[&["rebuild"][..], &places[..]].concat()).contains("made 1 file,"));
    let file = again.join("file");
    tiered.ok(&["recall", shown(&file)]);
    assert!(fs::read(&file).unwrap() == data);
}

/// Drains an archive of an unmounted tree. The command is killed after some copies and restarted.
#[test]
fn killed_drain_resumes_when_it_is_restarted() {
    require_mounting!();
    const FILES: u64 = 8;
    let tiered = Tiered::over(None);
    let (tree, first, second) = (tiered.tree(), tiered.archive(), tiered.beside("second"));
    for number in 0..FILES {
        fs::write(tree.join(format!("file{number}")), noise(80 + number, MIB)).unwrap();
    }
    tiered.ok(&["archive", shown(tree)]);
    tiered.ok(&["release", shown(tree)]);
    tiered.ok(&["attach", shown(tree), shown(&second)]);
    let drain = ["tier", "drain", "--rate", "4MiB", shown(tree), shown(&first)];
    let mut drained = fslab(&drain).spawn().unwrap();
    let copied = || files_below(&second.join("files")).len() as u64;
    soon("two copies are made", || copied() >= 2);
    drained.kill().unwrap();
    drained.wait().unwrap();
    let before = copied();
    assert!(before < FILES, "{before}");
    let detach = ["tier", "detach", shown(tree), shown(&first)];
    assert_eq!(run(&detach).0, 3);
    let whole: Vec<_> = files_below(&second.join("files"));
    let changed = |path: &PathBuf| path.metadata().unwrap().modified().unwrap();
    let dates: Vec<_> = whole.iter().map(changed).collect();
    tiered.ok(&["drain", shown(tree), shown(&first)]);

    assert_eq!(whole.iter().map(changed).collect::<Vec<_>>(), dates, "none is copied again");
    tiered.ok(&["detach", shown(tree), shown(&first)]);
    fs::remove_dir_all(&first).unwrap();
    tiered.ok(&["recall", shown(tree)]);
    for number in 0..FILES {
        let found = fs::read(tree.join(format!("file{number}"))).unwrap();
        assert!(found == noise(80 + number, MIB), "file{number}");
    }
}

/// Returns the files below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files_below(&path)),
            path => found.push(path),
        }
    }
    found
}
