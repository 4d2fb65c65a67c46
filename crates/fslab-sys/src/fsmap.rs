//! The free space of a mounted file system, from FS_IOC_GETFSMAP: ext4 and XFS support it, for root
//! only.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use zerocopy::FromZeros;

use crate::file_handle::check;

/// `FS_IOC_GETFSMAP`.
const GET_MAP: libc::c_ulong = 0xc0c0_583b;

/// Number of records requested at a time.
const RECORDS: usize = 1024;

/// The owner value for free space.
const OWNER_FREE: u64 = 1;
/// Flag of a record: the owner is a special value.
const FLAG_SPECIAL_OWNER: u32 = 0x10;
/// Flag of a record: it is the last one.
const FLAG_LAST: u32 = 0x20;

/// `struct fsmap`.
#[repr(C)]
#[derive(Clone, Copy, Default, FromZeros)]
struct Record {
    device: u32,
    flags: u32,
    physical: u64,
    owner: u64,
    offset: u64,
    length: u64,
    reserved: [u64; 3],
}

/// `struct fsmap_head`, with the records that follow it.
#[repr(C)]
#[derive(FromZeros)]
struct Head {
    input_flags: u32,
    output_flags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    low: Record,
    high: Record,
    records: [Record; RECORDS],
}

const _: () = assert!(size_of::<Record>() == 64);
const _: () = assert!(size_of::<Head>() == 192 + RECORDS * 64);

/// Calls `each` with the start and length, in bytes, of every free range of the file system that
/// contains a file.
///
/// # Errors
/// `EOPNOTSUPP` or `ENOTTY` if the file system does not support it; `EPERM` if this user may not
/// use it.
pub fn free_pieces(file: &File, each: &mut dyn FnMut(u64, u64)) -> Result<(), Errno> {
    let highest = Record {
        device: u32::MAX,
        flags: u32::MAX,
        physical: u64::MAX,
        owner: u64::MAX,
        offset: u64::MAX,
        ..Record::default()
    };
    let mut head = Box::new(Head { count: RECORDS as u32, high: highest, ..Head::new_zeroed() });
    loop {
        ask(file, &mut head)?;
        let records = &head.records[..RECORDS.min(head.entries as usize)];
        for record in records {
            let special = record.flags & FLAG_SPECIAL_OWNER != 0;
            if special && record.owner == OWNER_FREE {
                each(record.physical, record.length);
            }
        }
        match records.last() {
            Some(last) if last.flags & FLAG_LAST == 0 => head.low = *last,
            _ => return Ok(()),
        }
    }
}

fn ask(file: &File, head: &mut Head) -> Result<(), Errno> {
    // SAFETY: the request takes a pointer to `struct fsmap_head` followed by `count` records, which
    // `Head` mirrors (the sizes are asserted above); nothing else uses it during the call, and
    // every bit pattern is a valid record.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), GET_MAP as _, &raw mut *head) };
    check(answer.into()).map(|_| ())
}
