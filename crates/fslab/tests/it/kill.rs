//! Tests mounts whose daemon is killed under load. The directory can be mounted again, and the
//! results of all completed operations are there.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use fslab_vfs_testing::environment::{number, seed};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, require_mounting, run};

/// Number of kills; `FSLAB_KILLS` replaces it.
const KILLS: u64 = 14;

/// The operation that was in flight when the daemon died.
struct Doubt {
    name: String,
    /// Whether the operation appended to a file. Otherwise it changed names.
    appended: bool,
}

/// The expected content of each file after the completed operations, by name.
type Made = BTreeMap<String, Vec<u8>>;

#[test]
fn completed_operations_survive_a_killed_daemon() {
    require_mounting!();
    let kills = number("FSLAB_KILLS").unwrap_or(KILLS);
    let seed = seed();
    for (layer, round) in LAYERS.iter().cycle().zip(0..kills) {
        killed_once(layer, seed.wrapping_add(round));
    }
}

/// Stacks whose daemons are killed, in turn.
const LAYERS: &[&str] = &[
    "null",
    "gzip:chunk=4KiB",
    "null:passthrough=off",
    "zstd",
    "copy:chunk=16KiB,tails=off",
    "lz4:chunk=4KiB",
    "uuencode:chunk=8KiB",
];

/// Copies files with requests of one chunk, as cp(1) does, and with smaller requests, as tar(1)
/// does. The layer stages chunks in both cases.
#[test]
fn copied_chunks_survive_a_killed_daemon() {
    require_mounting!();
    let kills = number("FSLAB_KILLS").unwrap_or(KILLS);
    let seed = seed();
    let layers = [
        ("gzip:chunk=4KiB,threads=2", 4 << 10),
        ("zstd:threads=2", 128 << 10),
        ("zstd:chunk=64KiB,threads=2", 10 << 10),
    ];
    let mut staging = 0;
    for (&(layer, length), round) in layers.iter().cycle().zip(0..kills) {
        staging += u64::from(killed_while_copying(layer, length, seed.wrapping_add(round)));
    }
    eprintln!("{kills} kills, {staging} of them while a chunk was staged");
    assert!(staging > 0, "none of {kills} daemons was killed while a chunk was staged");
}

/// Kills a daemon while a file is copied. Returns whether the file still had a staging area.
fn killed_while_copying(layer: &str, length: usize, seed: u64) -> bool {
    let place = Place::mounted(&["-l", layer]);
    let mut data = Vec::new();
    let mut file = fs::File::create_new(place.point.join("copy")).unwrap();
    let killer = kill_soon(&place, seed);
    let copied = (seed..).try_for_each(|number| {
        let mut piece = vec![number as u8; length];
        piece[..8].copy_from_slice(&number.to_le_bytes());
        data.extend(&piece);
        file.write_all(&piece)
    });
    copied.unwrap_err();
    killer.join().unwrap();
    let is_staging = fs::metadata(place.lower.join("copy")).unwrap().len() > 128 << 20;
    mount_again(&place, layer, seed.is_multiple_of(2));
    let found = fs::read(place.point.join("copy")).unwrap();
    assert!(found.len() + length >= data.len(), "{layer}: {} of {}", found.len(), data.len());
    assert!(data.starts_with(&found), "{layer}: other bytes");
    place.umount();
    is_staging
}

/// Kills the daemon of a mount after a delay of up to 60 ms.
fn kill_soon(place: &Place, seed: u64) -> std::thread::JoinHandle<()> {
    let daemon = Pid::from_raw(place.daemon().try_into().unwrap()).unwrap();
    let delay = Duration::from_micros(500 + seed.wrapping_mul(2_654_435_761) % 60_000);
    std::thread::spawn(move || {
        std::thread::sleep(delay);
        kill_process(daemon, Signal::KILL).unwrap();
    })
}

