//! A supervisor and the workers that it starts one after another. All share one descriptor table,
//! so the descriptors of a killed worker remain open, with their locks and file offsets. The next
//! worker finds and uses them.

mod alarm;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, OFlags};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait, waitpid};

use self::alarm::{Alarm, EXITS};
use crate::exec::open_descriptors;
use crate::file_handle::check;
use crate::lease;

/// The role of a process after [`supervise`].
#[derive(Debug)]
pub enum Role {
    /// A worker, with the process number of its supervisor and the descriptors that earlier workers
    /// have left open.
    Worker(Pid, Inherited),
    /// The supervisor; its last worker ended with this status.
    Supervisor(WaitStatus),
}

/// The signal that asks a supervisor to end its worker and continue with another program.
pub const ASKS_FOR_ANOTHER: i32 = libc::SIGUSR2;

/// The reason why a worker ended.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// The worker ended by itself, for example by a fault in its program.
    Own,
    /// SIGKILL ended the worker, or the reason is unknown because one of the worker's threads is
    /// still in the kernel.
    Killed,
    /// The supervisor killed the worker, because it was asked to continue with another program.
    ForAnother,
}

/// Makes this process the supervisor of a worker, which is a forked copy of this process. The call
/// returns in each worker. In the supervisor, it returns when a worker has ended and `is_replaced`
/// returns `false`.
///
/// While a worker runs, the supervisor opens no descriptors, and forwards `signals` to the worker.
/// All workers share the descriptors that are open at the call, except `left`, which workers of an
/// earlier program had opened. A descriptor opened by a worker belongs to that worker until it
/// exits, and then to the next worker. [`ASKS_FOR_ANOTHER`] ends a worker if `may_be_ended` allows
/// it, and is ignored otherwise.
///
/// # Errors
/// Errors of the kernel. `Unsupported` if this process has several threads: a lock that another
/// thread holds would never be released in the forked worker.
pub fn supervise(
    signals: &[i32],
    left: &BTreeSet<RawFd>,
    may_be_ended: impl Fn() -> bool,
    mut is_replaced: impl FnMut(End) -> bool,
) -> io::Result<Role> {
    expect_one_thread()?;
    // Dropping this in a worker would close the pipe of all workers.
    let alarm = ManuallyDrop::new(Alarm::new()?);
    let everybodys: BTreeSet<RawFd> = &open_descriptors()? - left;
    let awaited = [signals, &[libc::SIGCHLD, EXITS, ASKS_FOR_ANOTHER]].concat();
    let supervisor = rustix::process::getpid();
    set_blocked(&awaited, true)?;
    // If SIGCHLD was ignored, the kernel would not report a worker's end. SAFETY: the default
    // action runs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    loop {
        let Some(worker) = fork()? else {
            set_blocked(&[libc::SIGCHLD, EXITS], false)?;
            let inherited = Inherited::all_but(&everybodys)?;
            alarm.arm();
            return Ok(Role::Worker(supervisor, inherited));
        };
        let ended = wait_and_pass_on(worker, &awaited, &may_be_ended)?;
        if let Some(signal) = ended.unheard {
            // It stays pending until the next worker is waited for, even if `is_replaced` runs
            // another program.
            kill_process(supervisor, signal)?;
        }
        if !is_replaced(ended.end) {
            // Pending signals were meant for a worker. They must not end this process.
            while wait_for_signal(&awaited, Duration::ZERO)?.is_some() {}
            set_blocked(&awaited, false)?;
            let status = match ended.status {
                Some(status) => Some(status),
                None => waitpid(Some(worker), WaitOptions::empty())?.map(|(_, status)| status),
            };
            let lost = || io::Error::other("can't determine how a worker process ended");
            return Ok(Role::Supervisor(status.ok_or_else(lost)?));
        }
    }
}

/// Unblocks signals in a worker. [`supervise`] leaves them blocked until the worker can handle
/// them.
///
/// # Errors
/// Errors of the kernel.
pub fn unblock(signals: &[i32]) -> io::Result<()> {
    set_blocked(signals, false)
}

/// The end of a worker.
struct Ended {
    end: End,
    /// `None` if a thread of the worker is still in the kernel.
    status: Option<WaitStatus>,
    /// The last signal to this worker, which may not have handled it. The next one gets it.
    unheard: Option<Signal>,
}

/// Interval at which the supervisor checks whether its worker is alive, in case that no signal
/// reports its exit.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time until the first check after the signal [`EXITS`], when the main thread is still exiting.
/// The time until the next check is twice as long each time.
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// Number of times that threads are counted before a process is refused as a supervisor.
const THREAD_LOOKS: u32 = 100;
/// Maximum time to wait until the threads of a dead worker leave the kernel.
const LEAVE_TIME_MAX: Duration = Duration::from_millis(200);

