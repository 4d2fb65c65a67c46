//! `journal`: which changes are written twice, so that a power cut leaves a consistent file system.
//!
//! The device's counters show how much is written. A file's mode is changed and the file is synced.
//! Without a journal, only the block of its inode is written. A journal is recognised in two ways.
//! First, a later sync of the file system writes the inode's block again. The earlier write went to
//! the journal, and the later one goes to the final location. Second, the sync of one file also
//! writes changes of other files, because they are in the same transaction. Overwritten data is
//! written once with a metadata journal, and twice with a data journal. If overwriting moves the
//! data to another location, the file system uses copy-on-write.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;

use fslab_sys::block_counters::{BlockCounters, DeviceNumber};

use super::{Attribute, Wants};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::{Ground, SECTOR, Scratch};

pub(super) static SPEC: Attribute = Attribute {
    name: "journal",
    help: "none: no journal; metadata: changes of metadata are written twice; data: file data is \
           written twice too; copy-on-write: changes are written to a new location",
    wants: Wants::QuietDevice,
    find,
};

/// Size of the overwritten data in bytes: much more than the metadata written with it.
const DATA: u64 = 4 << 20;

/// Number of files whose modes are changed together: more inodes than one block contains.
const FILES: usize = 128;

/// Number of repetitions. The smallest count is used, and more than half of the repetitions must
/// give it.
const TIMES: usize = 6;

fn find(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "bytes written to the device";
    let refuse = |reason: &str| Ok(Finding::none(NAME, reason));
    let Some(device) = ground.device else {
        return refuse("the file system is not on a single block device");
    };
    if ground.options.gentle {
        return refuse("syncs the whole file system several times, so it is skipped by --gentle");
    }
    let data = ground.fresh()?;
    data.fill(0, DATA)?;
    let before = place(&data)?;
    let counts = (0..3).map(|_| overwrite(&data, device)).collect::<io::Result<Vec<_>>>()?;
    let overwritten = counts.into_iter().min().unwrap_or_default();
    if before != place(&data)? {
        return Ok(Finding::by(moved(overwritten)));
    }
    let files = (0..FILES).map(|_| ground.fresh()).collect::<io::Result<Vec<_>>>()?;
    let Some((one, again)) = both(|turn| change(&files[..1], turn, device))? else {
        return refuse("repeated measurements differ, because the device is too busy");
    };
    let Some((many, _)) = both(|turn| change(&files, turn, device))? else {
        return refuse("repeated measurements differ, because the device is too busy");
    };
    Ok(Finding::conclude(conclude(&Counts { overwritten, one, again, many })))
}

/// Numbers of bytes written to the device in four cases.
#[derive(Clone, Copy, Debug)]
struct Counts {
    /// Bytes written when [`DATA`] bytes are overwritten and everything is synced.
    overwritten: u64,
    /// Bytes written when one file is synced after its mode was changed.
    one: u64,
    /// Bytes written when everything is synced after the sync of that one file.
    again: u64,
    /// Bytes written when one file is synced after the modes of many files were changed.
    many: u64,
}

fn conclude(counts: &Counts) -> Vec<Method> {
    let Counts { overwritten, one, again, many } = *counts;
    let twice = overwritten >= 2 * DATA;
    let word = if twice { "data" } else { "metadata" };
    let series = |x: u64, y: u64| vec![Point { x, y }];
    let by_copy = match again {
        0 => Method::failed(
            "bytes that sync writes after fsync of a changed file",
            "none, so there is no journal, or the final location is written later",
            series(one, again),
        ),
        _ => Method::found(
            "bytes that sync writes after fsync of a changed file",
            Value::Word(word),
            series(one, again),
        ),
    };
    let name = "bytes that fsync of one file writes after many files were changed";
    let by_company = match (many > one, again > 0) {
        (true, _) => Method::found(name, Value::Word(word), series(one, many)),
        // With fast commits, ext4 first writes only the changes of the synced file, and the rest
        // later.
        (false, true) => {
            Method::failed(name, "only the changes of that file were written", series(one, many))
        }
        (false, false) => Method::found(name, Value::Word("none"), series(one, many)),
    };
    let by_data = Method::failed(
        "bytes written to the device to overwrite 4 MiB",
        if twice { "the data was written twice" } else { "the data was written once" },
        series(DATA, overwritten),
    );
    vec![by_copy, by_company, by_data]
}

