//! Lets one thread act on behalf of a caller, with the caller's file-system ids, groups and umask.
//!
//! Files must be created *as* their owner: set-group-id directories, default ACLs, quotas and
//! project ids all depend on the creator. Fixing the ownership afterwards is neither atomic nor
//! complete. Linux keeps these identities per thread, and the raw system calls change only the
//! calling thread. The wrappers of the C library would change every thread of the process.

use std::cell::Cell;
use std::fs;
use std::marker::PhantomData;
use std::sync::OnceLock;

use rustix::fs::Mode;
use rustix::io::Result;
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::file_handle::check;

/// Capabilities that bypass permission checks. They are kept, because the caller's permissions were
/// already checked and the lower directory may be stricter than the mount.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::MKNOD);

/// Capabilities that are dropped. They would give files of ordinary users properties that only root
/// may set: set-id bits, foreign owners, immutable flags, space beyond quotas and reserves.
const GIVEN_UP: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::SYS_RESOURCE);

/// The supplementary groups of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups<'a> {
    /// The groups that /proc reports for a thread; none if the thread is unknown.
    OfThread(u32),
    /// The given groups. Groups that can't affect the operation may be missing.
    These(&'a [u32]),
}

impl Groups<'_> {
    fn to_vec(self) -> Vec<u32> {
        match self {
            Self::OfThread(pid) => groups_of(pid).unwrap_or_default(),
            Self::These(groups) => groups.to_vec(),
        }
    }
}

/// A guard: the calling thread acts as another user until the guard is dropped.
#[derive(Debug)]
pub struct ActingAs {
    /// The identity to restore; `None` if nothing was changed.
    before: Option<Own>,
    /// The identity belongs to a thread, so the guard must be dropped on the same thread.
    _bound_to_thread: PhantomData<*const ()>,
}

#[derive(Debug)]
struct Own {
    uid: u32,
    gid: u32,
    groups: Option<Vec<u32>>,
    capabilities: CapabilitySets,
}

impl ActingAs {
    /// Gives the calling thread the file-system ids and supplementary groups of a caller. This
    /// makes no system call if the process already has the user and the group of the caller.
    ///
    /// Capabilities that bypass permission checks are kept. CAP_FSETID, CAP_CHOWN and similar ones
    /// are dropped for any caller except root. So the kernel applies the caller's rules to set-id
    /// bits, ownership and quotas.
    ///
    /// # Errors
    /// `EPERM` if the process may not change its identity and the caller is another user.
    pub fn caller(uid: u32, gid: u32, groups: Groups<'_>) -> Result<Self> {
        let own = own_ids();
        if own == (uid, gid) {
            return Ok(Self { before: None, _bound_to_thread: PhantomData });
        }
        let before =
            Own { uid: own.0, gid: own.1, groups: None, capabilities: capabilities(None)? };
        let mut acting = Self { before: Some(before), _bound_to_thread: PhantomData };
        acting.take(uid, gid, groups)?;
        Ok(acting)
    }

    fn take(&mut self, uid: u32, gid: u32, groups: Groups<'_>) -> Result<()> {
        if let Some(before) = self.before.as_mut() {
            let own = own_groups()?;
            set_groups(&groups.to_vec())?;
            // From here on, the groups must be restored. A process that can't set groups has failed
            // above, and could not restore them.
            before.groups = Some(own);
        }
        // The group is set first: without root's user id, the thread can't change it.
        set_file_system_id(libc::SYS_setfsgid, gid)?;
        set_file_system_id(libc::SYS_setfsuid, uid)?;
        take_capabilities(uid)
    }
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else { return };
        if let Err(error) = restore(&before) {
            // If the thread continued, later files would silently get wrong owners. A panic is not
            // enough, because servers catch panics and reuse the thread.
            tracing::error!(%error, "can't restore the user and groups of a thread; aborting");
            std::process::abort();
        }
    }
}

fn restore(before: &Own) -> Result<()> {
    set_file_system_id(libc::SYS_setfsuid, before.uid)?;
    set_file_system_id(libc::SYS_setfsgid, before.gid)?;
    set_capabilities(None, before.capabilities)?;
    before.groups.as_deref().map_or(Ok(()), set_groups)
}

