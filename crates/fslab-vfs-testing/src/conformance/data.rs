//! Bytes of regular files: reading, writing, appending and changing the size.

use fslab_vfs::Errno;
use fslab_vfs::{Ino, OpenMode, SetAttr};

use super::check::{Outcome, pattern, refused, refused_with_any};
use crate::client::Client;

cases! { "data":
    later_write_wins, gap_reads_as_zeros, reading_at_the_end_is_empty,
    reading_across_the_end_is_short, large_file_reads_back, pieces_read_as_the_whole,
    writes_around_block_borders, appending_ignores_the_offset,
    appending_follows_truncation, appenders_see_each_other, truncation_shortens,
    truncation_lengthens_with_zeros, shrinking_then_growing_shows_no_stale_bytes,
    writing_behind_a_shrunk_end_shows_no_stale_bytes, truncation_to_the_same_size_keeps_bytes,
    truncation_through_a_handle, directory_has_no_size_to_set, read_only_handle_does_not_write,
    write_only_handle_does_not_read, empty_write_changes_nothing, handles_share_bytes,
    synchronous_writes_read_back, random_writes_match_memory, random_sizes_match_memory,
    overwriting_keeps_the_size,
}

fn later_write_wins(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    file.write_all(0, b"aaaaaaaaaa")?;
    file.write_all(3, b"bbbb")?;
    file.write_all(5, b"c")?;
    ensure_eq!(file.read(0, 100)?, b"aaabbcbaaa");
    Ok(file.close()?)
}

fn gap_reads_as_zeros(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    file.write_all(0, b"start")?;
    file.write_all(10_000, b"end")?;
    let mut expected = vec![0; 10_003];
    expected[..5].copy_from_slice(b"start");
    expected[10_000..].copy_from_slice(b"end");
    ensure_bytes!(file.read(0, 20_000)?, expected);
    Ok(())
}

fn reading_at_the_end_is_empty(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"12345")?;
    let file = client.open(ino, OpenMode::empty())?;
    for offset in [5, 6, 4096, 1 << 40] {
        ensure_eq!(file.read(offset, 10)?, b"");
    }
    ensure_eq!(file.read(0, 0)?, b"");
    Ok(())
}

fn reading_across_the_end_is_short(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(2, 5000);
    let ino = client.file(top, "file", &data)?;
    let file = client.open(ino, OpenMode::empty())?;
    for offset in [0, 1, 4095, 4096, 4097, 4999] {
        ensure_bytes!(file.read(offset, 10_000)?, data[offset as usize..]);
    }
    Ok(())
}

fn large_file_reads_back(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(3, (5 << 20) + 12_345);
    let ino = client.file(top, "file", &data)?;
    ensure_bytes!(client.contents(ino)?, data);
    Ok(())
}

fn pieces_read_as_the_whole(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(4, 300_000);
    let ino = client.file(top, "file", &data)?;
    let file = client.open(ino, OpenMode::empty())?;
    let mut whole = Vec::new();
    while whole.len() < data.len() {
        let wanted = 1 + whole.len() * 7 % 40_009;
        let piece = file.read(whole.len() as u64, wanted)?;
        ensure_eq!(piece.len(), wanted.min(data.len() - whole.len()));
        whole.extend(piece);
    }
    ensure_bytes!(whole, data);
    Ok(())
}

fn writes_around_block_borders(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    let mut expected = vec![0_u8; 300_001];
    file.truncate(expected.len() as u64)?;
    for border in [512, 1024, 4096, 8192, 32_768, 65_536, 131_072, 262_144, 300_000] {
        for (index, offset) in (border - 1..=border + 1).enumerate() {
            if let Some(byte) = expected.get_mut(offset) {
                *byte = index as u8 + 1;
                file.write_all(offset as u64, &[index as u8 + 1])?;
            }
        }
    }
    ensure_bytes!(file.read(0, 400_000)?, expected);
    Ok(())
}

fn appending_ignores_the_offset(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"start")?;
    let file = client.open(ino, OpenMode::WRITE_ONLY | OpenMode::APPEND)?;
    file.write_all(0, b"-one")?;
    file.write_all(1_000_000, b"-two")?;
    file.close()?;
    ensure_eq!(client.contents(ino)?, b"start-one-two");
    Ok(())
}

fn appending_follows_truncation(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"0123456789")?;
    let file = client.open(ino, OpenMode::WRITE_ONLY | OpenMode::APPEND)?;
    client.truncate(ino, 3)?;
    file.write_all(10, b"x")?;
    client.truncate(ino, 6)?;
    file.write_all(0, b"y")?;
    ensure_eq!(client.contents(ino)?, b"012x\0\0y");
    Ok(())
}

fn appenders_see_each_other(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let flags = OpenMode::WRITE_ONLY | OpenMode::APPEND;
    let (one, two) = (client.open(ino, flags)?, client.open(ino, flags)?);
    let plain = client.open(ino, OpenMode::READ_WRITE)?;
    one.write_all(0, b"1")?;
    two.write_all(0, b"2")?;
    plain.write_all(2, b"3")?;
    one.write_all(0, b"4")?;
    ensure_eq!(plain.read(0, 10)?, b"1234");
    Ok(())
}

fn truncation_shortens(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(5, 20_000);
    let ino = client.file(top, "file", &data)?;
    for size in [12_289, 12_288, 4097, 4096, 4095, 1, 0] {
        ensure_eq!(client.truncate(ino, size)?.size, size);
        ensure_bytes!(client.contents(ino)?, data[..size as usize]);
    }
    Ok(())
}