fn killed_once(layer: &str, seed: u64) {
    let place = Place::mounted(&["-l", layer]);
    let killer = kill_soon(&place, seed);
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let point = place.point.clone();
            std::thread::spawn(move || work_until_killed(&point, writer, seed))
        })
        .collect();
    let made: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    killer.join().unwrap();
    mount_again(&place, layer, seed.is_multiple_of(2));
    for (made, in_doubt) in &made {
        check(layer, &place.point, made, in_doubt.as_ref());
    }
    place.umount();
}

/// Creates, appends to, renames and removes files until an operation fails. Returns the results of
/// the completed operations, and the failed operation.
fn work_until_killed(point: &Path, writer: u64, seed: u64) -> (Made, Option<Doubt>) {
    let mut made = Made::new();
    for step in seed.. {
        let name = format!("{writer}-{}", step % 17);
        let operation = (step / 3 + writer) % 4;
        if apply(point, &name, step, operation, &mut made).is_err() {
            return (made, Some(Doubt { name, appended: operation < 2 }));
        }
    }
    (made, None)
}

fn apply(
    point: &Path,
    name: &str,
    step: u64,
    operation: u64,
    made: &mut Made,
) -> std::io::Result<()> {
    let path = point.join(name);
    match operation {
        0 | 1 => {
            let data = vec![step as u8; 1 + (step as usize * 37) % 9000];
            let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
            made.entry(name.to_owned()).or_default();
            file.write_all(&data)?;
            made.entry(name.to_owned()).or_default().extend(data);
            if step.is_multiple_of(5) {
                file.sync_all()?;
            }
        }
        2 if made.contains_key(name) => {
            let renamed = format!("{name}-renamed");
            fs::rename(&path, point.join(&renamed))?;
            let contents = made.remove(name).unwrap_or_default();
            made.insert(renamed, contents);
        }
        3 if made.contains_key(name) => {
            fs::remove_file(&path)?;
            made.remove(name);
        }
        _ => {}
    }
    Ok(())
}

/// Checks that the results of all completed operations exist. Only the effect of the failed
/// operation is uncertain.
fn check(layer: &str, point: &Path, made: &Made, in_doubt: Option<&Doubt>) {
    for (name, contents) in made {
        let found = fs::read(point.join(name));
        match in_doubt.filter(|doubt| doubt.is_about(name)) {
            None => {
                let found = found.unwrap_or_else(|error| panic!("{layer}, {name}: {error}"));
                assert!(found == *contents, "{layer}: {name} contains other bytes");
            }
            Some(doubt) if doubt.appended => {
                let found = found.unwrap_or_else(|error| panic!("{layer}, {name}: {error}"));
                assert!(found.starts_with(contents), "{layer}: {name} contains other bytes");
            }
            // The failed operation removed or renamed the file, perhaps over an existing file.
            Some(doubt) => {
                let before = [Some(contents), made.get(&doubt.name)];
                let is_known = found.is_err() || before.contains(&found.as_ref().ok());
                assert!(is_known, "{layer}: {name} contains unexpected bytes");
            }
        }
    }
}

impl Doubt {
    fn is_about(&self, name: &str) -> bool {
        name.strip_prefix(&self.name).is_some_and(|rest| ["", "-renamed"].contains(&rest))
    }
}

fn mount_again(place: &Place, layer: &str, replace: bool) {
    let point = place.point.to_str().unwrap();
    let (code, message) = place.try_mount(&["-l", layer]);
    assert_eq!(code, 3, "over a dead mount: {message}");
    assert!(message.contains("daemon is dead; run `fslab umount"), "{message}");
    if replace {
        place.mount(&["-o", "replace", "-l", layer]);
    } else {
        assert_eq!(run(&["umount", "--lazy", point]), (0, String::new()));
        place.mount(&["-l", layer]);
    }
    fs::write(place.point.join("after"), "alive").unwrap();
    assert_eq!(fs::read(place.point.join("after")).unwrap(), b"alive");
}