/// Sets a file-system id and verifies it, because these calls return the old id and never an error.
fn set_file_system_id(call: libc::c_long, id: u32) -> Result<()> {
    // SAFETY: setfsuid and setfsgid take one integer and touch no memory.
    unsafe { libc::syscall(call, id) };
    // SAFETY: as above; the invalid id -1 changes nothing, and the call returns the current id.
    let present = unsafe { libc::syscall(call, u32::MAX) };
    if present as u32 == id { Ok(()) } else { Err(rustix::io::Errno::PERM) }
}

fn take_capabilities(uid: u32) -> Result<()> {
    let mut sets = capabilities(None)?;
    if uid != 0 {
        sets.effective.remove(GIVEN_UP);
    }
    sets.effective |= KEPT & sets.permitted;
    set_capabilities(None, sets)
}

thread_local! {
    /// Whether CAP_FSETID is effective on this thread. `None` until it is first determined, because
    /// a thread inherits the effective capabilities of its creator.
    static HAS_FSETID: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Drops CAP_FSETID on this thread, for example before a file is registered with the kernel. The
/// kernel must then clear the file's set-id bits at every write.
///
/// The capability remains dropped until a call of [`raise_fsetid`]. Each change costs a
/// microsecond, and a thread that opens one file probably opens more. If the capability is already
/// dropped, the call costs nothing.
///
/// # Errors
/// Errors of capset(2).
pub fn drop_fsetid() -> Result<()> {
    set_fsetid(false)
}

/// Raises CAP_FSETID on this thread if the process has it, before a write or a change of mode. This
/// costs nothing if the capability is already raised. Must not be called while acting as another
/// user, because that user would get the capability.
///
/// # Errors
/// Errors of capset(2).
pub fn raise_fsetid() -> Result<()> {
    set_fsetid(true)
}

fn set_fsetid(up: bool) -> Result<()> {
    if HAS_FSETID.get() == Some(up) {
        return Ok(());
    }
    let mut sets = capabilities(None)?;
    let before = sets.effective;
    sets.effective.set(CapabilitySet::FSETID, up && sets.permitted.contains(CapabilitySet::FSETID));
    if sets.effective != before {
        set_capabilities(None, sets)?;
    }
    HAS_FSETID.set(Some(up));
    Ok(())
}

/// User and group of this process, which are also its file-system ids. Read only once, because
/// fslab never changes them, and every creation of a file needs them.
fn own_ids() -> (u32, u32) {
    static OWN: OnceLock<(u32, u32)> = OnceLock::new();
    *OWN.get_or_init(|| (geteuid().as_raw(), getegid().as_raw()))
}

fn own_groups() -> Result<Vec<u32>> {
    Ok(rustix::process::getgroups()?.into_iter().map(|group| group.as_raw()).collect())
}

fn set_groups(groups: &[u32]) -> Result<()> {
    // SAFETY: the pointer and the count describe a live slice of 32-bit ids, which the kernel
    // only reads. The raw call changes this thread only.
    let answer = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    check(answer).map(|_| ())
}

/// Supplementary groups of a thread; `None` if it has ended or is unknown.
fn groups_of(pid: u32) -> Option<Vec<u32>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    line.split_whitespace().map(|group| group.parse().ok()).collect()
}

/// Whether a group is the file-system group of a thread or one of its supplementary groups. Returns
/// `false` for unknown threads.
#[must_use]
pub fn belongs_to_group(pid: u32, gid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    // A missing line counts as empty.
    let ids =
        |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    // The line contains the real, effective, saved and file-system group. The kernel uses the last
    // one for access to files.
    let in_effect = ids("Gid:").split_whitespace().nth(3);
    let mut groups = in_effect.into_iter().chain(ids("Groups:").split_whitespace());
    groups.any(|group| group.parse() == Ok(gid))
}

/// Whether a capability is effective for a thread. Unknown threads have none. Threads in another
/// user namespace have none either, because any user can be root in a namespace of their own.
#[must_use]
pub fn has_capability(pid: u32, capability: CapabilitySet) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    effective.is_some_and(|mask| mask & capability.bits() != 0) && shares_user_namespace(pid)
}

