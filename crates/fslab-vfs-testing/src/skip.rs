//! Reports tests that can't run on this machine. If all tests are required, a skipped test fails.

use std::fs::OpenOptions;
use std::io::Write;

/// Reports that a test can't run, and why. The line goes to standard error. It also goes to the
/// file in `FSLAB_SKIP_LOG`, because test harnesses hide the output of tests that pass.
///
/// # Panics
/// If `FSLAB_REQUIRE_ALL=1`, as in CI, where a skipped test counts as failed.
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIP {test}: {reason}");
    eprintln!("{line}");
    if let Some(log) = std::env::var_os("FSLAB_SKIP_LOG") {
        let written = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .and_then(|mut log| writeln!(log, "{line}"));
        assert!(written.is_ok(), "can't write to {}: {written:?}", log.display());
    }
    let required = std::env::var_os("FSLAB_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(!required, "{line}, although FSLAB_REQUIRE_ALL=1");
}

/// The reason why root can't mount with FUSE here, if any.
#[must_use]
pub fn obstacle_to_mounting() -> Option<&'static str> {
    if !std::path::Path::new("/dev/fuse").exists() {
        Some("no /dev/fuse")
    } else if !rustix::process::geteuid().is_root() {
        Some("not root")
    } else {
        None
    }
}
