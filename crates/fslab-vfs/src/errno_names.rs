//! Names of error numbers, as in manual pages.

use crate::error::Errno;

/// The largest error number in use.
pub const ERRNO_LAST: i32 = 133;

macro_rules! named {
    ($($name:ident)+) => {
        &[
            ("E2BIG", Errno::TOOBIG),
            ("EACCES", Errno::ACCESS),
            $((concat!("E", stringify!($name)), Errno::$name),)+
        ]
    };
}

/// All Linux errors by name. If several names have the same number, the usual one comes first.
#[rustfmt::skip]
pub const ERRNO_NAMES: &[(&str, Errno)] = named! {
    ADDRINUSE ADDRNOTAVAIL ADV AFNOSUPPORT AGAIN ALREADY BADE BADF BADFD BADMSG BADR BADRQC
    BADSLT BFONT BUSY CANCELED CHILD CHRNG COMM CONNABORTED CONNREFUSED CONNRESET DEADLK DEADLOCK
    DESTADDRREQ DOM DOTDOT DQUOT EXIST FAULT FBIG HOSTDOWN HOSTUNREACH HWPOISON IDRM ILSEQ
    INPROGRESS INTR INVAL IO ISCONN ISDIR ISNAM KEYEXPIRED KEYREJECTED KEYREVOKED L2HLT L2NSYNC
    L3HLT L3RST LIBACC LIBBAD LIBEXEC LIBMAX LIBSCN LNRNG LOOP MEDIUMTYPE MFILE MLINK MSGSIZE
    MULTIHOP NAMETOOLONG NAVAIL NETDOWN NETRESET NETUNREACH NFILE NOANO NOBUFS NOCSI NODATA NODEV
    NOENT NOEXEC NOKEY NOLCK NOLINK NOMEDIUM NOMEM NOMSG NONET NOPKG NOPROTOOPT NOSPC NOSR NOSTR
    NOSYS NOTBLK NOTCONN NOTDIR NOTEMPTY NOTNAM NOTRECOVERABLE NOTSOCK NOTTY NOTUNIQ NXIO
    OPNOTSUPP NOTSUP OVERFLOW OWNERDEAD PERM PFNOSUPPORT PIPE PROTO PROTONOSUPPORT PROTOTYPE RANGE
    REMCHG REMOTE REMOTEIO RESTART RFKILL ROFS SHUTDOWN
    SOCKTNOSUPPORT SPIPE SRCH SRMNT STALE STRPIPE TIME
    TIMEDOUT TOOMANYREFS TXTBSY UCLEAN UNATCH USERS WOULDBLOCK XDEV XFULL
};

/// The name of an error number, such as `ENOENT`; `errno 123` if it has none.
#[must_use]
pub fn errno_name(errno: Errno) -> String {
    let found = ERRNO_NAMES.iter().find(|(_, known)| *known == errno);
    found.map_or_else(|| format!("errno {}", errno.raw_os_error()), |(name, _)| (*name).to_owned())
}

/// The error number for a name such as `ENOENT`, or for a number.
#[must_use]
pub fn errno_from_name(text: &str) -> Option<Errno> {
    let named = ERRNO_NAMES.iter().find(|(name, _)| *name == text);
    let numbered = || text.parse().ok().filter(|number| (1..=ERRNO_LAST).contains(number));
    named.map(|(_, errno)| *errno).or_else(|| numbered().map(Errno::from_raw_os_error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_and_names_convert_both_ways() {
        for (errno, name) in [(Errno::AGAIN, "EAGAIN"), (Errno::OPNOTSUPP, "EOPNOTSUPP")] {
            assert_eq!(errno_name(errno), name);
            assert_eq!(errno_from_name(name), Some(errno));
        }
        assert_eq!(errno_from_name("2"), Some(Errno::NOENT));
        assert_eq!(errno_name(Errno::from_raw_os_error(4000)), "errno 4000");
        assert_eq!(errno_from_name("ENOSUCH"), None);
        assert_eq!(errno_from_name("0"), None);
    }

    #[test]
    fn error_names_cover_every_kernel_number() {
        let number = |name| {
            ERRNO_NAMES.iter().find(|(one, _)| *one == name).map(|(_, no)| no.raw_os_error())
        };
        for (name, expected) in [("EPERM", 1), ("E2BIG", 7), ("ENOSPC", 28), ("EDQUOT", 122)] {
            assert_eq!(number(name), Some(expected), "{name}");
        }
        assert!(
            ERRNO_NAMES.iter().all(|(_, errno)| (1..=ERRNO_LAST).contains(&errno.raw_os_error()))
        );
        for number in (1..=ERRNO_LAST).filter(|number| ![41, 58].contains(number)) {
            assert!(
                ERRNO_NAMES.iter().any(|(_, errno)| errno.raw_os_error() == number),
                "{number}"
            );
        }
    }
}