fn shares_user_namespace(pid: u32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/user"));
    match (namespace(&pid.to_string()), namespace("self")) {
        (Ok(one), Ok(own)) => one == own,
        _ => false,
    }
}

thread_local! {
    /// The umask of this thread, once the thread has its own and no longer shares one with other
    /// threads. From then on, only this module changes it.
    static OWN_UMASK: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A guard: the calling thread has the umask of a caller until the guard is dropped. The lower file
/// system then applies the umask itself, and ignores it where a default ACL requires that.
#[derive(Debug)]
pub struct ThreadUmask {
    /// The umask to restore; `None` if nothing was changed.
    before: Option<u32>,
    /// The umask belongs to a thread, so the guard must be dropped on the same thread.
    _bound_to_thread: PhantomData<*const ()>,
}

impl ThreadUmask {
    /// Sets the umask of this thread only. This costs nothing if the umask already has this value.
    /// From the first change on, the thread also has its own working directory and root.
    ///
    /// # Errors
    /// Errors of unshare(2).
    pub fn set(umask: u32) -> Result<Self> {
        let present = own_umask()?;
        let before = (umask != present).then_some(present);
        if before.is_some() {
            change_umask(umask);
        }
        Ok(Self { before, _bound_to_thread: PhantomData })
    }
}

impl Drop for ThreadUmask {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            change_umask(before);
        }
    }
}

fn own_umask() -> Result<u32> {
    if let Some(umask) = OWN_UMASK.get() {
        return Ok(umask);
    }
    // SAFETY: CLONE_FS gives this thread its own umask, root and working directory; it affects no
    // memory and no descriptors.
    let answer = unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_FS) };
    check(answer)?;
    // The umask can only be read by setting it.
    let umask = change_umask(0);
    change_umask(umask);
    Ok(umask)
}

