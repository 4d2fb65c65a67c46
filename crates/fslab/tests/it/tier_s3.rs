//! Tests a tier whose archive is in an S3 store, as a user sees it.

use std::fs;
use std::process::{Command, Output};

use fslab_s3::testing::{ACCESS_KEY, BUCKET, SECRET_KEY, Server};

use crate::support::{Place, can_not_mount, fslab};
use crate::tiering::noise;
use fslab_vfs_testing::skip::skip;

const MIB: usize = 1 << 20;

/// Returns the program with the credentials of a server, and without those of this machine.
pub fn with_store(arguments: &[&str], port: u16) -> Command {
    let mut command = fslab(arguments);
    without_credentials(&mut command);
    command
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"));
    command
}

fn without_credentials(command: &mut Command) {
    for name in ["AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"] {
        command.env_remove(name);
    }
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"] {
        command.env_remove(name);
    }
    command.env("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials");
    command.env("AWS_CONFIG_FILE", "/nonexistent/config");
}

#[track_caller]
pub fn done(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}: {errors}");
    for text in [&stdout, &stderr] {
        assert!(!String::from_utf8_lossy(text).contains(SECRET_KEY), "a secret is shown");
    }
    String::from_utf8_lossy(&stdout).into_owned()
}

/// Files are archived, released and recalled. Then the daemon is killed and the tree is mounted
/// again. Finally, the disk is lost and the tree is rebuilt from the bucket alone.
#[test]
fn tier_over_seaweedfs_survives_kills_and_the_loss_of_its_disk() {
    const TEST: &str = "tier_s3::seaweedfs";
    if can_not_mount(TEST) {
        return;
    }
    let server = match Server::seaweedfs() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return skip(TEST, &format!("{error}; `cargo xtask setup` installs it"));
        }
        server => server.unwrap(),
    };
    let fslab = |arguments: &[&str]| done(&mut with_store(arguments, server.port()));
    let mut place = Place::new();
    let beside = tempfile::tempdir().unwrap();
    let path = |name: &str| beside.path().join(name).to_str().unwrap().to_owned();
    let (home, archive) = (path("home"), format!("s3://{BUCKET}/tier;lease=5"));
    let (lower, point) = (place.lower.to_str().unwrap().to_owned(), place.point.clone());
    let point = point.to_str().unwrap();
    fslab(&["tier", "init", "--archive", &archive, "--home", &home, &lower]);
    let settings = fs::read_to_string(format!("{home}/tier.toml")).unwrap();
    assert!(settings.contains("address = \"s3://") && !settings.contains(SECRET_KEY), "{settings}");

    fslab(&["mount", "-l", "tier", &lower, point]);
    let large = noise(11, 9 * MIB + 5);
    let file = |place: &Place, name: &str| place.point.join(name);
    fs::write(file(&place, "large"), &large).unwrap();
    (0..50_u8).for_each(|n| fs::write(file(&place, &format!("small{n}")), [n; 300]).unwrap());
    fslab(&["tier", "archive", point]);
    fslab(&["tier", "tree", point]);
    fslab(&["tier", "release", point]);
    let state = fslab(&["tier", "state", "-r", point]);
    assert!(state.lines().any(|line| line.starts_with('A') && line.contains("large")), "{state}");
    assert!(fs::read(file(&place, "large")).unwrap() == large);
    assert_eq!(fs::read(file(&place, "small7")).unwrap(), [7; 300]);

    // A killed process leaves its lease behind. The next process on the same machine does not wait
    // for it.
    fslab(&["tier", "release", point]);
    place.kill_daemon();
    fslab(&["mount", "-o", "replace", "-l", "tier", &lower, point]);
    assert!(fs::read(file(&place, "large")).unwrap() == large);
    fslab(&["umount", point]);

    // Remove the tree and the catalogue, as if their disk were lost.
    fs::remove_dir_all(&home).unwrap();
    fs::remove_dir_all(&place.lower).unwrap();
    let (new, again) = (path("new"), path("home-again"));
    let rebuild = ["tier", "rebuild", "--take-over", "--archive", &archive, "--home", &again, &new];
    let told = fslab(&rebuild);
    assert!(told.contains("made 51 files"), "{told}");
    place.lower = new.clone().into();
    fslab(&["mount", "-l", "tier", &new, point]);
    assert!(fs::read(file(&place, "large")).unwrap() == large);
    assert_eq!(fs::read(file(&place, "small49")).unwrap(), [49; 300]);
    fs::write(file(&place, "later"), "after the loss").unwrap();
    fslab(&["tier", "archive", point]);
    fslab(&["tier", "scrub", point]);
    fslab(&["umount", point]);
}

#[test]
fn missing_credentials_are_one_line_and_exit_code_4() {
    let (tree, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (tree, home) = (tree.path().to_str().unwrap(), beside.path().join("home"));
    let home_name = home.to_str().unwrap();
    let init = |archive: &str, change: &dyn Fn(&mut Command)| {
        let arguments = ["tier", "init", "--archive", archive, "--home", home_name, tree];
        let mut command = fslab(&arguments);
        without_credentials(&mut command);
        change(&mut command);
        let Output { status, stderr, .. } = command.output().unwrap();
        let message = String::from_utf8_lossy(&stderr).into_owned();
        assert_eq!(message.lines().count(), 1, "{message}");
        (status.code().unwrap_or(-1), message)
    };
    let (code, message) = init("s3://bucket/prefix", &|_| ());
    assert!(code == 4 && message.contains("no credentials: set AWS_ACCESS_KEY_ID"), "{message}");
    let (code, message) = init("s3://bucket/prefix", &|command| {
        command.env("AWS_ACCESS_KEY_ID", "id").env("AWS_SECRET_ACCESS_KEY", "sec");
        command.env("AWS_ENDPOINT_URL", "http://192.0.2.1");
    });
    assert!(code == 4 && message.contains(";plain-http=yes"), "{code} {message}");
    let (code, message) = init("s3://bucket", &|_| ());
    assert!(code == 3 && message.contains("it has no prefix"), "{code} {message}");
    assert!(!home.exists(), "a home was made");
}
