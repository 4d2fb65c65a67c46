//! The kernel parameter that allows FUSE over io_uring. It applies to the whole machine.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use crate::skip::obstacle_to_mounting;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// The lock of all tests that set the parameter; `cargo xtask` uses it, too.
const LOCK: &str = "/run/lock/fslab-test-enable-uring";

/// Waits for the end of its input, and then writes its first argument to the file in the second.
const RESTORE: &str = "cat > /dev/null; printf %s \"$1\" > \"$2\"";

/// The reason why root can't mount with FUSE over io_uring here, if any.
#[must_use]
pub fn obstacle_to_uring() -> Option<&'static str> {
    obstacle_to_mounting().or_else(|| {
        (!Path::new(PARAMETER).exists()).then_some("no FUSE over io_uring in this kernel")
    })
}

/// Sets the parameter while it exists, and restores it when dropped.
///
/// The kernel reads the parameter only when a mount begins. So keep it set only while mounting, and
/// other tests wait less.
#[derive(Debug)]
pub struct UringSwitch {
    /// A process that holds the lock and restores the parameter. It does so even if this process is
    /// killed, because its input then ends, but not if their whole control group is killed.
    restorer: Child,
    /// The value to restore.
    before: String,
}

impl UringSwitch {
    /// Waits until no other test uses the parameter, and sets it.
    ///
    /// # Panics
    /// If the parameter can't be set, for example because [`obstacle_to_uring`] returns a reason.
    #[must_use]
    pub fn set(is_allowed: bool) -> Self {
        let lock = File::create(LOCK).unwrap_or_else(|error| panic!("{LOCK}: {error}"));
        flock(&lock, FlockOperation::LockExclusive)
            .unwrap_or_else(|error| panic!("{LOCK}: {error}"));
        let before = fs::read_to_string(PARAMETER);
        let before = before.unwrap_or_else(|error| panic!("{PARAMETER}: {error}"));
        let before = before.trim().to_owned();
        let restorer = Command::new("sh")
            .args(["-c", RESTORE, "sh", &before, PARAMETER])
            .stdin(Stdio::piped())
            // The lock belongs to all copies of the descriptor. This is the last one.
            .stdout(lock)
            .stderr(Stdio::null())
            // Signals to the group of this process must not end it.
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("sh: {error}"));
        let switch = Self { restorer, before };
        let value = if is_allowed { "Y" } else { "N" };
        fs::write(PARAMETER, value).unwrap_or_else(|error| panic!("{PARAMETER}: {error}"));
        switch
    }

    /// The value that is restored: `Y` or `N`.
    #[must_use]
    pub fn before(&self) -> &str {
        &self.before
    }
}

impl Drop for UringSwitch {
    fn drop(&mut self) {
        drop(self.restorer.stdin.take());
        let ended = self.restorer.wait();
        let is_restored = ended.as_ref().is_ok_and(std::process::ExitStatus::success);
        assert!(is_restored || std::thread::panicking(), "{PARAMETER} was not restored: {ended:?}");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    /// The environment variable that makes the test below hold the switch until it is killed.
    const HOLDS: &str = "FSLAB_TEST_HOLDS_URING_SWITCH";

    #[test]
    fn parameter_is_restored_although_the_test_is_killed() {
        let test = "uring_switch::tests::parameter_is_restored_although_the_test_is_killed";
        if let Some(obstacle) = obstacle_to_uring() {
            return crate::skip::skip(test, obstacle);
        }
        if std::env::var_os(HOLDS).is_some() {
            let switch = UringSwitch::set(true);
            println!("\nbefore={}", switch.before());
            return std::thread::sleep(std::time::Duration::from_secs(60));
        }
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", test])
            .env(HOLDS, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
        let said = lines.map(Result::unwrap).find(|line| line.starts_with("before=")).unwrap();
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert_eq!(format!("before={}", UringSwitch::set(true).before()), said);
    }
}
