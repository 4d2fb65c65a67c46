//! Tests the packaged unit for mounts with a real systemd.
//!
//! systemd is the first process in separate namespaces, and its root directory is an overlay over
//! that of this machine. So its changes are lost when it exits, and it can't change settings of
//! this machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use fslab_vfs_testing::skip::skip;
use tempfile::TempDir;

use crate::support::{PATIENCE, control_groups, require_mounting, scratch_in_memory, soon};

const SYSTEMD: &str = "/lib/systemd/systemd";

/// Exit code of [`BOOT`] if this machine can't make an overlay of its root directory.
const CAN_NOT: i32 = 77;

/// Prepares a root directory and executes systemd in it. The directory `shared` becomes
/// /srv/shared.
const BOOT: &str = r#"
set -e
echo $$ > "$GROUP/cgroup.procs"
exec unshare --fork --pid --kill-child --mount --propagation private --uts --ipc --cgroup \
    sh -ec '
    root=$SCRATCH/root
    lower=lowerdir=/,upperdir=$SCRATCH/upper,workdir=$SCRATCH/work
    mount -t overlay -o "$lower" overlay "$root" || exit 77
    mount -t tmpfs -o mode=755 none "$root/run"
    mount -t tmpfs -o mode=1777 none "$root/tmp"
    mount -t tmpfs none "$root/srv"
    mkdir "$root/srv/shared"
    mount --bind "$SCRATCH/shared" "$root/srv/shared"
    touch "$root/usr/bin/fslab"
    mount --bind "$PROGRAM" "$root/usr/bin/fslab"
    mount -t proc proc "$root/proc"
    mount --bind "$root/proc/sys" "$root/proc/sys"
    mount -o remount,bind,ro "$root/proc/sys"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t tmpfs -o mode=755 none "$root/dev"
    for device in null zero full random urandom tty fuse; do
        touch "$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    mkdir "$root/old" "$root/etc/fslab"
    cp -r "$SCRATCH"/units/* "$root/etc/systemd/system/"
    cd "$root"
    pivot_root . old
    cd /
    umount -l /old
    export container=fslab-test
    exec "$SYSTEMD" --system --unit=rounds.service --log-target=null --show-status=0
'
"#;

const UNIT: &str = "
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/bin/sh /srv/shared/rounds.sh; echo \"code $?\"; : > /srv/shared/ended'
StandardOutput=file:/srv/shared/said
StandardError=file:/srv/shared/said
";

/// Keeps the messages of the packaged unit.
const SETTINGS: &str = "
[Service]
StandardOutput=append:/srv/shared/messages
StandardError=append:/srv/shared/messages
";

/// Starts the unit, writes to the mount, and stops the unit, several times without a pause.
const ROUNDS: &str = r#"
set -e
cd /srv
mkdir m
for stack in null zstd ext2; do
    mkdir -p low
    lower=/srv/low options="-l $stack"
    if [ "$stack" = ext2 ]; then
        fslab ext2 mkfs image 32MiB > /dev/null
        lower=ext2:/srv/image options=""
    fi
    printf 'LOWER=%s\nMOUNT_POINT=/srv/m\nOPTIONS="%s"\n' "$lower" "$options" > /etc/fslab/a.conf
    for round in 1 2 3; do
        systemctl start fslab@a.service
        [ "$round" = 1 ] || cat m/$((round - 1)) > /dev/null
        head -c 3000000 /dev/urandom > "m/$round"
        systemctl stop fslab@a.service
        if grep ' /srv/m ' /proc/self/mountinfo; then exit 1; fi
        if [ "$stack" = ext2 ]; then
            e2fsck -fn image > checked 2>&1 || { cat checked; exit 1; }
        fi
    done
    rm -rf low
    echo "$stack"
done
"#;

/// Kills daemons of a kept unit, then its supervisor, and then both.
const KEPT: &str = r#"
exec 2> /srv/shared/trace
set -ex
cd /srv
mkdir m
fslab ext2 mkfs image 32MiB > /dev/null
printf 'LOWER=ext2:/srv/image\nMOUNT_POINT=/srv/m\nOPTIONS="-o keep"\n' > /etc/fslab/a.conf
systemctl start fslab@a.service
main() { systemctl show --property MainPID --value fslab@a.service; }
# The directory underneath must not be visible at any time.
returns() {
    for attempt in $(seq 600); do
        if ls m > listed 2> /dev/null; then
            grep -q '^file$' listed || { echo "exposed"; exit 1; }
            # Until the killed daemon has exited, or without a main process, this was the old mount.
            if systemctl is-active --quiet fslab@a.service; then
                [ "$(main)" = "$1" ] || return 0
            fi
        fi
        sleep 0.05
    done
    echo "not mounted again"
    systemctl status fslab@a.service >&2
    ps -eLo pid,lwp,stat,wchan:40,args >&2
    exit 1
}
echo text > m/file
for round in 1 2 3; do
    before=$(main)
    kill -9 "$(pgrep -P "$before")"
    cat m/file > /dev/null
    [ "$(main)" = "$before" ]
    systemctl is-active --quiet fslab@a.service
done
echo "daemon"
for victim in supervisor both; do
    sync -f m
    before=$(main)
    daemon=$(pgrep -P "$before")
    if [ "$victim" = both ]; then
        # The supervisor must not start another daemon.
        kill -STOP "$before"
        kill -9 "$daemon"
    fi
    kill -9 "$before"
    returns "$before"
    cat m/file > /dev/null
    echo "$victim"
done
systemctl stop fslab@a.service
if grep ' /srv/m ' /proc/self/mountinfo; then exit 1; fi
"#;

/// A control group. It is removed on drop, together with all groups in it.
struct Group(PathBuf);

impl Group {
    fn new(hierarchy: &Path, test: &str) -> io::Result<Self> {
        let name = format!("fslab-{}-{}", std::process::id(), test.replace(':', "-"));
        let path = hierarchy.join(name);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        soon("the control group is empty", || remove_group(&self.0).is_ok());
    }
}

/// Removes a control group whose processes have ended.
fn remove_group(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_group(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

/// A running systemd. All processes of its namespace are killed on drop.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // This fails if systemd has already exited.
        drop(self.0.kill());
        self.0.wait().unwrap();
    }
}

fn prepare(scratch: &TempDir, script: &str) {
    for folder in ["root", "upper", "work", "shared", "units"] {
        fs::create_dir(scratch.path().join(folder)).unwrap();
    }
    let unit = "fslab@.service";
    let packaged = Path::new("../../packaging/systemd").join(unit);
    fs::copy(packaged, scratch.path().join("units").join(unit)).unwrap();
    let settings = scratch.path().join("units").join(format!("{unit}.d"));
    fs::create_dir(&settings).unwrap();
    fs::write(settings.join("test.conf"), SETTINGS).unwrap();
    fs::write(scratch.path().join("units/rounds.service"), UNIT).unwrap();
    fs::write(scratch.path().join("shared/rounds.sh"), script).unwrap();
}

/// Runs a script under systemd, and checks its output and exit code. Says so if this machine can't
/// do that.
fn runs_under_systemd(test: &str, script: &str, expected: &str) {
    // In a container, systemd does not wait for the end of processes in groups of version 1.
    let hierarchy = control_groups().filter(|_| Path::new(SYSTEMD).exists());
    let Some(hierarchy) = hierarchy else {
        return skip(test, "no systemd, or no control groups of version 2 for it");
    };
    let group = match Group::new(hierarchy, test) {
        Ok(group) => group,
        Err(error) => {
            return skip(test, &format!("no control group: {error}"));
        }
    };
    let scratch = scratch_in_memory();
    prepare(&scratch, script);
    let mut boot = Command::new("sh");
    boot.args(["-c", BOOT]).env("GROUP", &group.0).env("SCRATCH", scratch.path());
    boot.env("PROGRAM", env!("CARGO_BIN_EXE_fslab")).env("SYSTEMD", SYSTEMD);
    let mut machine = Machine(boot.spawn().unwrap());
    let shared = scratch.path().join("shared");
    let status = wait_for_end(&mut machine, &group, &shared);
    if status.and_then(|status| status.code()) == Some(CAN_NOT) {
        return skip(test, "no overlay over the root directory can be mounted here");
    }
    drop(machine);
    let said = fs::read_to_string(shared.join("said")).unwrap();
    assert_eq!(said, expected, "{}", traces(&shared));
}

/// Waits until the script has ended, and returns the exit code if systemd has exited. If the script
/// does not end, reports its trace and what the processes wait for.
fn wait_for_end(machine: &mut Machine, group: &Group, shared: &Path) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        let status = machine.0.try_wait().unwrap();
        if status.is_some() || shared.join("ended").exists() {
            return status;
        }
        if start.elapsed() > PATIENCE {
            let mut processes = String::new();
            list_processes(&group.0, &mut processes);
            let said = fs::read_to_string(shared.join("said")).unwrap_or_default();
            panic!("the script does not end\n{said}\n{}\n{processes}", traces(shared));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the messages of the packaged unit and the trace of the script.
fn traces(shared: &Path) -> String {
    let read = |name| fs::read_to_string(shared.join(name)).unwrap_or_default();
    format!("{}\n{}", read("messages"), read("trace"))
}

/// Lists the processes of a control group and the groups in it: name, state, and the kernel
/// function in which they wait.
fn list_processes(group: &Path, list: &mut String) {
    for pid in fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default().lines() {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
        let read = |file| read(file).unwrap_or_default().replace('\0', " ");
        let status = read("status");
        let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or_default();
        *list += &format!("{pid} {}: {state} {}\n", read("cmdline"), read("wchan"));
    }
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list_processes(&entry.path(), list);
        }
    }
}

#[test]
fn a_stopped_unit_leaves_a_clean_image_and_starts_again_at_once() {
    require_mounting!();
    let test = "systemd::a_stopped_unit_leaves_a_clean_image_and_starts_again_at_once";
    runs_under_systemd(test, ROUNDS, "null\nzstd\next2\ncode 0\n");
}

#[test]
fn a_kept_unit_survives_kills_and_never_shows_the_directory_underneath() {
    require_mounting!();
    let test = "systemd::a_kept_unit_survives_kills_and_never_shows_the_directory_underneath";
    runs_under_systemd(test, KEPT, "daemon\nsupervisor\nboth\ncode 0\n");
}