/// Changes the umask of this thread, which must not be shared, and returns the old one.
fn change_umask(umask: u32) -> u32 {
    OWN_UMASK.set(Some(umask));
    rustix::process::umask(Mode::from_raw_mode(umask)).as_raw_mode()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::process::Command;
    use std::thread;

    use rustix::io::Errno;

    use super::*;

    const USER: u32 = 1234;
    const GROUP: u32 = 2345;

    /// The identity of a thread according to the kernel: ids, groups and effective capabilities.
    fn identity() -> Vec<String> {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let told = |line: &&str| {
            ["Uid:", "Gid:", "Groups:", "CapEff:"].iter().any(|name| line.starts_with(name))
        };
        status.lines().filter(told).map(str::to_owned).collect()
    }

    /// The fourth id of a line such as `Uid: real effective saved file-system`.
    fn file_system_id(line: &str) -> u32 {
        line.split_whitespace().nth(4).unwrap().parse().unwrap()
    }

    fn effective() -> CapabilitySet {
        capabilities(None).unwrap().effective
    }

    fn is_root(test: &str) -> bool {
        let is_root = geteuid().is_root();
        if !is_root {
            eprintln!("SKIP {test}: not root");
            assert!(std::env::var_os("FSLAB_REQUIRE_ALL").is_none(), "{test} needs root");
        }
        is_root
    }

    #[test]
    fn acting_as_a_caller_affects_one_thread_until_dropped() {
        if !is_root("acting_as_a_caller_affects_one_thread_until_dropped") {
            return;
        }
        let before = identity();
        let acting = ActingAs::caller(USER, GROUP, Groups::These(&[])).unwrap();
        let during = identity();
        assert_eq!((file_system_id(&during[0]), file_system_id(&during[1])), (USER, GROUP));
        assert_eq!(during[2].trim_end(), "Groups:", "of an unknown caller");
        assert!(effective().contains(KEPT) && !effective().intersects(GIVEN_UP));
        assert_eq!(thread::spawn(identity).join().unwrap()[3], during[3], "a child inherits");
        drop(acting);
        assert_eq!(identity(), before);
    }

    #[test]
    fn created_files_belong_to_the_caller_and_its_groups_apply() {
        if !is_root("created_files_belong_to_the_caller_and_its_groups_apply") {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut caller = Command::new("setpriv")
            .args(["--reuid=1234", "--regid=2345", "--groups=4321", "sleep", "60"])
            .spawn()
            .unwrap();
        while groups_of(caller.id()) != Some(vec![4321]) {
            assert!(caller.try_wait().unwrap().is_none(), "setpriv ended");
            thread::yield_now();
        }
        let path = directory.path().join("file");
        let given = ActingAs::caller(USER, GROUP, Groups::These(&[77])).unwrap();
        assert_eq!(own_groups().unwrap(), [77]);
        drop(given);
        let acting = ActingAs::caller(USER, GROUP, Groups::OfThread(caller.id())).unwrap();
        fs::write(&path, "").unwrap();
        assert_eq!(own_groups().unwrap(), [4321]);
        std::os::unix::fs::chown(&path, None, Some(4321)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2755)).unwrap();
        drop(acting);
        caller.kill().unwrap();
        caller.wait().unwrap();
        let file = fs::metadata(&path).unwrap();
        assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (USER, 4321, 0o2755));
    }

    #[test]
    fn root_keeps_its_capabilities_with_another_group() {
        if !is_root("root_keeps_its_capabilities_with_another_group") {
            return;
        }
        let before = effective();
        let acting = ActingAs::caller(0, GROUP, Groups::These(&[])).unwrap();
        assert_eq!(effective(), before);
        drop(acting);
    }

    #[test]
    fn thread_that_cannot_change_identity_keeps_its_own() {
        if !is_root("thread_that_cannot_change_identity_keeps_its_own") {
            return;
        }
        for lacking in [CapabilitySet::SETGID, CapabilitySet::SETUID] {
            let refused = thread::spawn(move || {
                let mut sets = capabilities(None).unwrap();
                sets.effective.remove(lacking);
                set_capabilities(None, sets).unwrap();
                let before = identity();
                let answer = ActingAs::caller(USER, GROUP, Groups::These(&[])).map(drop);
                assert_eq!(identity(), before);
                answer
            });
            assert_eq!(refused.join().unwrap(), Err(Errno::PERM), "without {lacking:?}");
        }
    }

    #[test]
    fn fsetid_stays_dropped_until_it_is_raised_again() {
        let before = effective();
        let heir = thread::spawn(move || {
            for _ in 0..2 {
                raise_fsetid().unwrap();
                assert_eq!(effective(), before);
                drop_fsetid().unwrap();
                drop_fsetid().unwrap();
                assert_eq!(effective(), before - CapabilitySet::FSETID);
            }
            thread::spawn(|| {
                raise_fsetid().unwrap();
                effective()
            })
        });
        let of_heir = heir.join().unwrap().join().unwrap();
        assert_eq!(of_heir, before, "a thread that inherits no right takes it up too");
    }

    #[test]
    fn capabilities_of_another_user_namespace_do_not_count() {
        let own = std::process::id();
        assert_eq!(
            has_capability(own, CapabilitySet::FSETID),
            effective().contains(CapabilitySet::FSETID)
        );
        assert!(!has_capability(0, CapabilitySet::FSETID), "an unknown thread");
        let mut stranger = Command::new("unshare").args(["--user", "sleep", "60"]).spawn().unwrap();
        let comm = format!("/proc/{}/comm", stranger.id());
        while fs::read_to_string(&comm).unwrap().trim_end() != "sleep" {
            assert!(stranger.try_wait().unwrap().is_none(), "can't create a user namespace");
            thread::yield_now();
        }
        let counts = has_capability(stranger.id(), CapabilitySet::FSETID);
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert!(!counts);
    }

    #[test]
    fn thread_umask_affects_one_thread_until_dropped() {
        fn umask() -> String {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            status.lines().find(|line| line.starts_with("Umask:")).unwrap().to_owned()
        }
        let before = umask();
        let other = thread::spawn(|| {
            let first = ThreadUmask::set(0o135).map(|_set| umask()).unwrap();
            let second = ThreadUmask::set(0o24).map(|_set| umask()).unwrap();
            (first, second, umask())
        });
        let (first, second, after) = other.join().unwrap();
        assert_eq!([first.as_str(), second.as_str()], ["Umask:\t0135", "Umask:\t0024"]);
        assert_eq!(after, before, "the thread has the umask it had");
        assert_eq!(umask(), before);
    }
}
