//! The guardian: a process that survives if this process is killed, and then terminates the
//! programs of workloads. The kernel can kill the children of a killed process, but not their
//! descendants.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// The script of the guardian. It keeps a list of process groups until its input is closed, which
/// happens when this process exits. Then it sends them SIGINT, which shuts a database down cleanly:
/// the database writes its checkpoint and removes its System V shared memory. The groups are killed
/// when their leaders have exited, or after a minute.
const SCRIPT: &str = r#"
held=
while read -r word group; do
    case $word in
        hold) held="$held $group " ;;
        release) held="${held%%" $group "*}${held#*" $group "}" ;;
    esac
done
lives() {
    while read -r key state _; do
        [ "$key" != State: ] || { [ "$state" != Z ]; return; }
    done < "/proc/$1/status"
    return 1
}
for group in $held; do kill -s INT -- "-$group"; done
seconds=0
for group in $held; do
    while [ "$seconds" -lt 60 ] && lives "$group"; do
        sleep 1
        seconds=$((seconds + 1))
    done
done
for group in $held; do kill -s KILL -- "-$group"; done
"#;

/// The input of the guardian, which all comparisons of this process share.
static GUARDIAN: OnceLock<Mutex<ChildStdin>> = OnceLock::new();

/// Starts the guardian, unless it is running. Call this before the first memory limit is set,
/// because the guardian would otherwise remain in the control group of that limit.
pub(crate) fn start() -> Result<()> {
    if GUARDIAN.get().is_some() {
        return Ok(());
    }
    let failed = |source| Error::Start { program: "/bin/sh".to_owned(), source };
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT]).current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    let input = child.stdin.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
    // If another thread has already started a guardian, the new guardian exits, because its input
    // is closed.
    drop(GUARDIAN.set(Mutex::new(input)));
    Ok(())
}

/// Registers a process group to be terminated if this process is killed.
pub(super) fn hold(group: u32) {
    tell("hold", group);
}

/// Unregisters a process group that has exited.
pub(super) fn release(group: u32) {
    tell("release", group);
}

fn tell(word: &str, group: u32) {
    let Some(guardian) = GUARDIAN.get() else { return };
    if let Err(error) = guardian.lock().write_all(format!("{word} {group}\n").as_bytes()) {
        tracing::warn!(
            "can't reach the helper process that stops workloads if fslab is killed: {error}"
        );
    }
}
