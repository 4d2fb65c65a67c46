//! Tests that the claims on ageing find their figures in the output of commands, and that a claim
//! fails if its figures are changed on purpose (a planted error).

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::reproducing::{done, row};
use crate::support::fslab;

const SIMULATE: [&str; 5] = ["age", "simulate", "--profile", "smith97", "--json"];

/// Returns the output of a simulation of the paper's volume, with additional arguments.
#[track_caller]
fn simulated(place: &TempDir, arguments: &[&str]) -> Value {
    let arguments = [&SIMULATE[..], &["--sequential"], arguments].concat();
    serde_json::from_str(&done(place, &arguments)).unwrap()
}

/// Judges the claims by these outputs of commands. Returns the paper's page as JSON.
#[track_caller]
fn judged(place: &TempDir, answers: &Value) -> Value {
    fs::write(place.path().join("answers.json"), answers.to_string()).unwrap();
    done(place, &["reproduce", "aging", "--samples", "."]);
    serde_json::from_slice(&fs::read(place.path().join("aging.json")).unwrap()).unwrap()
}

#[track_caller]
fn verdict(page: &Value, id: &str) -> String {
    let row = page["rows"].as_array().unwrap().iter().find(|row| row["id"] == id).unwrap();
    row["agreement"].as_str().unwrap().to_owned()
}

/// Returns whether one of the verified file systems has only contiguous files. Then the ratio of
/// non-contiguous blocks is undefined. After only three simulated days, this depends on when the
/// kernel wrote back dirty pages.
fn is_unbroken(answers: &Value) -> bool {
    let repeats = answers["verification"]["Ok"]["repeats"].as_array().unwrap();
    let sides = repeats.iter().flat_map(|repeat| [&repeat["real"], &repeat["simulated"]]);
    sides.into_iter().any(|side| side["broken"] == 0.0)
}

/// A few simulated days give figures for all claims and charts that need no plan.
#[test]
fn every_claim_on_ageing_without_a_plan_finds_its_figure() {
    let place = TempDir::new().unwrap();
    let days = ["--days", "6"];
    let mut answers = json!({
        "simulation": { "Ok": simulated(&place, &days) },
        "engine": { "Ok": simulated(&place, &[&days[..], &["--engine"]].concat()) },
    });
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        let verification = ["age", "verify-method", "--rounds", "3", "--volume", "64MiB"];
        let verification = [&verification[..], &["--repeats", "2", "--json"]].concat();
        let answer: Value = serde_json::from_str(&done(&place, &verification)).unwrap();
        answers["verification"] = json!({ "Ok": answer });
    } else {
        fslab_vfs_testing::skip::skip("fslab::aging_claims, verification", "not root");
    }
    let page = judged(&place, &answers);
    let (mut read, mut lacking) = (0, Vec::new());
    for (claim, row) in
        page["paper"]["claims"].as_array().unwrap().iter().zip(page["rows"].as_array().unwrap())
    {
        let from = &claim["basis"]["command"]["from"];
        if from.is_string() && (is_root || from != "verification") {
            read += 1;
            let undefined = row["id"] == "verification-broken" && is_unbroken(&answers);
            if row["outcome"].get("figures").is_none() && !undefined {
                lacking.push(row);
            }
        }
    }
    assert!(lacking.is_empty() && read > 45, "{read}: {lacking:?}");
    let drawn = fs::read_dir(place.path().join("figures")).unwrap().count();
    assert_eq!(drawn, if is_root { 12 } else { 10 }, "charts of commands");
}