fn moved(overwritten: u64) -> Method {
    let series = vec![Point { x: DATA, y: overwritten }];
    Method::found(
        "location of a file's data before and after overwriting",
        Value::Word("copy-on-write"),
        series,
    )
}

/// Returns the address of a file's data on the device; `None` if it is not reported.
fn place(data: &Scratch) -> io::Result<Option<u64>> {
    data.file.sync_all()?;
    Ok(data.extents().ok().and_then(|extents| Some(extents.first()?.fe_physical)))
}

fn overwrite(data: &Scratch, device: DeviceNumber) -> io::Result<u64> {
    sync_everything(data)?;
    let before = BlockCounters::read(device)?;
    data.fill(0, DATA)?;
    data.file.sync_all()?;
    sync_everything(data)?;
    Ok((BlockCounters::read(device)? - before).sectors_written * SECTOR)
}

/// Syncs twice: the first commits to the journal, and the second writes the same blocks to their
/// final location.
fn sync_everything(file: &Scratch) -> io::Result<()> {
    rustix::fs::syncfs(&file.file)?;
    Ok(rustix::fs::syncfs(&file.file)?)
}

/// Changes the modes of files and syncs the first. Returns the bytes written by that sync, and by
/// syncing everything afterwards.
fn change(files: &[Scratch], turn: usize, device: DeviceNumber) -> io::Result<(u64, u64)> {
    let Some(first) = files.first() else { return Ok((0, 0)) };
    sync_everything(first)?;
    let mode = Permissions::from_mode(if turn.is_multiple_of(2) { 0o600 } else { 0o640 });
    let before = BlockCounters::read(device)?;
    for file in files {
        file.file.set_permissions(mode.clone())?;
    }
    first.file.sync_all()?;
    let synced = BlockCounters::read(device)?;
    sync_everything(first)?;
    let bytes = |counters: BlockCounters| counters.sectors_written * SECTOR;
    Ok((bytes(synced - before), bytes(BlockCounters::read(device)? - synced)))
}

/// Returns the smallest of several pairs if more than half of the pairs equal it. Otherwise returns
/// `None`, because another program seems to use the device.
fn both(mut count: impl FnMut(usize) -> io::Result<(u64, u64)>) -> io::Result<Option<(u64, u64)>> {
    let mut counts = (0..TIMES).map(&mut count).collect::<io::Result<Vec<_>>>()?;
    counts.sort_unstable();
    Ok((counts[0] == counts[TIMES / 2]).then_some(counts[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the conclusion from counts measured on Linux 6.18, in bytes.
    #[track_caller]
    fn check(overwritten: u64, one: u64, again: u64, many: u64, expected: &'static str) {
        let counts = Counts { overwritten, one, again, many };
        let finding = Finding::conclude(conclude(&counts));
        assert_eq!(finding.value(), Some(&Value::Word(expected)), "{finding:?}");
    }

    #[test]
    fn journal_modes_are_distinguished_by_double_writes() {
        let block = 4096;
        check(DATA + block, block, 0, block, "none");
        check(DATA + 4 * block, 3 * block, block, 10 * block, "metadata");
        check(2 * DATA + 9 * block, 3 * block, block, 10 * block, "data");
        // ext4 with fast commits, and XFS: both write to the final location later.
        check(DATA + 5 * block, block, 4 * block, block, "metadata");
        check(DATA + 1024, 1024, 0, 16 * 1024, "metadata");
    }
}