/// Waits for the end of a worker, and forwards signals.
///
/// The kernel does not report the end of a process while one of its threads can't be interrupted.
/// Such a thread may wait for an action of the next worker. So a worker also counts as ended when
/// its memory is freed.
fn wait_and_pass_on(
    worker: Pid,
    awaited: &[i32],
    may_be_ended: impl Fn() -> bool,
) -> io::Result<Ended> {
    let (mut is_killed, mut passed_on) = (false, None);
    let ended = |status: Option<WaitStatus>, unheard, is_killed| {
        let by_kill =
            status.is_none_or(|status| status.terminating_signal() == Some(libc::SIGKILL));
        let end = match (by_kill, is_killed) {
            (true, true) => End::ForAnother,
            (true, false) => End::Killed,
            (false, _) => End::Own,
        };
        Ended { end, status, unheard }
    };
    let (mut pause, mut exiting_since) = (LOOK_EVERY, None::<Instant>);
    loop {
        // A worker that is exiting does not handle signals. They are left to the next one.
        let reports = [libc::SIGCHLD, EXITS];
        let number =
            wait_for_signal(if exiting_since.is_some() { &reports } else { awaited }, pause)?;
        let asks = number == Some(ASKS_FOR_ANOTHER);
        let is_report = number.is_some_and(|number| reports.contains(&number));
        let signal = number.filter(|_| !is_report && !asks).and_then(Signal::from_named_raw);
        if let Some(status) = reap(worker)? {
            return Ok(ended(Some(status), signal.or(passed_on), is_killed));
        }
        if let Some(since) = exiting_since {
            pause = LEAVE_TIME_MAX.saturating_sub(since.elapsed());
            if pause.is_zero() {
                return Ok(ended(None, passed_on, is_killed));
            }
        } else if number.is_none() || is_report {
            pause = if number == Some(EXITS) { FIRST_LOOK } else { (2 * pause).min(LOOK_EVERY) };
            if !has_memory(worker) {
                (pause, exiting_since) = (LEAVE_TIME_MAX, Some(Instant::now()));
            }
        }
        let kills = asks && may_be_ended();
        is_killed |= kills;
        passed_on = signal.or(passed_on);
        if let Some(signal) = if kills { Some(Signal::KILL) } else { signal } {
            kill_process(worker, signal)?;
        }
    }
}

/// Returns a worker's status if it has ended. Reaps earlier workers, too.
fn reap(worker: Pid) -> io::Result<Option<WaitStatus>> {
    loop {
        match wait(WaitOptions::NOHANG)? {
            Some((ended, status)) if ended == worker => return Ok(Some(status)),
            Some(_) => {}
            None => return Ok(None),
        }
    }
}

