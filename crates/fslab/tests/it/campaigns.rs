//! Tests `fslab campaign` from a user's point of view: creating, running in shares, reporting, and
//! submitting to a scheduler.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::scratch::Scratch;

const FAILURE: i32 = 1;
const BAD_INPUT: i32 = 3;
const MISSING: i32 = 4;

const PLAN: &str = "name = \"small\"\nrounds = 4\nrounds_max = 8\nnoise_floor = false\n\
    [[target]]\nname = \"memory\"\nin_process = \"mem:\"\n\
    [[target]]\nname = \"memory under null\"\nin_process = \"null / mem:\"\n\
    [[workload]]\nname = \"stream\"\nsize = \"64 KiB\"\nrequest = \"4 KiB\"\n";

/// Makes a directory with a plan and its campaign. The program's PATH contains only the programs
/// that the test provides.
fn campaign() -> Scratch {
    let scratch = Scratch::with_plan(PLAN, ("PATH", "bin"));
    let told = scratch.done(&["campaign", "new", "plan.toml", "run"]);
    assert!(told.contains("8 cells in 4 blocks of 2 targets"), "{told}");
    assert!(told.contains("`rounds_max` of the plan does not apply"), "{told}");
    scratch
}

impl Scratch {
    #[track_caller]
    fn refused(&self, arguments: &[&str], code: i32, text: &str) {
        let (found, _, message) = self.fslab(arguments);
        assert_eq!(found, code, "{message}");
        assert!(message.contains(text) && message.lines().count() == 1, "{message}");
    }

    fn run(&self, share: &str) -> Vec<String> {
        let words = ["campaign", "run", "run", "--work-dir", ".", "--lock", "host.lock", "--share"];
        words.into_iter().chain([share]).map(str::to_owned).collect()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.done(&["campaign", "status", "run", "--json"])).unwrap()
    }
}

#[test]
fn shares_are_run_and_reported() {
    let scratch = campaign();
    let share = |share: &str| {
        let words = scratch.run(share);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, _, messages) = scratch.fslab(&words);
        assert_eq!(code, 0, "{messages}");
        messages
    };
    let told = scratch.done(&["campaign", "status", "run"]);
    assert!(told.contains("not complete, 8 cells: 0 done"), "{told}");
    scratch.refused(
        &["campaign", "report", "run"],
        BAD_INPUT,
        "the campaign has no finished block",
    );
    share("1/2");
    let half = scratch.status();
    assert_eq!((&half["missing"], &half["is_complete"]), (&4.into(), &false.into()));
    assert!(half["time_left_seconds"].is_number(), "{half}");
    let told = scratch.done(&["campaign", "report", "run"]);
    assert!(told.contains("4 of 8 cells are missing"), "{told}");
    let again = share("1/2");
    assert!(again.contains("all its blocks are done"), "{again}");
    share("2/2");
    let told = scratch.done(&["campaign", "status", "run"]);
    assert!(told.contains("small: complete, 8 cells"), "{told}");
    let told = scratch.done(&["campaign", "report", "run", "--html", "page.html"]);
    assert!(told.contains("all 4 rounds") && told.contains("memory under null"), "{told}");
    assert!(fs::read_to_string(scratch.path("page.html")).unwrap().contains("small"));
}

#[test]
fn local_shares_run_one_after_another() {
    let scratch = campaign();
    let dry = scratch.done(&["campaign", "submit", "run", "--local", "2", "-n"]);
    assert_eq!(dry.lines().count(), 2);
    assert!(dry.contains("campaign run run --share 2/2"), "{dry}");
    let dry = scratch.done(&["campaign", "submit", "run", "-n", "--retry", "--wait"]);
    assert!(dry.contains(" --share 1/1 ") && dry.contains(" --retry --wait"), "{dry}");
    assert_eq!(scratch.status()["missing"], 8);
    let here = ["--work-dir", ".", "--lock", "host.lock"];
    scratch.done(&[&["campaign", "submit", "run", "--local", "3"][..], &here].concat());
    let status = scratch.status();
    assert_eq!((&status["missing"], &status["failed"]), (&0.into(), &0.into()), "{status}");
    assert_eq!(status["hosts"][0]["attempts"], 3);
}

/// Returns a plan with a target on which a workload fails.
fn failing(scratch: &Scratch) -> String {
    format!(
        "{PLAN}[[target]]\nname = \"here\"\ndirectory = \"{}\"\n\
         [[workload]]\nname = \"command\"\ncommand = [\"/bin/false\"]\n",
        scratch.path(".")
    )
}

