//! Tests the choice between io_uring and /dev/fuse (`-o transport=auto`).

use std::fs;
use std::process::Command;
use std::time::Duration;

use fslab_sys::processors;
use fslab_vfs_testing::uring_switch::UringSwitch;

use crate::support::{Place, Transport, ended, is_mounted, require_mounting, soon};

/// A state of the machine or of the mounting process.
struct Case {
    /// Whether the kernel allows FUSE over io_uring.
    is_allowed: bool,
    /// The program and its arguments that run `fslab mount`; empty to run it directly.
    launcher: Vec<String>,
    /// The reason in the log for using /dev/fuse; `None` if io_uring is used.
    reason: Option<&'static str>,
}

/// Returns a launcher that limits the memory of io_uring rings. Only processes without this
/// capability have such a limit.
fn with_ring_memory(bytes: usize) -> Vec<String> {
    let limit = format!("--memlock={bytes}");
    ["setpriv", "--bounding-set", "-ipc_lock", "prlimit", &limit].map(str::to_owned).to_vec()
}

fn cases() -> Vec<Case> {
    let case = |is_allowed, launcher, reason| Case { is_allowed, launcher, reason };
    let page = rustix::param::page_size();
    let mut cases = vec![
        case(true, Vec::new(), None),
        case(false, Vec::new(), Some("/dev/fuse: the kernel does not offer FUSE over io_uring")),
        case(true, with_ring_memory(0), Some("/dev/fuse: io_uring: Cannot allocate memory")),
    ];
    let online = processors::online().unwrap();
    if online.len() > 1 {
        // This is enough for the first ring, but not for all.
        let reason = Some("can't serve through io_uring");
        cases.push(case(true, with_ring_memory(3 * page), reason));
        let launcher = ["taskset", "-c", &online[0].to_string()].map(str::to_owned).to_vec();
        let reason = "/dev/fuse: io_uring: this process is not allowed to run on every processor";
        cases.push(case(true, launcher, Some(reason)));
    }
    cases
}

/// Runs `fslab mount`. Returns its exit code, and all messages of the command and the daemon.
fn mount(place: &Place, case: &Case, transport: &str) -> (i32, String) {
    let log = place.point.with_extension("log");
    let options = format!("transport={transport},log={}", log.display());
    let mount = place.mount_command(&["-o", &options]);
    let words = case.launcher.iter().map(AsRef::as_ref).chain([mount.get_program()]);
    let words: Vec<_> = words.chain(mount.get_args()).collect();
    let _switch = UringSwitch::set(case.is_allowed);
    let (code, message) = ended(Command::new(words[0]).args(&words[1..]).env("FSLAB_LOG", "info"));
    (code, message + &fs::read_to_string(log).unwrap_or_default())
}

/// Mounts with `transport=auto`. The kernel frees the rings of a daemon some time after its end, so
/// memory for the first ring may still be in use; then mounts again.
fn mounted_for_its_reason(case: &Case) -> (Place, String) {
    for is_last in (0..10).map(|attempt| attempt == 9) {
        let place = Place::new();
        let (code, log) = mount(&place, case, "auto");
        eprintln!("{:?}, {}: {log}", case.launcher, case.is_allowed);
        assert_eq!(code, 0, "{log}");
        if is_last || case.reason.is_none_or(|reason| log.contains(reason)) {
            return (place, log);
        }
        place.umount();
        std::thread::sleep(Duration::from_millis(200));
    }
    unreachable!("the last attempt returns")
}

#[test]
fn auto_uses_and_reports_dev_fuse_if_io_uring_can_not_start() {
    require_mounting!(Transport::Uring);
    for case in cases() {
        let (place, log) = mounted_for_its_reason(&case);
        soon("threads of an abandoned start have ended", || {
            place.uses_io_uring() == case.reason.is_none()
        });
        match case.reason {
            None => assert!(!log.contains("/dev/fuse"), "{log}"),
            Some(reason) => {
                let lines = log.lines().filter(|line| line.contains("/dev/fuse"));
                let lines: Vec<_> = lines.collect();
                assert!(matches!(lines[..], [line] if line.contains(reason)), "{log}");
            }
        }
        fs::write(place.point.join("file"), "data").unwrap();
        assert_eq!(fs::read(place.lower.join("file")).unwrap(), b"data");
        place.umount();
    }
}

#[test]
fn uring_is_refused_if_io_uring_can_not_start() {
    require_mounting!(Transport::Uring);
    for case in cases().iter().filter(|case| case.reason.is_some()) {
        let place = Place::new();
        let (code, log) = mount(&place, case, "uring");
        eprintln!("{:?}, {}: {code}, {log}", case.launcher, case.is_allowed);
        assert_ne!(code, 0, "{log}");
        assert!(log.contains("io_uring"), "{log}");
        assert!(!is_mounted(&place.point));
    }
}