/// Whether a worker, which is a copy of this process, still has its memory. The memory is freed
/// when the worker exits. Unlike a read of /proc, this opens no descriptor in the table that the
/// workers share.
fn has_memory(worker: Pid) -> bool {
    static PROBE: u8 = 0;
    let mut byte = 0_u8;
    let here = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let there = libc::iovec { iov_base: (&raw const PROBE).cast_mut().cast(), iov_len: 1 };
    let worker = worker.as_raw_nonzero().get();
    // SAFETY: one byte is written to a variable of this function, and read from another process.
    let read =
        unsafe { libc::process_vm_readv(worker, &raw const here, 1, &raw const there, 1, 0) };
    // If the kernel refuses access, the answer is unknown and is treated as yes.
    read == 1 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

fn expect_one_thread() -> io::Result<()> {
    let has_others = || Ok::<_, io::Error>(std::fs::read_dir("/proc/self/task")?.count() > 1);
    // For a moment, the kernel still lists a thread that was joined.
    for _ in 0..THREAD_LOOKS {
        if !has_others()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    if has_others()? {
        let why = "a process with several threads can't be forked";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(())
}

/// Makes a copy of this process that shares its descriptor table; returns `None` in the copy.
fn fork() -> io::Result<Option<Pid>> {
    let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
    // SAFETY: without CLONE_VM the new process has its own copy of the memory, as after fork(2).
    // This process has only the calling thread. That was checked when it became a supervisor, and
    // it starts no other thread. So no other thread holds a lock.
    let answer = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    check(answer)?;
    // A process number fits into 32 bits.
    Ok(Pid::from_raw(answer as i32))
}

fn to_set(signals: &[i32]) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset fills the set before it is used.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Waits for one of some signals, which must be blocked, and consumes it; returns `None` if none
/// arrived in time.
fn wait_for_signal(signals: &[i32], time_max: Duration) -> io::Result<Option<i32>> {
    let set = to_set(signals);
    let time_max = libc::timespec {
        tv_sec: time_max.as_secs().cast_signed(),
        tv_nsec: time_max.subsec_nanos().into(),
    };
    loop {
        // SAFETY: the set is initialised, and the null pointer requests no details of the signal.
        let answer = unsafe {
            libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const time_max)
        };
        match check(libc::c_long::from(answer)) {
            Ok(_) => return Ok(Some(answer)),
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Blocks or unblocks some signals for this thread.
fn set_blocked(signals: &[i32], are_blocked: bool) -> io::Result<()> {
    let how = if are_blocked { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    let set = to_set(signals);
    // SAFETY: the set is filled; the null pointer requests no copy of the old set.
    match unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The descriptors that an earlier worker left open. Dropping this closes them.
#[derive(Debug, Default)]
pub struct Inherited {
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    by_inode: HashMap<(u64, u64), Vec<OwnedFd>>,
    /// Descriptors of all other kinds, such as character devices, pipes and sockets.
    others: Vec<OwnedFd>,
    /// Inodes for which [`Inherited::descriptor_of`] returned a descriptor.
    returned: HashSet<(u64, u64)>,
    /// Whether [`Inherited::close_others`] has run, so that each inode has at most one descriptor.
    are_final: bool,
    /// The device whose inodes will be requested.
    device: Option<u64>,
    keeps_named: bool,
}

/// Flags by which the open descriptions of a file differ. File offsets don't matter, because the
/// users pass an offset with each read and write.
const KINDS: OFlags = OFlags::RWMODE.union(OFlags::SYNC).union(OFlags::DSYNC).union(OFlags::PATH);

impl Inherited {
    /// Takes ownership of all open descriptors except the shared ones. Must be called before a
    /// worker opens anything.
    fn all_but(everybodys: &BTreeSet<RawFd>) -> io::Result<Self> {
        let mut found = Found::default();
        for number in open_descriptors()? {
            if !everybodys.contains(&number) {
                // SAFETY: the descriptor was not open when the supervisor began. Neither the
                // supervisor nor this worker has opened anything since. So the owner has exited,
                // and nothing else uses it.
                found.add(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
        Ok(Self { found: Mutex::new(found) })
    }

    /// Number of descriptors.
    #[cfg(test)]
    fn count(&self) -> usize {
        let found = self.lock();
        found.by_inode.values().map(Vec::len).sum::<usize>() + found.others.len()
    }

    /// Returns a descriptor of an inode, given by device and number, regardless of the flags it was
    /// opened with. Before [`Self::close_others`], this is a copy, and the original is kept.
    #[must_use]
    pub fn descriptor_of(&self, device: u64, number: u64) -> Option<OwnedFd> {
        let mut found = self.lock();
        let are_final = found.are_final;
        let all = found.by_inode.get_mut(&(device, number))?;
        if are_final {
            return all.pop();
        }
        let copy = rustix::io::fcntl_dupfd_cloexec(all.first()?, 0).ok()?;
        found.returned.insert((device, number));
        Some(copy)
    }

    /// Removes and returns a descriptor of an inode that was opened with the access and sync flags
    /// in `flags`.
    #[must_use]
    pub fn take_opened(&self, device: u64, number: u64, flags: OFlags) -> Option<OwnedFd> {
        let mut found = self.lock();
        let all = found.by_inode.get_mut(&(device, number))?;
        let is_same = |descriptor: &OwnedFd| {
            let own = rustix::fs::fcntl_getfl(descriptor);
            own.is_ok_and(|own| own & KINDS == flags & KINDS)
        };
        let place = all.iter().position(is_same)?;
        Some(all.swap_remove(place))
    }

    /// Closes the inherited descriptors of a file that will be opened again. This releases their
    /// locks.
    ///
    /// # Errors
    /// Errors of `stat`; a missing file is no error.
    pub fn close_file(&self, path: &Path) -> io::Result<()> {
        match rustix::fs::stat(path) {
            Ok(stat) => drop(self.lock().by_inode.remove(&(stat.st_dev, stat.st_ino))),
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Returns a copy of a descriptor of a device, pipe or socket, by its number.
    #[must_use]
    pub fn copy_of_device(&self, number: RawFd) -> Option<OwnedFd> {
        let found = self.lock();
        let device = found.others.iter().find(|other| other.as_raw_fd() == number)?;
        rustix::io::fcntl_dupfd_cloexec(device, 0).ok()
    }

    /// Announces that inodes of a device will be requested, for which [`Self::close_others`] keeps
    /// descriptors. If the inodes can be opened only through these descriptors (`only_these_lead`),
    /// one is kept for each inode. Otherwise, one is kept for each inode without a name.
    pub fn keep_for(&self, device: u64, only_these_lead: bool) {
        let mut found = self.lock();
        (found.device, found.keeps_named) = (Some(device), only_these_lead);
    }

    /// Closes all descriptors except one for each inode that [`Self::keep_for`] selects and
    /// [`Self::descriptor_of`] has not returned yet.
    pub fn close_others(&self) {
        let found = &mut *self.lock();
        found.are_final = true;
        let (device, keeps_named) = (found.device, found.keeps_named);
        found.others.clear();
        let returned = std::mem::take(&mut found.returned);
        found.by_inode.retain(|inode, all| {
            all.truncate(1);
            let is_nameless =
                |one: &OwnedFd| rustix::fs::fstat(one).is_ok_and(|found| found.st_nlink == 0);
            let is_wanted = |one: &OwnedFd| keeps_named || is_nameless(one);
            device == Some(inode.0)
                && !returned.contains(inode)
                && all.first().is_some_and(is_wanted)
        });
    }

    fn lock(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    fn add(&mut self, descriptor: OwnedFd) {
        // A descriptor that can't be examined does not refer to a lower file. An example is a
        // directory of /proc that belongs to the killed worker.
        let Ok(stat) = rustix::fs::fstat(&descriptor) else { return self.others.push(descriptor) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile
            | FileType::Directory
            | FileType::Symlink
            | FileType::BlockDevice => {
                // Ends a lease of an exited worker. Otherwise opening the file would wait for that
                // worker. Most descriptors have no lease and return an error.
                let _without_lease = lease::give_back(&descriptor);
                self.by_inode.entry((stat.st_dev, stat.st_ino)).or_default().push(descriptor);
            }
            _ => self.others.push(descriptor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_forked() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || receiver.recv().is_err());
        let refused = supervise(&[], &BTreeSet::new(), || true, |_| false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        drop(sender);
        assert!(thread.join().unwrap());
    }

    fn inherited(file: std::fs::File) -> (Inherited, u64, u64) {
        let stat = rustix::fs::fstat(&file).unwrap();
        let inherited = Inherited::default();
        inherited.lock().add(file.into());
        (inherited, stat.st_dev, stat.st_ino)
    }

    /// A worker may be killed while it reads a directory of /proc. That descriptor is inherited
    /// too, although `fstat` fails for it.
    #[test]
    fn descriptor_of_a_dead_process_is_inherited() {
        let mut child = std::process::Command::new("/bin/cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let directory = std::fs::File::open(format!("/proc/{}/fd", child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(rustix::fs::fstat(&directory).unwrap_err(), rustix::io::Errno::NOENT);
        let inherited = Inherited::default();
        inherited.lock().add(directory.into());
        assert_eq!(inherited.count(), 1);
        inherited.close_others();
        assert_eq!(inherited.count(), 0);
    }

    #[test]
    fn inherited_file_is_matched_by_its_open_flags() {
        let (inherited, device, number) = inherited(tempfile::tempfile().unwrap());
        for flags in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR | OFlags::SYNC] {
            assert!(inherited.take_opened(device, number, flags).is_none());
        }
        assert!(inherited.descriptor_of(device, number + 1).is_none());
        assert!(inherited.take_opened(device, number, OFlags::RDWR | OFlags::APPEND).is_some());
        assert_eq!(inherited.count(), 0);
    }

    #[test]
    fn close_others_keeps_only_unlinked_files() {
        let (nameless, device, number) = inherited(tempfile::tempfile().unwrap());
        nameless.keep_for(device, false);
        nameless.close_others();
        assert!(nameless.descriptor_of(device, number).is_some());
        assert_eq!(nameless.count(), 0);
        let named = tempfile::NamedTempFile::new().unwrap();
        let (inherited, device, _) = inherited(named.reopen().unwrap());
        inherited.keep_for(device, false);
        inherited.close_others();
        assert_eq!(inherited.count(), 0);
    }

    #[test]
    fn closing_an_inherited_file_releases_its_lock() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let locked = named.reopen().unwrap();
        locked.try_lock().unwrap();
        let (inherited, ..) = inherited(locked);
        named.as_file().try_lock().unwrap_err();
        inherited.close_file(named.path()).unwrap();
        named.as_file().try_lock().unwrap();
        inherited.close_file(Path::new("/none")).unwrap();
    }

    #[test]
    fn files_of_other_devices_are_closed() {
        let (inherited, device, _) = inherited(tempfile::tempfile().unwrap());
        inherited.keep_for(device + 1, true);
        inherited.close_others();
        assert_eq!(inherited.count(), 0);
    }
}
