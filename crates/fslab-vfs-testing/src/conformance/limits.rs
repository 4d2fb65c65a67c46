//! Large offsets, large counts, and the statistics of the whole file system.

use fslab_vfs::Errno;
use fslab_vfs::{Ino, Name, OpenMode};

use super::check::{Outcome, pattern, refused_with_any};
use crate::client::Client;

cases! { "limits":
    bytes_a_tebibyte_away_are_kept, size_of_a_tebibyte_is_kept,
    size_above_the_largest_offset_is_refused, write_behind_the_largest_offset_is_refused,
    statfs_is_sane, statfs_counts_space, thousands_of_files_work, large_write_in_one_request,
    large_read_in_one_request, small_writes_add_up,
}

fn bytes_a_tebibyte_away_are_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    for offset in [1 << 31, 1 << 32, (1 << 40) + 3] {
        file.write_all(offset, b"far away")?;
        ensure_eq!(file.read(offset - 2, 100)?, b"\0\0far away");
    }
    ensure_eq!(file.attr()?.size, (1 << 40) + 11);
    Ok(())
}

fn size_of_a_tebibyte_is_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    ensure_eq!(client.truncate(ino, 1 << 40)?.size, 1 << 40);
    let file = client.open(ino, OpenMode::empty())?;
    ensure_eq!(file.read((1 << 40) - 3, 100)?, b"\0\0\0");
    ensure_eq!(client.truncate(ino, 4)?.size, 4);
    ensure_eq!(file.read(0, 100)?, b"data");
    Ok(())
}

fn size_above_the_largest_offset_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    refused_with_any(client.truncate(ino, 1 << 63), &[Errno::FBIG, Errno::INVAL])?;
    ensure_eq!(client.contents(ino)?, b"data");
    Ok(())
}

fn write_behind_the_largest_offset_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    for offset in [i64::MAX as u64, 1 << 63, u64::MAX - 1] {
        refused_with_any(file.write(offset, b"x"), &[Errno::FBIG, Errno::INVAL])?;
    }
    ensure_eq!(file.attr()?.size, 0);
    Ok(())
}

fn statfs_is_sane(client: &Client<'_>, top: Ino) -> Outcome {
    let all = client.subject().statfs(&client.request(), top)?;
    ensure!(all.blocks > 0 && all.blocks_free <= all.blocks);
    ensure!(all.blocks_available <= all.blocks_free);
    ensure!(all.files_free <= all.files);
    ensure!(all.block_size >= 512 && all.fragment_size >= 512);
    ensure_eq!(all.name_max as usize, Name::MAX_LEN);
    Ok(())
}

fn statfs_counts_space(client: &Client<'_>, top: Ino) -> Outcome {
    // Other tests may use the same device at the same time, and free more space than is written
    // here.
    let attempts: Vec<(u64, u64)> = (0..5)
        .map(|attempt| free_around_a_write(client, top, &format!("file{attempt}")))
        .collect::<Result<_, _>>()?;
    let counted = attempts.iter().any(|(before, after)| after + WRITTEN as u64 / 2 <= *before);
    ensure!(counted, "bytes free before and after 16 MiB were written: {attempts:?}");
    Ok(())
}

const WRITTEN: usize = 16 << 20;

fn free_around_a_write(client: &Client<'_>, top: Ino, name: &str) -> fslab_vfs::Result<(u64, u64)> {
    let free = || {
        let all = client.subject().statfs(&client.request(), top)?;
        Ok::<u64, fslab_vfs::Error>(all.blocks_free * u64::from(all.fragment_size))
    };
    let before = free()?;
    let (_, file) = client.create(top, name, 0o644, OpenMode::EXCLUSIVE)?;
    file.write_all(0, &pattern(1, WRITTEN))?;
    file.fsync(false)?;
    client.subject().syncfs(&client.request(), top)?;
    Ok((before, free()?))
}

fn thousands_of_files_work(client: &Client<'_>, top: Ino) -> Outcome {
    for index in 0..3000 {
        client.file(top, format!("{index}"), format!("{index}").as_bytes())?;
    }
    for index in (0..3000).step_by(97) {
        let ino = client.lookup(top, format!("{index}"))?.ino;
        ensure_eq!(client.contents(ino)?, format!("{index}").as_bytes());
    }
    Ok(())
}

fn large_write_in_one_request(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(1, 4 << 20);
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    ensure_eq!(file.write(0, &data)?, data.len());
    ensure_bytes!(file.read(0, 5 << 20)?, data);
    Ok(())
}

fn large_read_in_one_request(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(2, (4 << 20) + 1);
    let ino = client.file(top, "file", &data)?;
    let file = client.open(ino, OpenMode::empty())?;
    ensure_bytes!(file.read(0, data.len())?, data);
    Ok(())
}

fn small_writes_add_up(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(3, 10_000);
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    for (offset, piece) in data.chunks(7).enumerate() {
        file.write_all(offset as u64 * 7, piece)?;
    }
    ensure_bytes!(file.read(0, 20_000)?, data);
    Ok(())
}
