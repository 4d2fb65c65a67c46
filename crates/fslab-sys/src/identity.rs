//! Acting on behalf of a caller: file-system ids, groups and umask of one thread.
//!
//! Files must be created *as* their owner: set-group-id directories, default ACLs, quotas and
//! project ids all look at who creates, and repairing ownership afterwards is neither atomic nor
//! complete. Linux keeps these identities per thread when the raw system calls are used (the C
//! library's wrappers would change every thread of the process).

use std::cell::Cell;
use std::fs;
use std::marker::PhantomData;

use rustix::io::Result;
use rustix::process::{getgid, getuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::file_handle::check;

/// The calling thread acts as somebody else until this is dropped.
#[derive(Debug)]
pub struct ActingAs {
    /// What to go back to; `None` where nothing was changed.
    before: Option<Own>,
    /// The identity belongs to a thread, and so does its end.
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
    /// Takes the file-system ids and supplementary groups of a caller. Free of cost where the
    /// process already has them.
    ///
    /// Capabilities that bypass permission checks are kept, because the caller's permissions were
    /// checked before and the lower directory may be stricter than the mount; CAP_FSETID,
    /// CAP_CHOWN and the like are given up with the user id, so that the kernel treats set-id
    /// bits and ownership as for the caller.
    ///
    /// # Errors
    /// `EPERM` where the process may not change its identity and the caller is somebody else.
    pub fn caller(uid: u32, gid: u32, pid: u32) -> Result<Self> {
        let own_uid = getuid().as_raw();
        let own_gid = getgid().as_raw();
        if uid == own_uid && gid == own_gid {
            return Ok(Self { before: None, _bound_to_thread: PhantomData });
        }
        let before =
            Own { uid: own_uid, gid: own_gid, groups: None, capabilities: capabilities(None)? };
        let mut acting = Self { before: Some(before), _bound_to_thread: PhantomData };
        acting.take(uid, gid, pid)?;
        Ok(acting)
    }

    fn take(&mut self, uid: u32, gid: u32, pid: u32) -> Result<()> {
        if let Some(before) = self.before.as_mut() {
            before.groups = Some(own_groups()?);
            set_groups(&groups_of(pid).unwrap_or_default())?;
        }
        // The group first: without the user id the thread may no longer change it.
        set_file_system_id(libc::SYS_setfsgid, gid)?;
        set_file_system_id(libc::SYS_setfsuid, uid)?;
        keep_bypassing_permissions()
    }
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else { return };
        let restored = restore(&before);
        // Going on as somebody else would create files with wrong owners, silently.
        assert!(restored.is_ok(), "a thread could not get its own identity back: {restored:?}");
    }
}

fn restore(before: &Own) -> Result<()> {
    set_file_system_id(libc::SYS_setfsuid, before.uid)?;
    set_file_system_id(libc::SYS_setfsgid, before.gid)?;
    set_capabilities(None, before.capabilities)?;
    before.groups.as_deref().map_or(Ok(()), set_groups)
}

/// Sets a file-system id and makes sure: these calls answer the old id and never an error.
fn set_file_system_id(call: libc::c_long, id: u32) -> Result<()> {
    // SAFETY: setfsuid and setfsgid take one integer and touch no memory.
    unsafe { libc::syscall(call, id) };
    // SAFETY: as above; the invalid id -1 changes nothing and answers the present one.
    let present = unsafe { libc::syscall(call, u32::MAX) };
    if present as u32 == id { Ok(()) } else { Err(rustix::io::Errno::PERM) }
}

fn keep_bypassing_permissions() -> Result<()> {
    let mut sets = capabilities(None)?;
    let bypass = CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::FOWNER
        | CapabilitySet::MKNOD;
    sets.effective |= bypass & sets.permitted;
    set_capabilities(None, sets)
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

/// Supplementary groups of a thread; `None` where it is gone or unknown.
fn groups_of(pid: u32) -> Option<Vec<u32>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    line.split_whitespace().map(|group| group.parse().ok()).collect()
}

/// Whether a thread may keep set-id bits when it writes (has CAP_FSETID in effect). Unknown
/// threads may not: clearing the bits is the safe side.
#[must_use]
pub fn has_cap_fsetid(pid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & CapabilitySet::FSETID.bits() != 0)
}

thread_local! {
    /// The umask this thread has set for itself; `None` while it shares the process's.
    static THREAD_UMASK: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Gives the calling thread a umask of its own, of the caller it acts for. The lower file system
/// then applies it exactly where it should: not under a default ACL.
///
/// # Errors
/// Those of `unshare(CLONE_FS)`.
pub fn set_thread_umask(umask: u32) -> Result<()> {
    let present = THREAD_UMASK.get();
    if present == Some(umask) {
        return Ok(());
    }
    if present.is_none() {
        // SAFETY: CLONE_FS gives this thread its own umask, root and working directory; it
        // affects no memory and no descriptors.
        let answer = unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_FS) };
        check(answer)?;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
    THREAD_UMASK.set(Some(umask));
    Ok(())
}
