//! `copy_file_range`: copying between open files.
//!
//! A copy may return less than requested (but not 0 before the end), so cases continue where it
//! stopped.

use fslab_vfs::Errno;
use fslab_vfs::{Ino, OpenMode};

use super::Stop;
use super::check::{Outcome, pattern, refused};
use crate::client::{Client, File};

cases! { "copy_file_range":
    whole_file_is_copied, part_is_copied_to_an_offset, copy_ends_at_the_end,
    nothing_is_behind_the_end, copy_of_nothing_is_nothing, target_keeps_its_other_bytes,
    target_is_extended_with_a_gap, apart_ranges_of_one_file_are_copied,
    overlapping_ranges_are_refused, read_only_target_is_refused,
    write_only_source_is_refused, holes_read_as_zeros_in_the_copy, source_is_unchanged,
    unaligned_ranges_are_copied,
}

/// Copies a whole range, in as many steps as needed.
fn copy_all(source: &File<'_>, target: &File<'_>, from: u64, to: u64, length: u64) -> Outcome {
    let mut done = 0;
    while done < length {
        match source.copy_to(from + done, target, to + done, length - done)? {
            0 => return Err(Stop::failed(format!("the copy stopped after {done} bytes"))),
            copied => done += copied,
        }
    }
    ensure_eq!(done, length);
    Ok(())
}

fn pair<'c>(
    client: &'c Client<'_>,
    top: Ino,
    source: &[u8],
    target: &[u8],
) -> fslab_vfs::Result<(File<'c>, File<'c>)> {
    let source = client.file(top, "source", source)?;
    let target = client.file(top, "target", target)?;
    Ok((client.open(source, OpenMode::empty())?, client.open(target, OpenMode::READ_WRITE)?))
}

fn whole_file_is_copied(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(1, (3 << 20) + 17);
    let (source, target) = pair(client, top, &data, b"")?;
    copy_all(&source, &target, 0, 0, data.len() as u64)?;
    ensure_bytes!(target.read(0, 4 << 20)?, data);
    Ok(())
}

fn part_is_copied_to_an_offset(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(2, 20_000);
    let (source, target) = pair(client, top, &data, &[1; 20_000])?;
    copy_all(&source, &target, 5000, 10_001, 7777)?;
    let mut expected = vec![1; 20_000];
    expected[10_001..17_778].copy_from_slice(&data[5000..12_777]);
    ensure_bytes!(target.read(0, 30_000)?, expected);
    Ok(())
}

fn copy_ends_at_the_end(client: &Client<'_>, top: Ino) -> Outcome {
    let (source, target) = pair(client, top, b"0123456789", b"")?;
    ensure_eq!(source.copy_to(4, &target, 0, 1000)?, 6);
    ensure_eq!(target.read(0, 100)?, b"456789");
    Ok(())
}

fn nothing_is_behind_the_end(client: &Client<'_>, top: Ino) -> Outcome {
    let (source, target) = pair(client, top, b"0123456789", b"kept")?;
    for offset in [10, 11, 1 << 30] {
        ensure_eq!(source.copy_to(offset, &target, 0, 10)?, 0);
    }
    ensure_eq!(target.read(0, 100)?, b"kept");
    Ok(())
}

fn copy_of_nothing_is_nothing(client: &Client<'_>, top: Ino) -> Outcome {
    let (source, target) = pair(client, top, b"0123456789", b"kept")?;
    ensure_eq!(source.copy_to(0, &target, 100, 0)?, 0);
    ensure_eq!(target.attr()?.size, 4);
    Ok(())
}

fn target_keeps_its_other_bytes(client: &Client<'_>, top: Ino) -> Outcome {
    let (source, target) = pair(client, top, b"0123456789", b"abcdefghij")?;
    copy_all(&source, &target, 2, 3, 4)?;
    ensure_eq!(target.read(0, 100)?, b"abc2345hij");
    Ok(())
}

fn target_is_extended_with_a_gap(client: &Client<'_>, top: Ino) -> Outcome {
    let (source, target) = pair(client, top, b"0123456789", b"ab")?;
    copy_all(&source, &target, 0, 5000, 10)?;
    let mut expected = b"ab".to_vec();
    expected.resize(5000, 0);
    expected.extend(b"0123456789");
    ensure_bytes!(target.read(0, 10_000)?, expected);
    Ok(())
}

fn apart_ranges_of_one_file_are_copied(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(3, 10_000);
    let ino = client.file(top, "file", &data)?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    copy_all(&file, &file, 0, 20_000, 10_000)?;
    copy_all(&file, &file, 100, 200, 100)?;
    let mut expected = data.clone();
    expected.resize(20_000, 0);
    expected.extend(&data);
    expected.copy_within(100..200, 200);
    ensure_bytes!(file.read(0, 40_000)?, expected);
    Ok(())
}

fn overlapping_ranges_are_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", &pattern(4, 10_000))?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    for (from, to) in [(0, 0), (0, 50), (50, 0), (0, 99)] {
        refused(file.copy_to(from, &file, to, 100), Errno::INVAL)?;
    }
    ensure_bytes!(file.read(0, 20_000)?, pattern(4, 10_000));
    Ok(())
}

fn read_only_target_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let (source, target) = pair(client, top, b"0123456789", b"kept")?;
    let reading = client.open(target.ino, OpenMode::empty())?;
    refused(source.copy_to(0, &reading, 0, 5), Errno::BADF)
}

fn write_only_source_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let (source, target) = pair(client, top, b"0123456789", b"kept")?;
    let writing = client.open(source.ino, OpenMode::WRITE_ONLY)?;
    refused(writing.copy_to(0, &target, 0, 5), Errno::BADF)
}

fn holes_read_as_zeros_in_the_copy(client: &Client<'_>, top: Ino) -> Outcome {
    let (source, target) = pair(client, top, b"", &[7; 300_000])?;
    let writer = client.open(source.ino, OpenMode::WRITE_ONLY)?;
    writer.write_all(200_000, b"data")?;
    writer.truncate(300_000)?;
    copy_all(&source, &target, 0, 0, 300_000)?;
    let mut expected = vec![0; 300_000];
    expected[200_000..200_004].copy_from_slice(b"data");
    ensure_bytes!(target.read(0, 400_000)?, expected);
    Ok(())
}

fn source_is_unchanged(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(5, 50_000);
    let (source, target) = pair(client, top, &data, b"")?;
    copy_all(&source, &target, 0, 0, 50_000)?;
    target.write_all(0, &[9; 50_000])?;
    ensure_bytes!(source.read(0, 60_000)?, data);
    Ok(())
}

fn unaligned_ranges_are_copied(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(6, 200_000);
    let (source, target) = pair(client, top, &data, b"")?;
    let mut expected: Vec<u8> = Vec::new();
    for (from, to, length) in [(1, 0, 4096_usize), (4095, 4096, 65_537), (99_999, 131_071, 50_001)]
    {
        copy_all(&source, &target, from as u64, to as u64, length as u64)?;
        expected.resize(expected.len().max(to + length), 0);
        expected[to..to + length].copy_from_slice(&data[from..from + length]);
        ensure_bytes!(target.read(0, 300_000)?, expected);
    }
    Ok(())
}