/// If the names of both policies are swapped, the claims that compare the policies fail.
#[test]
fn swapped_policies_fail_the_claims_that_compare_them() {
    let place = TempDir::new().unwrap();
    let answer = simulated(&place, &["--fragment-size", "1024", "--clustering", "smart"]);
    let mut swapped = answer.clone();
    for row in swapped.as_array_mut().unwrap() {
        let other = if row["policy"] == "ffs" { "ffs-noswitch" } else { "ffs" };
        row["policy"] = json!(other);
    }
    let of = |answer: &Value| judged(&place, &json!({ "simulation": { "Ok": answer } }));
    let (truth, untruth) = (of(&answer), of(&swapped));
    for (id, expected) in [
        // The rates of NoSwitch for reading and creating also drop, though less than those of FFS.
        // So these claims agree even with the swapped names.
        ("dip-read", "agrees"),
        ("dip-create", "agrees"),
        ("dip-gone", "differs"),
        ("hot-gain-read", "differs"),
        ("hot-gain-overwrite", "differs"),
    ] {
        assert_eq!(verdict(&truth, id), "agrees", "{id}");
        assert_eq!(verdict(&untruth, id), expected, "{id}");
    }
    assert_eq!(verdict(&truth, "split-ratio"), "same_direction");
    for id in ["split-ratio", "hot-split-ratio"] {
        assert_eq!(verdict(&untruth, id), "differs", "{id}");
    }
    for id in ["noswitch-read-aged", "noswitch-create-aged"] {
        let points = |page: &Value| {
            let rows = page["rows"].as_array().unwrap();
            let row = rows.iter().find(|row| row["id"] == id).unwrap();
            let points = row["points"].as_array().unwrap();
            points.iter().filter(|point| **point == "agrees").count()
        };
        assert!(points(&truth) >= 6 && points(&untruth) <= 3, "{id}");
    }
}

/// Each of three planted errors makes claims fail. The figures of smart and dumb clustering are
/// swapped. Files of 104 KB are as fast as files of 96 KB. The simulated layout differs from the
/// real one. With only one repeat, the verification is not decided.
#[test]
fn planted_errors_in_clustering_dip_and_verification_fail_claims() {
    let place = TempDir::new().unwrap();
    let rows = |smart: f64, dumb: f64, beyond: f64| {
        let of = |clustering: &str, read: f64| {
            let size = |bytes: u64, rate: f64| {
                let (read, create) = ("modelled_read", "modelled_create");
                json!({ "size_bytes": bytes, read: rate, create: rate })
            };
            let sizes = [size(16_384, read), size(98_304, read), size(106_496, read * beyond)];
            json!({ "policy": "ffs", "clustering": clustering, "sequential": { "aged": sizes } })
        };
        json!({ "Ok": [of("smart", smart), of("dumb", dumb)] })
    };
    let verified = |ratio: Value| {
        let over_time = json!([{ "round": 1, "ratio": ratio }]);
        let by_size = json!([{ "from_bytes": 8192, "ratio": ratio }]);
        json!({ "Ok": { "compared": {
            "over_time": over_time, "by_size": by_size, "broken": ratio
        } } })
    };
    let page = |rows: Value, ratio: Value| {
        judged(&place, &json!({ "engine": rows, "verification": verified(ratio) }))
    };
    let interval = |low: f64, high: f64| json!({ "low": low, "high": high });
    let truth = page(rows(2.0, 1.5, 0.9), interval(0.998, 1.002));
    let untruth = page(rows(1.5, 2.0, 1.0), interval(0.9, 0.91));
    let verifications = ["verification-score", "verification-broken", "verification-by-size"];
    let engine = ["clustering-gain-engine", "dip-read-engine", "dip-create-engine"];
    for id in verifications.into_iter().chain(engine) {
        assert_eq!(verdict(&truth, id), "agrees", "{id}");
        assert_eq!(verdict(&untruth, id), "differs", "{id}");
    }
    let once = page(rows(2.0, 1.5, 0.9), json!({ "value": 1.0 }));
    for id in verifications {
        assert_eq!(verdict(&once, id), "not_decided", "{id}");
    }
}

const PLAN: &str = include_str!("../../../../plans/aging-policies.toml");
const AGED: &str = "aged = \"aged-{policy}.zst\"";

