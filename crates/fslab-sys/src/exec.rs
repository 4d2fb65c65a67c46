//! Executes another program in this process and keeps all open descriptors. In this way, a
//! supervisor is replaced by a newer version of itself.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::FdFlags;

/// Standard input, output and error, which every program has.
const STANDARD: [RawFd; 3] = [0, 1, 2];

/// A program file that only root or the current user can write to.
#[derive(Debug)]
pub struct TrustedProgram(OwnedFd);

impl TrustedProgram {
    /// Opens the program at a path. A program to be run by root must belong to root.
    ///
    /// # Errors
    /// Errors of the kernel; `PermissionDenied` if another user could change it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let program = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = rustix::fs::fstat(&program)?;
        let refused = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return refused("it is not a regular file");
        }
        let own = rustix::process::geteuid().as_raw();
        if stat.st_uid != 0 && stat.st_uid != own {
            return refused("it belongs to another user");
        }
        if stat.st_mode & 0o022 != 0 {
            return refused("users other than its owner may write to it");
        }
        Ok(Self(program))
    }

    /// Makes a command that runs the program as another process, even if its path now refers to
    /// another file. The returned descriptor must remain open until the command has been started.
    ///
    /// # Errors
    /// All descriptors are in use.
    pub fn command(&self) -> io::Result<(Command, OwnedFd)> {
        // The copy is not closed on exec, because the interpreter of a script opens it again.
        let inherited = rustix::io::dup(&self.0)?;
        Ok((Command::new(format!("/proc/self/fd/{}", inherited.as_raw_fd())), inherited))
    }

    /// Runs the program in this process, with all descriptors and blocked signals.
    ///
    /// # Errors
    /// Errors of the kernel; this program then continues.
    pub fn replace_this(&self, arguments: Vec<OsString>) -> io::Result<Infallible> {
        let arguments: Vec<CString> = arguments
            .into_iter()
            .map(|argument| CString::new(argument.into_vec()))
            .collect::<Result<_, _>>()?;
        let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let mut all = open_descriptors()?;
        all.retain(|number| !STANDARD.contains(number) && *number != self.0.as_raw_fd());
        let kept = close_on_exec(&all, false);
        unsafe extern "C" {
            static environ: *const *const libc::c_char;
        }
        // SAFETY: the arguments and the environment end with a null pointer and live until the call
        // is over. No other thread changes the environment.
        let replaced = kept.map(|()| unsafe {
            libc::execveat(
                self.0.as_raw_fd(),
                c"".as_ptr(),
                pointers.as_ptr().cast(),
                environ.cast(),
                libc::AT_EMPTY_PATH,
            )
        });
        let error = replaced.map_or_else(|error| error, |_| io::Error::last_os_error());
        close_on_exec(&all, true)?;
        Err(error)
    }
}

/// Takes ownership of descriptors that the previous program left open, given their numbers.
///
/// # Errors
/// `EBADF` if a number is not open, `EINVAL` if a number is given twice.
pub fn take<const N: usize>(numbers: [RawFd; N]) -> io::Result<[OwnedFd; N]> {
    let distinct: BTreeSet<RawFd> = numbers.iter().copied().collect();
    if distinct.len() != numbers.len() {
        return Err(rustix::io::Errno::INVAL.into());
    }
    close_on_exec(&numbers, true)?;
    // SAFETY: each number is open and given only once. The previous program left the descriptor
    // open for this caller. This program did not open it, so nothing else here owns it.
    Ok(numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) }))
}

/// Returns all open descriptors except the standard ones and `others`, and marks the returned ones
/// as close-on-exec.
///
/// # Errors
/// Errors of the kernel.
pub fn open_besides(others: &[RawFd]) -> io::Result<BTreeSet<RawFd>> {
    let mut all = open_descriptors()?;
    all.retain(|number| !STANDARD.contains(number) && !others.contains(number));
    close_on_exec(&all, true)?;
    Ok(all)
}

/// The numbers of all open descriptors.
pub(crate) fn open_descriptors() -> io::Result<BTreeSet<RawFd>> {
    let listed = std::fs::read_dir("/proc/self/fd")?;
    let numbers: Vec<RawFd> =
        listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    // The list also contains the descriptor that was used for reading it, but that one is closed by
    // now.
    // SAFETY: asking for the flags of a number changes nothing, whether it is open or not.
    let is_open = |number: &RawFd| unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0;
    Ok(numbers.into_iter().filter(is_open).collect())
}

fn close_on_exec<'a>(
    numbers: impl IntoIterator<Item = &'a RawFd>,
    is_closed: bool,
) -> io::Result<()> {
    let flags = if is_closed { FdFlags::CLOEXEC } else { FdFlags::empty() };
    for number in numbers {
        if *number < 0 {
            return Err(rustix::io::Errno::BADF.into());
        }
        // SAFETY: the number is used only for this call, which fails if it is not open.
        rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(*number) }, flags)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_that_others_can_change_is_not_trusted() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("program");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        let with_mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            TrustedProgram::open(&path).map(drop).map_err(|error| error.kind())
        };
        assert_eq!(with_mode(0o755), Ok(()));
        for mode in [0o775, 0o757] {
            assert_eq!(with_mode(mode), Err(io::ErrorKind::PermissionDenied), "{mode:o}");
        }
        assert!(TrustedProgram::open(scratch.path()).is_err());
        assert!(TrustedProgram::open(&scratch.path().join("none")).is_err());
        if rustix::process::geteuid().is_root() {
            assert_eq!(with_mode(0o755), Ok(()));
            std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
            assert_eq!(with_mode(0o755), Err(io::ErrorKind::PermissionDenied));
        }
    }

    #[test]
    fn failed_exec_leaves_open_files_close_on_exec() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("program");
        std::fs::write(&path, "neither a program nor a script").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let open = tempfile::tempfile().unwrap();
        let error = TrustedProgram::open(&path).unwrap().replace_this(vec!["program".into()]);
        let Err(error) = error;
        assert_eq!(error.raw_os_error(), Some(libc::ENOEXEC));
        assert!(rustix::io::fcntl_getfd(&open).unwrap().contains(FdFlags::CLOEXEC));
    }

    #[test]
    fn only_open_descriptors_are_taken_and_only_once() {
        let file = tempfile::tempfile().unwrap();
        let number = file.as_raw_fd();
        assert!(take([number, number]).is_err());
        assert!(take([-1]).is_err());
        assert!(take([1 << 29]).is_err());
        std::mem::forget(file);
        assert_eq!(take([number]).unwrap()[0].as_raw_fd(), number);
    }
}
