//! Tests with many concurrent threads: no change is lost, and none happens twice.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use fslab_vfs::{Errno, Result};
use fslab_vfs::{Ino, OpenMode, RenameMode};

use super::Stop;
use super::check::{Outcome, pattern};
use crate::client::Client;
use crate::flag::RaisedAtEnd;

const THREADS: usize = 4;

cases! { "concurrency":
    appends_are_not_lost, creations_are_not_lost, exclusive_creation_has_one_winner,
    directory_creation_has_one_winner, removal_has_one_winner, rename_has_one_winner,
    names_move_without_being_lost, replaced_name_always_exists,
    links_are_counted, writes_to_parts_are_not_lost, stable_entries_are_listed_while_others_change,
    lookups_and_forgets_balance, tree_operations_do_not_deadlock,
    exchanged_names_always_exist, opens_and_closes_do_not_disturb_readers,
}

/// Runs a closure in several threads, each with its number, and returns the first failure.
fn in_threads(work: impl Fn(usize) -> Outcome + Sync) -> Outcome {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|index| scope.spawn(move || work(index))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|panic| Err(Stop::panicked(&*panic)))
        })
    })
}

/// Runs the same operation in all threads and returns how often it succeeded. The other calls must
/// fail with the errno `losers`.
fn winners<T>(
    work: impl Fn(usize) -> Result<T> + Sync,
    losers: Errno,
) -> std::result::Result<usize, Stop> {
    let winners = AtomicUsize::new(0);
    in_threads(|index| match work(index) {
        Ok(_) => {
            winners.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        Err(error) if error.errno() == losers => Ok(()),
        Err(error) => Err(error.into()),
    })?;
    Ok(winners.into_inner())
}

fn appends_are_not_lost(client: &Client<'_>, top: Ino) -> Outcome {
    const RECORD: usize = 100;
    const RECORDS: usize = 100;
    let ino = client.file(top, "file", b"")?;
    in_threads(|index| {
        let file = client.open(ino, OpenMode::WRITE_ONLY | OpenMode::APPEND)?;
        for _ in 0..RECORDS {
            ensure_eq!(file.write(0, &[index as u8 + 1; RECORD])?, RECORD);
        }
        Ok(file.close()?)
    })?;
    let data = client.contents(ino)?;
    ensure_eq!(data.len(), THREADS * RECORDS * RECORD);
    for record in data.chunks(RECORD) {
        ensure!(record.iter().all(|byte| *byte == record[0] && *byte != 0), "a torn record");
    }
    Ok(())
}

fn creations_are_not_lost(client: &Client<'_>, top: Ino) -> Outcome {
    in_threads(|thread| {
        for index in 0..100 {
            client.file(top, format!("{thread}-{index}"), &[thread as u8])?;
        }
        Ok(())
    })?;
    let names: BTreeSet<String> = client.names(top)?.into_iter().collect();
    ensure_eq!(names.len(), THREADS * 100);
    Ok(())
}

fn exclusive_creation_has_one_winner(client: &Client<'_>, top: Ino) -> Outcome {
    for round in 0..20 {
        let name = format!("file{round}");
        let create =
            |_| client.create(top, &name, 0o644, OpenMode::EXCLUSIVE).map(|(attr, _)| attr);
        ensure_eq!(winners(create, Errno::EXIST)?, 1);
    }
    Ok(())
}

fn directory_creation_has_one_winner(client: &Client<'_>, top: Ino) -> Outcome {
    for round in 0..20 {
        let name = format!("directory{round}");
        ensure_eq!(winners(|_| client.mkdir(top, &name), Errno::EXIST)?, 1);
    }
    Ok(())
}

fn removal_has_one_winner(client: &Client<'_>, top: Ino) -> Outcome {
    for _ in 0..20 {
        client.file(top, "file", b"")?;
        ensure_eq!(winners(|_| client.unlink(top, "file"), Errno::NOENT)?, 1);
    }
    Ok(())
}

fn rename_has_one_winner(client: &Client<'_>, top: Ino) -> Outcome {
    for _ in 0..20 {
        client.file(top, "source", b"")?;
        let rename = |index| client.rename(top, "source", top, &format!("target{index}"));
        ensure_eq!(winners(rename, Errno::NOENT)?, 1);
        client.clear(top)?;
    }
    for _ in 0..20 {
        for index in 0..THREADS {
            client.file(top, format!("source{index}"), b"")?;
        }
        let mode = RenameMode::NO_REPLACE;
        let rename =
            |index| client.rename_with(top, &format!("source{index}"), top, "target", mode);
        ensure_eq!(winners(rename, Errno::EXIST)?, 1);
        client.clear(top)?;
    }
    Ok(())
}

fn names_move_without_being_lost(client: &Client<'_>, top: Ino) -> Outcome {
    let (one, two) = (client.mkdir(top, "one")?, client.mkdir(top, "two")?);
    for index in 0..THREADS {
        client.file(one, format!("file{index}"), &[index as u8])?;
    }
    in_threads(|index| {
        let name = format!("file{index}");
        for _ in 0..100 {
            client.rename(one, &name, two, &name)?;
            client.rename(two, &name, one, &name)?;
        }
        Ok(())
    })?;
    ensure_eq!(client.names(one)?.len(), THREADS);
    ensure_eq!(client.names(two)?.len(), 0);
    Ok(())
}

/// Replacing is atomic: a lookup finds the old file or the new one.
fn replaced_name_always_exists(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "target", b"x")?;
    let done = AtomicBool::new(false);
    in_threads(|index| {
        if index > 0 {
            while !done.load(Ordering::Relaxed) {
                client.lookup(top, "target")?;
            }
            return Ok(());
        }
        let _done = RaisedAtEnd(&done);
        (0..200).try_for_each(|_| {
            client.file(top, "source", b"x")?;
            Ok(client.rename(top, "source", top, "target")?)
        })
    })
}