/// Runs the plan `aging-policies` with an additional line in its target, and judges the claims.
/// Returns the messages of the comparison.
#[track_caller]
fn compared(place: &TempDir, change: &str) -> String {
    let text = PLAN.replace(AGED, &format!("{AGED}\n{change}"));
    fs::write(place.path().join("plan.toml"), text).unwrap();
    let out = place.path().join("aging-policies");
    if out.exists() {
        fs::remove_dir_all(&out).unwrap();
    }
    let mut arguments = vec!["compare", "plan.toml", "--quick", "--rounds", "2", "--seed", "7"];
    arguments.extend(["--reruns", "0", "--only-workload", "hot-files", "--out", "aging-policies"]);
    arguments.extend(["--work-dir", "."]);
    let mut command = fslab(&arguments);
    command.current_dir(place.path()).env("FSLAB_CACHE", place.path());
    let output = command.output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    // The exit code is ignored: the judged claims show missing measurements.
    let mut command = fslab(&["reproduce", "aging", "--samples", "."]);
    command.current_dir(place.path()).output().unwrap();
    messages
}

/// An image of another workload, or one that another policy aged, must not be measured, even if it
/// has the name of the requested image. The claim then has no figure.
#[test]
fn an_image_of_another_policy_or_workload_fails_the_claim() {
    if crate::support::can_not_mount("fslab::aging_claims, images") {
        return;
    }
    let place = TempDir::new().unwrap();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let profile = ["age", "profile", "smith97", "--volume", "32MiB", "--days", "4", "-o"];
    let made = done(&place, &[&profile[..], &["smith97.parquet"]].concat());
    let hash = made.lines().find_map(|line| line.strip_prefix("hash ")).unwrap();
    done(&place, &[&profile[..], &["other.parquet", "--seed", "5"]].concat());
    let hot = ["age", "show", "--hot-days", "2", "--output", "aged-hot.txt", "smith97.parquet"];
    done(&place, &hot);
    let image = |policy: &str, workload: &str| {
        let output = format!("aged-{policy}.zst");
        let make = ["age", "image", "make", "-f", "ext2", "--policy", policy, "-o", &output];
        let how = ["--clustering", "smart", "--group-size", "11280KiB", workload];
        done(&place, &[&make[..], &how].concat());
    };
    image("ffs", "smith97.parquet");
    image("ffs-noswitch", "smith97.parquet");
    let said = |place: &TempDir| {
        let row = row(place, "aging", "hot-gain-read-mounted");
        (
            row["agreement"].as_str().unwrap().to_owned(),
            row["sentence"].as_str().unwrap().to_owned(),
        )
    };
    let messages = compared(&place, "");
    let (agreement, sentence) = said(&place);
    assert!(agreement != "missing", "{sentence} {messages}");
    let samples = fs::read_to_string(place.path().join("aging-policies/samples.jsonl")).unwrap();
    assert!(samples.contains("?policy=ffs-noswitch&clustering=smart"), "the engine's options");
    let is_cold =
        |line: &str| line.contains("\"phase\":\"read\"") && line.contains("\"proven\":true");
    assert_eq!(samples.lines().filter(|line| is_cold(line)).count(), 6, "{samples}");

    image("ffs-noswitch", "other.parquet");
    compared(&place, &format!("aged_workload = \"{hash}\""));
    let (agreement, sentence) = said(&place);
    let expected = format!("was not aged by the workload {hash}");
    assert!(agreement == "missing" && sentence.contains(&expected), "{sentence}");

    fs::copy(at("aged-ffs.zst"), at("aged-ffs-noswitch.zst")).unwrap();
    compared(&place, "");
    let (agreement, sentence) = said(&place);
    let expected = "was aged under the policy ffs smart, but `engine` requests ffs-noswitch";
    assert!(agreement == "missing" && sentence.contains(expected), "{sentence}");
}
