//! Machines that let no request of a mount take long.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fslab_fuse::MountOptions;
use fslab_vfs::testing::skip::{obstacle_to_mounting, skip};
use fslab_vfs::{FileSystem, Handle, Ino, MemFs, OpenMode, Opened, Request, Result};
use parking_lot::Mutex;

use crate::support::Mounted;

/// The machine has one of each.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Values of the machine's limits, put back on every path out of a test.
struct Limits(Vec<(PathBuf, String)>);

impl Limits {
    fn set(default_s: u64, maximum_s: u64) -> Self {
        let mut limits = Self(Vec::new());
        for (name, value) in
            [("default_request_timeout", default_s), ("max_request_timeout", maximum_s)]
        {
            let path = Path::new("/proc/sys/fs/fuse").join(name);
            let before = fs::read_to_string(&path).unwrap();
            limits.0.push((path.clone(), before));
            fs::write(path, value.to_string()).unwrap();
        }
        limits
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            fs::write(path, value).unwrap();
        }
    }
}

/// A mount that was made under limits, which other mounts of the machine see as short as possible.
fn mounted_under(
    test: &str,
    file_system: Arc<dyn FileSystem>,
    limits: (u64, u64),
) -> Option<Mounted> {
    let obstacle = obstacle_to_mounting().or_else(|| {
        let knob = Path::new("/proc/sys/fs/fuse/max_request_timeout");
        (!knob.exists()).then_some("this kernel limits no request (Linux 6.15 can)")
    });
    if let Some(obstacle) = obstacle {
        skip(test, obstacle);
        return None;
    }
    let _alone = ONE_AT_A_TIME.lock();
    let _set = Limits::set(limits.0, limits.1);
    Mounted::new(test, file_system, &MountOptions::default())
}

#[test]
fn the_longest_limit_is_asked_for() {
    // The default, the maximum, and what is then in force.
    for (default_s, maximum_s, in_force_s) in
        [(0, 0, None), (40_000, 0, Some(65_535)), (30_000, 50_000, Some(50_000))]
    {
        let test = "time_limits::the_longest_limit_is_asked_for";
        let memory = Arc::new(MemFs::default());
        let Some(mounted) = mounted_under(test, memory, (default_s, maximum_s)) else { return };
        let limit = mounted.session().granted().request_time_max;
        assert_eq!(limit, in_force_s.map(Duration::from_secs));
        mounted.end();
    }
}

/// Reading waits until it is given up.
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

/// The least limit there is: the kernel would abort the mount 15 to 30 s after the request.
#[test]
fn limits_of_the_machine_do_not_end_a_mount() {
    let test = "time_limits::limits_of_the_machine_do_not_end_a_mount";
    let waiting = Arc::new(Waiting(MemFs::default()));
    let Some(mounted) = mounted_under(test, waiting, (0, 15)) else { return };
    let path = mounted.path().join("tape");
    fs::write(&path, "far away").unwrap();
    let start = Instant::now();
    let error = fs::read(&path).unwrap_err();
    let waited = start.elapsed();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::TIMEDOUT.raw_os_error()));
    assert!((11..14).contains(&waited.as_secs()), "{waited:?}");
    assert_eq!(fs::metadata(&path).unwrap().len(), 8, "the mount lives on");
    mounted.end();
}
