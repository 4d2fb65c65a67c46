//! Sparse files: making and finding holes.
//!
//! Offsets are multiples of 64 KiB, the largest common allocation unit. A file system may report
//! slightly more data than was written, and may report new zeros as data. It must never report
//! written bytes as a hole.

use fslab_vfs::Errno;
use fslab_vfs::{FallocateMode, Ino, OpenMode, SeekTo};

use super::check::{Outcome, pattern, refused, refused_with_any};
use crate::client::{Client, File};

const UNIT: u64 = 64 << 10;
const PUNCH: FallocateMode = FallocateMode::PUNCH_HOLE.union(FallocateMode::KEEP_SIZE);

cases! { "holes":
    data_is_found_behind_a_hole, hole_is_found_behind_data, end_of_file_is_a_hole,
    seeking_behind_the_end_is_refused, no_data_in_a_trailing_hole, empty_file_has_nothing_to_seek,
    unwritten_bytes_are_never_lost_to_a_hole, sparse_file_takes_little_space,
    punched_range_reads_as_zeros, punching_ignores_block_borders, punching_keeps_the_size,
    punching_frees_space, punching_behind_the_end_changes_nothing,
    punching_without_keeping_the_size_is_refused, punched_range_is_a_hole,
    zeroed_range_reads_as_zeros, zeroing_can_extend, zeroing_can_keep_the_size,
    reserving_extends_with_zeros, reserving_can_keep_the_size, reserving_keeps_bytes,
    reserved_space_past_the_end_reads_as_zeros, empty_range_is_refused,
    read_only_handle_does_not_reserve, range_behind_the_largest_offset_is_refused,
    unknown_mode_is_refused,
}

/// Makes a file of `size` units of [`UNIT`] bytes, with data only in `units`.
fn sparse<'c>(
    client: &'c Client<'_>,
    top: Ino,
    units: &[u64],
    size: u64,
) -> fslab_vfs::Result<File<'c>> {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    for unit in units {
        file.write_all(unit * UNIT, &pattern(*unit, UNIT as usize))?;
    }
    file.truncate(size * UNIT)?;
    Ok(file)
}

fn data_is_found_behind_a_hole(client: &Client<'_>, top: Ino) -> Outcome {
    let file = sparse(client, top, &[4, 8], 16)?;
    ensure_eq!(file.seek(0, SeekTo::Data)?, 4 * UNIT);
    ensure_eq!(file.seek(4 * UNIT + 1, SeekTo::Data)?, 4 * UNIT + 1);
    ensure_eq!(file.seek(5 * UNIT, SeekTo::Data)?, 8 * UNIT);
    Ok(())
}

fn hole_is_found_behind_data(client: &Client<'_>, top: Ino) -> Outcome {
    let file = sparse(client, top, &[4, 5, 8], 16)?;
    ensure_eq!(file.seek(0, SeekTo::Hole)?, 0);
    ensure_eq!(file.seek(4 * UNIT, SeekTo::Hole)?, 6 * UNIT);
    ensure_eq!(file.seek(8 * UNIT + 7, SeekTo::Hole)?, 9 * UNIT);
    ensure_eq!(file.seek(10 * UNIT + 7, SeekTo::Hole)?, 10 * UNIT + 7);
    Ok(())
}

fn end_of_file_is_a_hole(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", &pattern(1, 10_000))?;
    let file = client.open(ino, OpenMode::empty())?;
    ensure_eq!(file.seek(0, SeekTo::Hole)?, 10_000);
    ensure_eq!(file.seek(9999, SeekTo::Hole)?, 10_000);
    Ok(())
}

fn seeking_behind_the_end_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"12345")?;
    let file = client.open(ino, OpenMode::empty())?;
    for to in [SeekTo::Data, SeekTo::Hole] {
        refused(file.seek(5, to), Errno::NXIO)?;
        refused(file.seek(1 << 40, to), Errno::NXIO)?;
    }
    Ok(())
}

fn no_data_in_a_trailing_hole(client: &Client<'_>, top: Ino) -> Outcome {
    let file = sparse(client, top, &[0], 4)?;
    refused(file.seek(2 * UNIT, SeekTo::Data), Errno::NXIO)?;
    ensure_eq!(file.seek(2 * UNIT, SeekTo::Hole)?, 2 * UNIT);
    Ok(())
}

fn empty_file_has_nothing_to_seek(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let file = client.open(ino, OpenMode::empty())?;
    refused(file.seek(0, SeekTo::Data), Errno::NXIO)?;
    refused(file.seek(0, SeekTo::Hole), Errno::NXIO)
}