/// Refused campaigns have the messages and exit codes that the guide lists.
#[test]
fn refused_campaigns_print_one_line_and_the_documented_code() {
    let scratch = campaign();
    let share = scratch.run("1/1");
    let share: Vec<&str> = share.iter().map(String::as_str).collect();
    scratch.refused(&["campaign", "new", "plan.toml", "run"], BAD_INPUT, "not empty");
    let held = std::fs::File::create(scratch.path("host.lock")).unwrap();
    held.lock().unwrap();
    scratch.refused(&share, BAD_INPUT, "a campaign is running on this host");
    drop(held);
    let nowhere = ["campaign", "run", "run", "--share", "1/1", "--work-dir", "."];
    let nowhere = [&nowhere[..], &["--lock", "none/host.lock"]].concat();
    scratch.refused(&nowhere, MISSING, "no directory for the lock");
    let record = scratch.path("run/campaign.json");
    let text = fs::read_to_string(&record).unwrap();
    let frozen: Value = serde_json::from_str(&text).unwrap();
    let build = frozen["program"]["blake3"].as_str().unwrap();
    fs::write(&record, text.replace(build, &"0".repeat(64))).unwrap();
    scratch.refused(&share, BAD_INPUT, "--other-build");
    fs::write(&record, &text).unwrap();
    let plan = scratch.path("run/plan.toml");
    fs::write(&plan, PLAN.replace("64 KiB", "32 KiB")).unwrap();
    scratch.refused(&share, BAD_INPUT, "has changed since the campaign was made");
    fs::write(&plan, PLAN).unwrap();
    fs::write(scratch.path("failing.toml"), failing(&scratch)).unwrap();
    scratch.done(&["campaign", "new", "failing.toml", "failing"]);
    let share = ["campaign", "run", "failing", "--share", "1/1", "--work-dir", "."];
    let (code, _, message) = scratch.fslab(&[&share[..], &["--lock", "host.lock"]].concat());
    assert!(code == FAILURE && message.contains("failed: here"), "{code}: {message}");
}

/// If one share fails, the other shares are still run. Here every share fails.
#[test]
fn other_shares_run_after_a_share_has_failed() {
    let scratch = campaign();
    fs::write(scratch.path("failing.toml"), failing(&scratch)).unwrap();
    scratch.done(&["campaign", "new", "failing.toml", "failing"]);
    let submit = ["campaign", "submit", "failing", "--local", "3", "--work-dir", "."];
    let (code, _, message) = scratch.fslab(&[&submit[..], &["--lock", "host.lock"]].concat());
    assert_eq!(code, FAILURE, "{message}");
    assert!(message.contains("share 1/3: failed: here;"), "{message}");
    let status = scratch.done(&["campaign", "status", "--json", "failing"]);
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["missing"], &status["hosts"][0]["attempts"]), (&0.into(), &3.into()));
}

/// Checks the script, and that `sbatch` receives it. The test replaces `sbatch` with a program that
/// saves the script.
#[test]
fn slurm_script_is_an_array_job_with_requeue() {
    let scratch = campaign();
    let submit = ["campaign", "submit", "run", "--slurm", "--shares", "6", "--licences", "disk:1"];
    let script = scratch.done(&[&submit[..], &["--dry-run"]].concat());
    for line in [
        "#SBATCH --array=1-6",
        "#SBATCH --exclusive",
        "#SBATCH --requeue",
        "#SBATCH --licenses=\"disk:1\"",
    ] {
        assert!(script.lines().any(|one| one == line), "{line} is missing in {script}");
    }
    let last = script.lines().last().unwrap();
    let directory = fs::canonicalize(scratch.path("run")).unwrap();
    let run = format!("campaign run {} --share \"$SLURM_ARRAY_TASK_ID/6\"", directory.display());
    assert!(last.starts_with("exec /") && last.contains(&run), "{last}");
    assert!(!fs::exists(scratch.path("run/slurm.sh")).unwrap(), "a dry run wrote something");
    scratch.refused(&submit, MISSING, "install Slurm");
    fs::create_dir(scratch.path("bin")).unwrap();
    let sbatch = scratch.path("bin/sbatch");
    fs::write(&sbatch, "#!/bin/sh\n[ \"$1\" = --parsable ] && /bin/cp \"$2\" kept && echo 42\n")
        .unwrap();
    fs::set_permissions(&sbatch, fs::Permissions::from_mode(0o755)).unwrap();
    let told = scratch.done(&submit);
    assert!(told.contains("job 42: 6 shares"), "{told}");
    assert_eq!(fs::read_to_string(scratch.path("kept")).unwrap(), script);
    fs::write(&sbatch, "#!/bin/sh\necho no such partition >&2\nexit 1\n").unwrap();
    scratch.refused(&submit, FAILURE, "no such partition");
}
