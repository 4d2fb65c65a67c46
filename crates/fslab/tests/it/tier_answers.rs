//! Tests what `fslab tier` prints: refusals, messages, exit codes and names.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use crate::support::{Place, fslab, require_mounting, run, umount_unused};
use crate::tiering::Tiered;

/// Returns a mounted tier with an archived `file`, and the version of an archived file that was
/// removed.
#[track_caller]
fn with_a_removed_file() -> (Tiered, String) {
    let tiered = Tiered::mounted();
    for name in ["file", "removed"] {
        fs::write(tiered.path(name), "data").unwrap();
        tiered.of("archive", name);
    }
    fs::remove_file(tiered.path("removed")).unwrap();
    let versions = tiered.of("versions", "removed");
    let object = versions.split(' ').next().unwrap().to_owned();
    (tiered, object)
}

#[test]
fn a_read_only_mount_refuses_commands_that_change_anything() {
    require_mounting!();
    let (tiered, object) = with_a_removed_file();
    tiered.umount();
    tiered.place().mount(&["-o", "ro", "-l", "tier"]);
    let [point, file, again] = ["", "file", "again"].map(|name| tiered.path(name));
    let [point, file, again] = [&point, &file, &again].map(|path| path.to_str().unwrap());
    for arguments in [
        &["undelete", "-r", point][..],
        &["undelete", &object, again],
        &["pin", file],
        &["unpin", file],
        &["release", file],
        &["recall", file],
        &["archive", file],
        &["scan", point],
        &["expire", point],
    ] {
        let (code, message) = run(&[&["tier"], arguments].concat());
        assert!(code == 3 && message.contains("is mounted read-only"), "{arguments:?}: {message}");
    }
    assert_eq!(fs::read_dir(point).unwrap().count(), 1);
    for command in ["state", "du", "versions", "queue"] {
        let (code, message) = run(&["tier", command, point]);
        assert_eq!(code, 0, "{command}: {message}");
    }
    tiered.umount();
}

/// Returns the exit code of `fslab tier`, its standard output and its standard error.
fn asked(arguments: &[&str]) -> (i32, String, String) {
    let output = fslab(&[&["tier"], arguments].concat()).output().unwrap();
    let [told, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code().unwrap(), told, said)
}

/// Names with control characters don't move the cursor or break lines, and different names are
/// printed differently.
#[test]
fn names_are_printed_distinctly_and_without_control_characters() {
    require_mounting!();
    let tiered = Tiered::mounted();
    let names: [&[u8]; 7] = [
        b"\x1b[31mred",
        b"two\nlines",
        b"b\xff",
        b"b\xfe",
        b"b\\xff",
        b"c\\d",
        "\u{9b}x".as_bytes(),
    ];
    for name in names {
        fs::write(tiered.path("").join(OsStr::from_bytes(name)), "data").unwrap();
    }
    let point = tiered.path("");
    let point = point.to_str().unwrap();
    let (_, told, said) = asked(&["archive", point]);
    let (_, shown, _) = asked(&["state", "-r", point]);
    let (_, versions, _) = asked(&["versions", point]);
    for text in [&told, &said, &shown, &versions] {
        assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'), "{text:?}");
    }
    let mut lines: Vec<_> = shown.lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
    lines.sort_unstable();
    let expected =
        [r"\x1b[31mred", r"\xc2\x9bx", r"b\\xff", r"b\xfe", r"b\xff", r"c\d", r"two\x0alines"];
    assert_eq!(lines, expected);
    let (_, told, _) = asked(&["state", "-r", "--json", point]);
    let events = told.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut paths: Vec<_> =
        events.filter_map(|event| Some(event.get("path")?.as_str()?.to_owned())).collect();
    paths.sort_unstable();
    let mut expected =
        ["\x1b[31mred", "\u{9b}x", r"b\\xff", r"b\xfe", r"b\xff", r"c\d", "two\nlines"];
    expected.sort_unstable();
    assert_eq!(paths, expected);
    let missing = tiered.path("no\x1b[1m");
    let (_, _, said) = asked(&["state", missing.to_str().unwrap()]);
    assert!(said.contains(r"no\x1b[1m"), "{said:?}");
    tiered.umount();
}

