//! Tests mounts on machines with a time limit for requests.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fslab_fuse::MountOptions;
use fslab_vfs::{FileSystem, Handle, Ino, MemFs, OpenMode, Opened, Request, Result};
use fslab_vfs_testing::skip::{obstacle_to_mounting, skip};

use crate::support::Mounted;

/// The kernel's limits, which apply to the whole machine.
const LIMITS: [&str; 2] = ["default_request_timeout", "max_request_timeout"];

/// A process that sets the machine's limits locks this file and saves the previous values in it. If
/// the process is killed, the next one restores these values.
const BEFORE: &str = "/run/fslab-test-request-limits";

/// The previous values of the kernel's limits, which are restored when this is dropped.
struct Limits {
    before: Vec<String>,
    record: File,
}

impl Limits {
    fn set(default_s: u64, maximum_s: u64) -> Self {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut record = options.open(BEFORE).unwrap();
        record.lock().unwrap();
        let mut left = String::new();
        record.read_to_string(&mut left).unwrap();
        let mut before: Vec<_> = left.split_whitespace().map(str::to_owned).collect();
        if before.len() != LIMITS.len() {
            before = LIMITS.map(|name| fs::read_to_string(knob(name)).unwrap()).to_vec();
            before.iter_mut().for_each(|value| value.truncate(value.trim_end().len()));
            record.set_len(0).and_then(|()| record.rewind()).unwrap();
            record.write_all(before.join(" ").as_bytes()).unwrap();
        }
        let limits = Self { before, record };
        for (name, value) in LIMITS.into_iter().zip([default_s, maximum_s]) {
            fs::write(knob(name), value.to_string()).unwrap();
        }
        limits
    }
}

fn knob(name: &str) -> PathBuf {
    Path::new("/proc/sys/fs/fuse").join(name)
}

impl Drop for Limits {
    fn drop(&mut self) {
        for (name, value) in LIMITS.into_iter().zip(&self.before) {
            fs::write(knob(name), value).unwrap();
        }
        self.record.set_len(0).and_then(|()| self.record.unlock()).unwrap();
    }
}

/// Makes a mount while these limits are set, and resets the limits at once, because they also
/// affect other mounts of the machine.
fn mounted_under(
    test: &str,
    file_system: Arc<dyn FileSystem>,
    limits: (u64, u64),
) -> Option<Mounted> {
    let obstacle = obstacle_to_mounting().or_else(|| {
        (!knob("max_request_timeout").exists())
            .then_some("this kernel has no time limits for requests (Linux 6.15 has)")
    });
    if let Some(obstacle) = obstacle {
        skip(test, obstacle);
        return None;
    }
    let _set = Limits::set(limits.0, limits.1);
    Mounted::new(test, file_system, &MountOptions::default())
}

#[test]
fn session_requests_the_longest_timeout() {
    // The default, the maximum, and the limit that results from both.
    for (default_s, maximum_s, in_force_s) in
        [(0, 0, None), (40_000, 0, Some(65_535)), (30_000, 50_000, Some(50_000))]
    {
        let test = "time_limits::session_requests_the_longest_timeout";
        let memory = Arc::new(MemFs::default());
        let Some(mounted) = mounted_under(test, memory, (default_s, maximum_s)) else { return };
        let limit = mounted.session().granted().request_time_max;
        assert_eq!(limit, in_force_s.map(Duration::from_secs));
        mounted.end();
    }
}

/// A file system whose reads wait until they are cancelled.
struct Waiting(MemFs);

impl FileSystem for Waiting {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.0)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        let opened = self.0.open(request, ino, mode)?;
        Ok(Opened { direct: true, ..opened })
    }

    fn read(&self, request: &Request, _: Ino, _: Handle, _: u64, _: &mut [u8]) -> Result<usize> {
        loop {
            request.cancellation.check()?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// With the smallest limit, the kernel would abort the mount 15 to 30 s after the request.
#[test]
fn kernel_timeout_fails_a_request_but_not_the_mount() {
    let test = "time_limits::kernel_timeout_fails_a_request_but_not_the_mount";
    let waiting = Arc::new(Waiting(MemFs::default()));
    let Some(mounted) = mounted_under(test, waiting, (0, 15)) else { return };
    let path = mounted.path().join("tape");
    fs::write(&path, "far away").unwrap();
    let start = Instant::now();
    let error = fs::read(&path).unwrap_err();
    let waited = start.elapsed();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::TIMEDOUT.raw_os_error()));
    assert!(waited >= Duration::from_secs(11), "{waited:?}");
    assert_eq!(fs::metadata(&path).unwrap().len(), 8, "the mount lives on");
    mounted.end();
}