fn truncation_lengthens_with_zeros(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"abc")?;
    ensure_eq!(client.truncate(ino, 9000)?.size, 9000);
    let mut expected = vec![0; 9000];
    expected[..3].copy_from_slice(b"abc");
    ensure_bytes!(client.contents(ino)?, expected);
    Ok(())
}

fn shrinking_then_growing_shows_no_stale_bytes(client: &Client<'_>, top: Ino) -> Outcome {
    for (index, cut) in [0, 1, 511, 4095, 4096, 4097, 70_000].into_iter().enumerate() {
        let data = pattern(6, 150_000);
        let ino = client.file(top, format!("file{index}"), &data)?;
        client.truncate(ino, cut)?;
        client.truncate(ino, 150_000)?;
        let mut expected = data[..cut as usize].to_vec();
        expected.resize(150_000, 0);
        ensure_bytes!(client.contents(ino)?, expected);
    }
    Ok(())
}

fn writing_behind_a_shrunk_end_shows_no_stale_bytes(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(7, 10_000);
    let ino = client.file(top, "file", &data)?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    client.truncate(ino, 100)?;
    file.write_all(3000, b"x")?;
    let mut expected = data[..100].to_vec();
    expected.resize(3000, 0);
    expected.push(b'x');
    ensure_bytes!(file.read(0, 20_000)?, expected);
    Ok(())
}

fn truncation_to_the_same_size_keeps_bytes(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(8, 5000);
    let ino = client.file(top, "file", &data)?;
    client.truncate(ino, 5000)?;
    ensure_bytes!(client.contents(ino)?, data);
    Ok(())
}

fn truncation_through_a_handle(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"0123456789")?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    ensure_eq!(file.truncate(4)?.size, 4);
    ensure_eq!(file.read(0, 10)?, b"0123");
    ensure_eq!(client.attr(ino)?.size, 4);
    Ok(())
}

fn directory_has_no_size_to_set(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    refused_with_any(client.truncate(directory, 0), &[Errno::ISDIR, Errno::INVAL])
}

fn read_only_handle_does_not_write(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"kept")?;
    let file = client.open(ino, OpenMode::empty())?;
    refused(file.write(0, b"x"), Errno::BADF)?;
    ensure_eq!(file.read(0, 10)?, b"kept");
    Ok(())
}

fn write_only_handle_does_not_read(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"kept")?;
    let file = client.open(ino, OpenMode::WRITE_ONLY)?;
    refused(file.read(0, 10), Errno::BADF)
}

fn empty_write_changes_nothing(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"kept")?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    ensure_eq!(file.write(100, b"")?, 0);
    ensure_eq!(file.attr()?.size, 4);
    Ok(())
}

fn handles_share_bytes(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let writer = client.open(ino, OpenMode::WRITE_ONLY)?;
    let reader = client.open(ino, OpenMode::empty())?;
    writer.write_all(0, b"seen")?;
    ensure_eq!(reader.read(0, 10)?, b"seen");
    ensure_eq!(reader.attr()?.size, 4);
    writer.close()?;
    ensure_eq!(reader.read(1, 2)?, b"ee");
    Ok(())
}

fn synchronous_writes_read_back(client: &Client<'_>, top: Ino) -> Outcome {
    for (name, flags) in
        [("data", OpenMode::DATA_SYNC), ("all", OpenMode::DATA_SYNC | OpenMode::SYNC)]
    {
        let (attr, file) = client.create(top, name, 0o644, flags | OpenMode::EXCLUSIVE)?;
        file.write_all(0, b"one")?;
        file.write_all(3, b"two")?;
        file.close()?;
        ensure_eq!(client.contents(attr.ino)?, b"onetwo");
    }
    Ok(())
}

fn random_writes_match_memory(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    let mut expected = Vec::new();
    for round in 0..200_u64 {
        let offset = (round * 7919 * 131 % 200_000) as usize;
        let data = pattern(round, (round * 104_729 % 9000) as usize + 1);
        file.write_all(offset as u64, &data)?;
        expected.resize(expected.len().max(offset + data.len()), 0);
        expected[offset..offset + data.len()].copy_from_slice(&data);
    }
    ensure_bytes!(file.read(0, 300_000)?, expected);
    Ok(())
}

fn random_sizes_match_memory(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    let mut expected: Vec<u8> = Vec::new();
    for round in 0..60_u64 {
        let size = (round * 48_271 * 17 % 50_000) as usize;
        file.set(&SetAttr { size: Some(size as u64), ..SetAttr::default() })?;
        expected.resize(size, 0);
        let (offset, data) = (size / 2, pattern(round, 777));
        file.write_all(offset as u64, &data)?;
        expected.resize(expected.len().max(offset + data.len()), 0);
        expected[offset..offset + data.len()].copy_from_slice(&data);
        ensure_bytes!(file.read(0, 100_000)?, expected);
    }
    Ok(())
}

fn overwriting_keeps_the_size(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", &pattern(9, 10_000))?;
    let file = client.open(ino, OpenMode::WRITE_ONLY)?;
    file.write_all(0, &pattern(10, 9999))?;
    file.write_all(9999, b"x")?;
    file.close()?;
    ensure_eq!(client.attr(ino)?.size, 10_000);
    Ok(())
}