/// A copier that skips the reported holes must get every byte, without a sync in between.
fn unwritten_bytes_are_never_lost_to_a_hole(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    let mut expected = vec![0; 40 * UNIT as usize];
    for round in 0..30_u64 {
        let offset = (round * 7 % 40 * UNIT + round * 997) as usize;
        let data = pattern(round, 100);
        file.write_all(offset as u64, &data)?;
        expected[offset..offset + data.len()].copy_from_slice(&data);
    }
    file.truncate(expected.len() as u64)?;
    let mut copy = vec![0; expected.len()];
    let mut at = 0;
    while let Ok(start) = file.seek(at, SeekTo::Data) {
        at = file.seek(start, SeekTo::Hole)?;
        let data = file.read(start, (at - start) as usize)?;
        copy[start as usize..at as usize].copy_from_slice(&data);
    }
    ensure_bytes!(copy, expected);
    Ok(())
}

fn sparse_file_takes_little_space(client: &Client<'_>, top: Ino) -> Outcome {
    let file = sparse(client, top, &[100], 200)?;
    file.fsync(false)?;
    let blocks = file.attr()?.blocks;
    ensure!(blocks > 0, "a file with data takes no space");
    ensure!(blocks * 512 < 100 * UNIT, "{blocks} sectors for one unit of data");
    Ok(())
}

fn punched_range_reads_as_zeros(client: &Client<'_>, top: Ino) -> Outcome {
    let file = sparse(client, top, &[0, 1, 2, 3], 4)?;
    let mut expected = file.read(0, 4 * UNIT as usize)?;
    file.fallocate(UNIT, 2 * UNIT, PUNCH)?;
    expected[UNIT as usize..3 * UNIT as usize].fill(0);
    ensure_bytes!(file.read(0, 4 * UNIT as usize)?, expected);
    Ok(())
}

fn punching_ignores_block_borders(client: &Client<'_>, top: Ino) -> Outcome {
    let file = sparse(client, top, &[0, 1], 2)?;
    let mut expected = file.read(0, 2 * UNIT as usize)?;
    for (offset, length) in [(1, 1), (100, 4000), (5000, 10_000), (4096 * 7, 4097), (65_000, 999)] {
        file.fallocate(offset, length, PUNCH)?;
        expected[offset as usize..(offset + length) as usize].fill(0);
        ensure_bytes!(file.read(0, 2 * UNIT as usize)?, expected);
    }
    Ok(())
}

fn punching_keeps_the_size(client: &Client<'_>, top: Ino) -> Outcome {
    let file = sparse(client, top, &[0, 1], 2)?;
    file.fallocate(UNIT, 10 * UNIT, PUNCH)?;
    ensure_eq!(file.attr()?.size, 2 * UNIT);
    file.fallocate(0, 2 * UNIT, PUNCH)?;
    ensure_bytes!(file.read(0, 10 * UNIT as usize)?, vec![0; 2 * UNIT as usize]);
    Ok(())
}

fn punching_frees_space(client: &Client<'_>, top: Ino) -> Outcome {
    let file = sparse(client, top, &[0, 1, 2, 3, 4, 5, 6, 7], 8)?;
    file.fsync(false)?;
    let before = file.attr()?.blocks;
    file.fallocate(UNIT, 6 * UNIT, PUNCH)?;
    file.fsync(false)?;
    let after = file.attr()?.blocks;
    ensure!(after < before, "{before} sectors before, {after} after punching 3/4");
    Ok(())
}

fn punching_behind_the_end_changes_nothing(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"kept")?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    file.fallocate(UNIT, UNIT, PUNCH)?;
    ensure_eq!(file.read(0, 10)?, b"kept");
    Ok(())
}

fn punching_without_keeping_the_size_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"kept")?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    let answer = file.fallocate(0, 4, FallocateMode::PUNCH_HOLE);
    refused_with_any(answer, &[Errno::OPNOTSUPP, Errno::INVAL])?;
    ensure_eq!(file.read(0, 10)?, b"kept");
    Ok(())
}

fn punched_range_is_a_hole(client: &Client<'_>, top: Ino) -> Outcome {
    let file = sparse(client, top, &[0, 1, 2, 3], 4)?;
    file.fallocate(UNIT, 2 * UNIT, PUNCH)?;
    ensure_eq!(file.seek(0, SeekTo::Hole)?, UNIT);
    ensure_eq!(file.seek(UNIT, SeekTo::Data)?, 3 * UNIT);
    Ok(())
}

