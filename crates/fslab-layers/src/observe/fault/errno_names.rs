//! Every error of Linux by its name.

use fslab_vfs::Errno;

/// The last number in use.
pub(super) const LAST: i32 = 133;

macro_rules! named {
    ($($name:ident)+) => {
        &[
            ("E2BIG", Errno::TOOBIG),
            ("EACCES", Errno::ACCESS),
            $((concat!("E", stringify!($name)), Errno::$name),)+
        ]
    };
}

/// Names and errors; several names may mean one.
#[rustfmt::skip]
pub(super) const ALL: &[(&str, Errno)] = named! {
    ADDRINUSE ADDRNOTAVAIL ADV AFNOSUPPORT AGAIN ALREADY BADE BADF BADFD BADMSG BADR BADRQC
    BADSLT BFONT BUSY CANCELED CHILD CHRNG COMM CONNABORTED CONNREFUSED CONNRESET DEADLK DEADLOCK
    DESTADDRREQ DOM DOTDOT DQUOT EXIST FAULT FBIG HOSTDOWN HOSTUNREACH HWPOISON IDRM ILSEQ
    INPROGRESS INTR INVAL IO ISCONN ISDIR ISNAM KEYEXPIRED KEYREJECTED KEYREVOKED L2HLT L2NSYNC
    L3HLT L3RST LIBACC LIBBAD LIBEXEC LIBMAX LIBSCN LNRNG LOOP MEDIUMTYPE MFILE MLINK MSGSIZE
    MULTIHOP NAMETOOLONG NAVAIL NETDOWN NETRESET NETUNREACH NFILE NOANO NOBUFS NOCSI NODATA NODEV
    NOENT NOEXEC NOKEY NOLCK NOLINK NOMEDIUM NOMEM NOMSG NONET NOPKG NOPROTOOPT NOSPC NOSR NOSTR
    NOSYS NOTBLK NOTCONN NOTDIR NOTEMPTY NOTNAM NOTRECOVERABLE NOTSOCK NOTSUP NOTTY NOTUNIQ NXIO
    OPNOTSUPP OVERFLOW OWNERDEAD PERM PFNOSUPPORT PIPE PROTO PROTONOSUPPORT PROTOTYPE RANGE REMCHG
    REMOTE REMOTEIO RESTART RFKILL ROFS SHUTDOWN SOCKTNOSUPPORT SPIPE SRCH SRMNT STALE STRPIPE TIME
    TIMEDOUT TOOMANYREFS TXTBSY UCLEAN UNATCH USERS WOULDBLOCK XDEV XFULL
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_kernel() {
        let number =
            |name| ALL.iter().find(|(one, _)| *one == name).map(|(_, no)| no.raw_os_error());
        for (name, expected) in [("EPERM", 1), ("E2BIG", 7), ("ENOSPC", 28), ("EDQUOT", 122)] {
            assert_eq!(number(name), Some(expected), "{name}");
        }
        assert!(ALL.iter().all(|(_, errno)| (1..=LAST).contains(&errno.raw_os_error())));
        for number in (1..=LAST).filter(|number| ![41, 58].contains(number)) {
            assert!(ALL.iter().any(|(_, errno)| errno.raw_os_error() == number), "{number}");
        }
    }
}
