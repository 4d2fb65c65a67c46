//! Tests `fslab status`, `fslab doctor`, and `fslab stats` with --watch and --listen.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Place, fslab, require_mounting, run, soon};
use crate::tiering::Tiered;

fn json(words: &[&str]) -> Value {
    let output = fslab(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn status_describes_a_mount_and_its_daemon() {
    require_mounting!();
    let place = Place::mounted(&["-l", "zstd:level=5", "-l", "stats", "-o", "noatime"]);
    let point = place.point.to_str().unwrap();
    let status = json(&["status", "--json", point]);
    let daemon = &status["daemon"];
    assert_eq!(status["health"], "ok", "{status}");
    assert_eq!(daemon["layers"], serde_json::json!(["zstd:level=5", "stats"]));
    assert!(daemon["modes"].is_array());
    assert_eq!(daemon["cautions"], serde_json::json!([]), "neither layer is experimental");
    let listed = json(&["status", "--json"]);
    let mounts = listed["mounts"].as_array().unwrap();
    assert!(mounts.iter().any(|mount| mount["mount_point"] == status["mount_point"]), "{listed}");
    let text = fslab(&["status"]).env("COLUMNS", "200").output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("zstd:level=5 / stats"), "{text}");
    place.umount();
}

#[test]
fn status_names_experimental_layers() {
    require_mounting!();
    let tiered = Tiered::mounted();
    let point = tiered.path("").to_str().unwrap().to_owned();
    let status = json(&["status", "--json", &point]);
    let caution = status["daemon"]["cautions"][0].as_str().unwrap().to_owned();
    assert!(caution.starts_with("layer tier: experimental"), "{caution}");
    let text = fslab(&["status"]).env("COLUMNS", "200").output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("caution: layer tier"), "{text}");
    tiered.umount();
}

/// If the name of a mount point contains control characters, they are not printed.
#[test]
fn control_characters_in_mount_names_are_not_printed() {
    require_mounting!();
    let place = Place::new();
    let point = place.lower.with_file_name("a\u{1b}[31mb\nc");
    fs::create_dir(&point).unwrap();
    let names = [place.lower.to_str().unwrap(), point.to_str().unwrap()];
    assert_eq!(run(&[&["mount"], &names[..]].concat()), (0, String::new()));
    let shown = |words: &[&str]| {
        let output = fslab(words).env("COLUMNS", "500").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let told = [shown(&["status"]), shown(&["status", names[1]])];
    assert_eq!(run(&["umount", names[1]]), (0, String::new()));
    for told in told {
        let end = told.lines().find(|line| line.contains("31mb")).unwrap();
        assert!(end.contains("31mb") && end.contains('c') && !told.contains('\u{1b}'), "{told:?}");
    }
}

/// Daemons that were killed or stopped are reported as such.
#[test]
fn a_dead_and_a_stopped_daemon_are_reported() {
    require_mounting!();
    let place = Place::mounted(&["-l", "stats"]);
    let point = place.point.to_str().unwrap();
    let pid = json(&["status", "--json", point])["daemon"]["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(pid as i32).unwrap();
    let health = || json(&["status", "--json", point])["health"].clone();
    kill_process(pid, Signal::STOP).unwrap();
    let stopped = health();
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(stopped, "no answer");
    assert_eq!(health(), "ok");
    kill_process(pid, Signal::KILL).unwrap();
    crate::support::soon("the status of the mount is dead", || health() == "dead");
    place.umount();
}

#[test]
fn doctor_reports_a_working_trial_mount() {
    require_mounting!();
    let found = json(&["doctor", "--json"]);
    let checks = found["checks"].as_array().unwrap();
    let state = |name: &str| checks.iter().find(|one| one["name"] == name).map(|one| &one["state"]);
    assert_eq!(state("trial mount"), Some(&"yes".into()), "{found}");
    assert!(state("passthrough").is_some() && state("ext4").is_some(), "{found}");
}

#[test]
fn stats_are_watched_and_served() {
    require_mounting!();
    let place = Place::mounted(&["-l", "stats"]);
    let point = place.point.to_str().unwrap();
    let mut command = fslab(&["stats", "--watch", "200ms", point]);
    let mut watch = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    // Once the first heading is printed, counting has started. So a later interval contains the
    // lookup.
    lines.next().unwrap().unwrap();
    std::fs::metadata(place.point.join("missing")).unwrap_err();
    let seen = lines.map_while(Result::ok).take(40).find(|line| line.contains("ENOENT: 1"));
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(seen.is_some(), "the failed lookup was not seen");

    let mut command = fslab(&["stats", "--listen", "127.0.0.1:0", point]);
    let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut told = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut told).unwrap();
    let address = told.trim().split('/').nth(2).unwrap().to_owned();
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let metrics = ask("/metrics");
    let (missing, status) = (ask("/other"), metrics.lines().next().unwrap().to_owned());
    assert!(status.ends_with("200 OK") && metrics.contains("fslab_operations_total{"), "{metrics}");
    assert!(missing.lines().next().unwrap().contains(" 404 "), "{missing}");
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success(), "a signal ends the server cleanly");
    let (code, message) = run(&["stats", "--listen", "192.0.2.1:80", point]);
    assert!(code == 3 && message.contains("only loopback"), "{message}");
    place.umount();
}

/// A server replaces the socket of a killed server, but neither a socket in use nor a file.
#[test]
fn metrics_server_replaces_only_a_leftover_socket() {
    require_mounting!();
    let place = Place::mounted(&["-l", "stats"]);
    let [left, used, file] = ["left", "used", "file"].map(|name| place.lower.with_file_name(name));
    drop(UnixListener::bind(&left).unwrap());
    let _other = UnixListener::bind(&used).unwrap();
    fs::write(&file, "text").unwrap();
    let listen = |path: &Path| {
        let address = format!("unix:{}", path.display());
        fslab(&["stats", "--listen", &address, place.point.to_str().unwrap()])
    };
    for path in [&used, &file] {
        let output = listen(path).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(3) && message.contains("in use"), "{message}");
    }
    assert!(UnixStream::connect(&used).is_ok() && fs::read(&file).unwrap() == b"text");
    let mut server = listen(&left).stderr(Stdio::piped()).spawn().unwrap();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut String::new()).unwrap();
    fs::metadata(place.point.join("missing")).unwrap_err();
    let mut stream = UnixStream::connect(&left).unwrap();
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success() && !left.exists());
    assert!(answer.contains("fslab_operations_total{"), "{answer}");
    place.umount();
}

#[test]
fn a_watch_ends_with_the_mount() {
    require_mounting!();
    let place = Place::mounted(&["-l", "stats"]);
    let mut command = fslab(&["stats", "--watch", "100ms", place.point.to_str().unwrap()]);
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    place.umount();
    soon("the watch has ended", || watch.try_wait().unwrap().is_some());
    let mut message = String::new();
    watch.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(0), "{message}");
    assert!(message.ends_with(" has ended\n") && message.lines().count() == 1, "{message}");
}