/// Zeroes a range. Skips the case on file systems that can't do this, such as tmpfs.
fn zero(file: &File<'_>, offset: u64, length: u64, keep: FallocateMode) -> Outcome {
    match file.fallocate(offset, length, FallocateMode::ZERO_RANGE | keep) {
        Err(error) if error.errno() == Errno::OPNOTSUPP => {
            let reason = "the file system has no FALLOC_FL_ZERO_RANGE".to_owned();
            Err(super::Stop::Unsupported { reason })
        }
        answer => Ok(answer?),
    }
}

fn zeroed_range_reads_as_zeros(client: &Client<'_>, top: Ino) -> Outcome {
    let file = sparse(client, top, &[0, 1, 2], 3)?;
    let mut expected = file.read(0, 3 * UNIT as usize)?;
    for (offset, length) in [(10, 20), (4000, 5000), (UNIT - 7, UNIT + 14)] {
        zero(&file, offset, length, FallocateMode::empty())?;
        expected[offset as usize..(offset + length) as usize].fill(0);
        ensure_bytes!(file.read(0, 3 * UNIT as usize)?, expected);
    }
    Ok(())
}

fn zeroing_can_extend(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"0123456789")?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    zero(&file, 5, 10_000, FallocateMode::empty())?;
    let mut expected = b"01234".to_vec();
    expected.resize(10_005, 0);
    ensure_bytes!(file.read(0, 20_000)?, expected);
    Ok(())
}

fn zeroing_can_keep_the_size(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"0123456789")?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    zero(&file, 5, 10_000, FallocateMode::KEEP_SIZE)?;
    ensure_eq!(file.read(0, 100)?, b"01234\0\0\0\0\0");
    Ok(())
}

fn reserving_extends_with_zeros(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"abc")?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    file.fallocate(1000, 9000, FallocateMode::empty())?;
    let mut expected = b"abc".to_vec();
    expected.resize(10_000, 0);
    ensure_bytes!(file.read(0, 20_000)?, expected);
    Ok(())
}

fn reserving_can_keep_the_size(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"abc")?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    file.fallocate(0, 10 * UNIT, FallocateMode::KEEP_SIZE)?;
    ensure_eq!(file.attr()?.size, 3);
    ensure_eq!(file.read(0, 100)?, b"abc");
    Ok(())
}

fn reserving_keeps_bytes(client: &Client<'_>, top: Ino) -> Outcome {
    let file = sparse(client, top, &[0, 2], 4)?;
    let expected = file.read(0, 4 * UNIT as usize)?;
    file.fallocate(0, 4 * UNIT, FallocateMode::empty())?;
    ensure_bytes!(file.read(0, 8 * UNIT as usize)?, expected);
    Ok(())
}

fn reserved_space_past_the_end_reads_as_zeros(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", &pattern(1, 8 * UNIT as usize))?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    file.truncate(10)?;
    file.fallocate(0, 8 * UNIT, FallocateMode::KEEP_SIZE)?;
    file.truncate(8 * UNIT)?;
    let mut expected = pattern(1, 10);
    expected.resize(8 * UNIT as usize, 0);
    ensure_bytes!(file.read(0, 9 * UNIT as usize)?, expected);
    Ok(())
}

fn empty_range_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"abc")?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    refused(file.fallocate(0, 0, FallocateMode::empty()), Errno::INVAL)?;
    refused(file.fallocate(1, 0, PUNCH), Errno::INVAL)
}

fn read_only_handle_does_not_reserve(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"abc")?;
    let file = client.open(ino, OpenMode::empty())?;
    refused(file.fallocate(0, 100, FallocateMode::empty()), Errno::BADF)
}

fn range_behind_the_largest_offset_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"abc")?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    let answer = file.fallocate(i64::MAX as u64 - 10, 100, FallocateMode::empty());
    refused_with_any(answer, &[Errno::FBIG, Errno::INVAL])?;
    ensure_eq!(file.attr()?.size, 3);
    Ok(())
}

fn unknown_mode_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"abc")?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    let both = PUNCH | FallocateMode::ZERO_RANGE;
    for mode in [both, FallocateMode::from_bits_retain(0x8000)] {
        refused_with_any(file.fallocate(0, 100, mode), &[Errno::OPNOTSUPP, Errno::INVAL])?;
    }
    ensure_eq!(file.read(0, 100)?, b"abc");
    Ok(())
}
