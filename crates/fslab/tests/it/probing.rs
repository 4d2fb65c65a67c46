//! `fslab probe`: answers, refusals, and nothing left behind.

use std::process::Command;

use crate::support::run;

const BAD_INPUT: i32 = 3;

#[test]
fn answers_come_as_json_and_nothing_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fslab"))
        .args(["probe", path, "--json", "--only", "name-length-max,case"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let attribute = &answers["attributes"][0];
    assert_eq!(attribute["name"], "name-length-max");
    assert_eq!(attribute["answer"], serde_json::json!({ "kind": "bytes", "value": 255 }));
    assert_eq!(attribute["confidence"], "agreed");
    assert_eq!(answers["attributes"][1]["answer"]["value"], "sensitive");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_can_not_be_probed_is_named() {
    let refused = |arguments: &[&str], part: &str| {
        let (code, message) = run(arguments);
        assert_eq!(code, BAD_INPUT, "{message}");
        assert!(message.contains(part), "{message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    };
    refused(&["probe", "/no/such"], "/no/such: no directory");
    refused(&["probe", "/", "--only", "colour"], "no attribute 'colour'; there is: block-size");
    refused(&["probe", "/", "--budget", "1MiB"], "must be at least 16 MiB");
}