fn exchanged_names_always_exist(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "one", b"x")?;
    client.mkdir(top, "two")?;
    let done = AtomicBool::new(false);
    in_threads(|index| {
        if index > 0 {
            while !done.load(Ordering::Relaxed) {
                client.lookup(top, "one")?;
                client.lookup(top, "two")?;
            }
            return Ok(());
        }
        let _done = RaisedAtEnd(&done);
        (0..300).try_for_each(|_| {
            Ok(client.rename_with(top, "one", top, "two", RenameMode::EXCHANGE)?)
        })
    })
}

fn links_are_counted(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    in_threads(|thread| {
        for index in 0..60 {
            client.link(ino, top, format!("{thread}-{index}"))?;
        }
        for index in 0..30 {
            client.unlink(top, format!("{thread}-{index}"))?;
        }
        Ok(())
    })?;
    ensure_eq!(client.attr(ino)?.links as usize, 1 + THREADS * 30);
    Ok(())
}

fn writes_to_parts_are_not_lost(client: &Client<'_>, top: Ino) -> Outcome {
    const PART: usize = 1000;
    const PARTS: usize = 200;
    let ino = client.file(top, "file", b"")?;
    // Neighbouring parts belong to different threads, so that threads share every block.
    in_threads(|thread| {
        let file = client.open(ino, OpenMode::WRITE_ONLY)?;
        for part in (thread..PARTS).step_by(THREADS) {
            file.write_all((part * PART) as u64, &pattern(part as u64, PART))?;
        }
        Ok(file.close()?)
    })?;
    let expected: Vec<u8> = (0..PARTS).flat_map(|part| pattern(part as u64, PART)).collect();
    ensure_bytes!(client.contents(ino)?, expected);
    Ok(())
}

fn stable_entries_are_listed_while_others_change(client: &Client<'_>, top: Ino) -> Outcome {
    for index in 0..100 {
        client.file(top, format!("stable{index:02}"), b"")?;
    }
    let done = AtomicBool::new(false);
    in_threads(|thread| {
        if thread > 0 {
            for round in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("changing{thread}-{}", round % 20);
                let ino = client.file(top, &name, b"")?;
                client.unlink(top, &name)?;
                client.forget(ino);
            }
            return Ok(());
        }
        let _done = RaisedAtEnd(&done);
        (0..30).try_for_each(|_| list_stable(client, top))
    })
}

fn list_stable(client: &Client<'_>, top: Ino) -> Outcome {
    let listing = client.opendir(top)?;
    let (mut offset, mut seen) = (0, Vec::new());
    loop {
        let piece = listing.next(offset, 13)?;
        let Some(last) = piece.last() else { break };
        offset = last.next_offset;
        seen.extend(piece.into_iter().map(|entry| entry.name.to_string_lossy().into_owned()));
        ensure!(seen.len() < 100_000, "the listing does not end");
    }
    seen.retain(|name| name.starts_with("stable"));
    let distinct: BTreeSet<&String> = seen.iter().collect();
    ensure_eq!((distinct.len(), seen.len()), (100, 100));
    Ok(())
}

fn lookups_and_forgets_balance(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "file", b"data")?;
    in_threads(|_| {
        // Each thread has its own client and its own count of lookups.
        let own = Client::new(client.subject());
        for _ in 0..200 {
            let attr = own.lookup(top, "file")?;
            ensure_eq!(own.attr(attr.ino)?.size, 4);
            own.forget(attr.ino);
        }
        Ok(())
    })?;
    ensure_eq!(client.contents(client.lookup(top, "file")?.ino)?, b"data");
    Ok(())
}

/// Two renames between the same directories in opposite directions may lock them in opposite order.
fn tree_operations_do_not_deadlock(client: &Client<'_>, top: Ino) -> Outcome {
    let (one, two) = (client.mkdir(top, "one")?, client.mkdir(top, "two")?);
    in_threads(|index| {
        let (from, to) = if index % 2 == 0 { (one, two) } else { (two, one) };
        let name = format!("directory{index}");
        for _ in 0..50 {
            client.mkdir(from, &name)?;
            client.rename(from, &name, to, &name)?;
            client.list(to)?;
            client.rmdir(to, &name)?;
        }
        Ok(())
    })
}

fn opens_and_closes_do_not_disturb_readers(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(1, 50_000);
    let ino = client.file(top, "file", &data)?;
    in_threads(|_| {
        for _ in 0..50 {
            let file = client.open(ino, OpenMode::empty())?;
            ensure_bytes!(file.read(0, 100_000)?, data);
            file.close()?;
        }
        Ok(())
    })
}