#[test]
fn damaged_or_missing_catalogue_message_suggests_a_scan() {
    require_mounting!();
    let tiered = Tiered::mounted();
    fs::write(tiered.path("file"), "data").unwrap();
    tiered.of("archive", "file");
    tiered.umount();
    let (catalogue, aside) = (tiered.beside("home/catalogue.redb"), tiered.beside("aside"));
    let whole = fs::read(&catalogue).unwrap();
    let tree = tiered.tree().to_str().unwrap();
    let (half, junk) = (whole[..whole.len() / 2].to_vec(), [&whole[..64], &[7; 40_000]].concat());
    for damaged in [half, junk, [b"junk", &whole[4..]].concat()] {
        fs::write(&catalogue, damaged).unwrap();
        let mounted = tiered.place().try_mount(&["-l", "tier"]);
        for (code, message) in [run(&["tier", "scan", tree]), mounted] {
            let told = "home/catalogue.redb: is damaged";
            assert!(code == 1 && message.contains(told), "{code} {message}");
            assert!(message.contains("rename it, then run `fslab tier scan`"), "{message}");
        }
    }
    fs::rename(&catalogue, aside).unwrap();
    let (code, message) = tiered.place().try_mount(&["-l", "tier"]);
    assert!(code == 0 && message.contains("run `fslab tier scan`"), "{message}");
    tiered.ok(&["scan", tiered.path("").to_str().unwrap()]);
    assert!(tiered.of("versions", "file").contains(" live "));
    tiered.umount();
    tiered.place().mount(&["-l", "tier"]);
    tiered.umount();
}

#[test]
fn bad_input_and_missing_privilege_have_distinct_exit_codes() {
    require_mounting!();
    let (tiered, object) = with_a_removed_file();
    let [point, file, missing, key, lost, home, archive] = [
        tiered.path(""),
        tiered.path("file"),
        tiered.path("missing"),
        tiered.beside("key"),
        tiered.beside("lost"),
        tiered.beside("home2"),
        tiered.beside("archive2"),
    ]
    .map(|path| path.to_str().unwrap().to_owned());
    let policy = tiered.beside("policy.toml").to_str().unwrap().to_owned();
    fs::write(&policy, "wrong = 1\n").unwrap();
    tiered.ok(&["key", &key]);
    let init = ["init", "--archive", &archive, "--home", &home];
    for (arguments, part) in [
        (&["policy", &point][..], "can't read the policy"),
        (&["policy", "--file", &policy, &point], "wrong"),
        (&["policy", "--file", &lost, &point], "can't read the policy"),
        (&["state", &missing], "missing does not exist"),
        (&["archive", &file, &missing], "missing does not exist"),
        (&["archive", &lost], "lost does not exist"),
        (&["key", &key], "exists"),
        (&["undelete", &object, &file], "file: exists"),
        (&["undelete", &object, &format!("{file}/again")], "file/again"),
        (&[&init[..], &[&lost]].concat(), "lost"),
        (&[&init[..], &[&key]].concat(), "key"),
        (&["attach", "--key", &lost, &lost, &archive], "lost"),
    ] {
        let (code, message) = run(&[&["tier"], arguments].concat());
        assert!(code == 3 && message.contains(part), "{arguments:?}: {code} {message}");
    }
    let in_use = fs::File::create(tiered.path("in-use")).unwrap();
    let (code, told, said) = asked(&["archive", "--json", tiered.path("in-use").to_str().unwrap()]);
    drop(in_use);
    let end: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert!(code == 1 && told.contains(r#""event":"problem""#), "{code} {told} {said}");
    assert!(end["event"] == "end" && end["code"] == 1, "{end}");
    assert!(end["error"].as_str().unwrap().contains("could not be processed"), "{end}");
    let (code, told, _) = asked(&["policy", "--json", "--file", &policy, &point]);
    let end: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert!(code == 3 && end["code"] == 3 && end["error"].is_string(), "{end}");
    // The message for a killed daemon suggests replacing the mount.
    tiered.place().kill_daemon();
    assert!(run(&["tier", "queue", &point]).0 != 0);
    let (code, message) = run(&["tier", "state", &file]);
    assert!(code == 1 && message.contains("-o replace"), "{message}");
    // A new mount removes the sockets that dead daemons left.
    Place::mounted(&["-l", "stats"]).umount();
    let (code, message) = run(&["tier", "state", &file]);
    assert!(code == 1 && message.contains("is dead; replace the mount"), "{message}");
    umount_unused(&tiered.place().point);
}

/// If another user, who may not read the archive, runs the command, the error is a missing
/// privilege.
#[test]
fn unreadable_archive_is_reported_as_missing_privilege() {
    require_mounting!();
    let tiered = Tiered::mounted();
    tiered.umount();
    let archive = tiered.archive().to_str().unwrap().to_owned();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_fslab")])
        .args([
            "tier",
            "rebuild",
            "--archive",
            &archive,
            "--home",
            "/tmp/none/home",
            "/tmp/none/tree",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(4) && said.contains("denied"), "{said}");
}
