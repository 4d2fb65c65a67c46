//! Error numbers by the names that manual pages use.

use crate::error::Errno;

macro_rules! names {
    ($($name:ident = $full:literal),* $(,)?) => {
        /// The names that file systems answer with.
        const NAMES: &[(Errno, &str)] = &[$((Errno::$name, $full)),*];
    };
}

names! {
    PERM = "EPERM", NOENT = "ENOENT", INTR = "EINTR", IO = "EIO", NXIO = "ENXIO", TOOBIG = "E2BIG",
    BADF = "EBADF", AGAIN = "EAGAIN", NOMEM = "ENOMEM", ACCESS = "EACCES", FAULT = "EFAULT",
    BUSY = "EBUSY", EXIST = "EEXIST", XDEV = "EXDEV", NODEV = "ENODEV", NOTDIR = "ENOTDIR",
    ISDIR = "EISDIR", INVAL = "EINVAL", NFILE = "ENFILE", MFILE = "EMFILE", NOTTY = "ENOTTY",
    TXTBSY = "ETXTBSY", FBIG = "EFBIG", NOSPC = "ENOSPC", SPIPE = "ESPIPE", ROFS = "EROFS",
    MLINK = "EMLINK", PIPE = "EPIPE", RANGE = "ERANGE", DEADLK = "EDEADLK",
    NAMETOOLONG = "ENAMETOOLONG", NOSYS = "ENOSYS", NOTEMPTY = "ENOTEMPTY", LOOP = "ELOOP",
    NODATA = "ENODATA", OVERFLOW = "EOVERFLOW", ILSEQ = "EILSEQ", OPNOTSUPP = "EOPNOTSUPP",
    NOTCONN = "ENOTCONN", TIMEDOUT = "ETIMEDOUT", STALE = "ESTALE", UCLEAN = "EUCLEAN",
    DQUOT = "EDQUOT", CANCELED = "ECANCELED",
}

/// The name of an error number, such as `ENOENT`; `errno 123` for one that has none here.
#[must_use]
pub fn errno_name(errno: Errno) -> String {
    let found = NAMES.iter().find(|(known, _)| *known == errno);
    found.map_or_else(|| format!("errno {}", errno.raw_os_error()), |(_, name)| (*name).to_owned())
}

/// The error number of a name such as `ENOENT`, or of a number.
#[must_use]
pub fn errno_from_name(text: &str) -> Option<Errno> {
    let named = NAMES.iter().find(|(_, name)| name.eq_ignore_ascii_case(text));
    let numbered = || text.parse().ok().filter(|number| (1..4096).contains(number));
    named.map(|(errno, _)| *errno).or_else(|| numbered().map(Errno::from_raw_os_error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_stand_for_each_other() {
        for (errno, name) in NAMES {
            assert_eq!(errno_name(*errno), *name);
            assert_eq!(errno_from_name(name), Some(*errno));
        }
        assert_eq!(errno_from_name("2"), Some(Errno::NOENT));
        assert_eq!(errno_name(Errno::from_raw_os_error(4000)), "errno 4000");
        assert_eq!(errno_from_name("ENOSUCH"), None);
        assert_eq!(errno_from_name("0"), None);
    }
}
