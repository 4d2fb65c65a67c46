//! Numbers of users and groups by name, from the system's name service: local files, LDAP or any
//! other configured source.

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::mem::MaybeUninit;

/// Range of buffer sizes for the texts of an entry, in bytes. Entries of groups can be long,
/// because they list all members.
const ROOM: std::ops::RangeInclusive<usize> = 1 << 10..=16 << 20;

/// Asks the name service for the number in an entry.
macro_rules! ask {
    ($name:ident, $ask:ident, $entry:ident, $number:ident) => {
        look_up($name, |name, room, found| {
            let mut entry = MaybeUninit::<libc::$entry>::uninit();
            let mut answer = std::ptr::null_mut();
            let (entry, bytes, length) = (entry.as_mut_ptr(), room.as_mut_ptr(), room.len());
            // SAFETY: the name ends with NUL. Only this call uses the entry and the buffer, and the
            // buffer's length is given.
            let errno = unsafe { libc::$ask(name.as_ptr(), entry, bytes, length, &raw mut answer) };
            // SAFETY: a non-null answer points to the entry, which the call has filled.
            *found = unsafe { answer.as_ref() }.map(|entry| entry.$number);
            errno
        })
    };
}

/// The number of a user; `None` if there is no such user.
///
/// # Errors
/// Errors of the name service.
pub fn user(name: &str) -> io::Result<Option<u32>> {
    ask!(name, getpwnam_r, passwd, pw_uid)
}

/// The number of a group; `None` if there is no such group.
///
/// # Errors
/// As for [`user`].
pub fn group(name: &str) -> io::Result<Option<u32>> {
    ask!(name, getgrnam_r, group, gr_gid)
}

/// Repeats a query with a larger buffer until the answer fits.
fn look_up(
    name: &str,
    ask: impl Fn(&CString, &mut [c_char], &mut Option<u32>) -> c_int,
) -> io::Result<Option<u32>> {
    // No name has a NUL in it.
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut length = *ROOM.start();
    loop {
        let mut found = None;
        match ask(&name, &mut vec![0; length], &mut found) {
            0 => return Ok(found),
            libc::ERANGE if length < *ROOM.end() => length *= 2,
            libc::EINTR => {}
            // Some name services report a missing name with these errors.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_account_names_return_none() {
        assert_eq!(user("root").unwrap(), Some(0));
        assert_eq!(group("root").unwrap(), Some(0));
        for none in ["", "no such account", "ro\0ot"] {
            assert_eq!((user(none).unwrap(), group(none).unwrap()), (None, None), "{none:?}");
        }
    }

    #[test]
    fn lookup_is_retried_with_a_larger_buffer() {
        let asked = std::cell::RefCell::new(Vec::new());
        let found = look_up("name", |_, room, found| {
            asked.borrow_mut().push(room.len());
            *found = (room.len() > 2048).then_some(7);
            if found.is_some() { 0 } else { libc::ERANGE }
        });
        assert_eq!((found.unwrap(), asked.into_inner()), (Some(7), vec![1024, 2048, 4096]));
    }
}
