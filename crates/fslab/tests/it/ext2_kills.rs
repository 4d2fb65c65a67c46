//! Tests a mounted ext2 image whose daemon is killed under load. After a repair of the image, all
//! synced bytes must exist, under a name that their file has had since the sync.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{Error, Result, Write};
use std::path::Path;
use std::time::Duration;

use fslab_vfs_testing::environment::{number, seed};

use crate::ext2::{check, mounted_over, repair};
use crate::kill::{Seen, killed_while_working, list, read_back};
use crate::support::{Transport, require_mounting};

/// Number of kills; `FSLAB_KILLS` replaces it.
const KILLS: u64 = 6;
/// Number of names that each writer uses.
const NAMES: u64 = 13;

/// A file to which bytes are only appended.
#[derive(Default)]
struct Appended {
    content: Vec<u8>,
    /// The length of the file at the last completed sync, if there was one.
    synced: Option<usize>,
    /// The names that the file has had since that sync.
    names: BTreeSet<String>,
}

/// The files of a writer.
#[derive(Default)]
struct Work {
    files: BTreeMap<String, Appended>,
    syncs: u64,
}

impl Work {
    /// Performs a step. If the effect of a request may survive the kill although the request fails,
    /// the model is changed before the request.
    fn step(&mut self, point: &Path, writer: u64, step: u64) -> Result<()> {
        let name = format!("{writer}-{}", step % NAMES);
        let path = point.join(&name);
        match (step / 3 + writer) % 7 {
            0..=2 => {
                let data = vec![step as u8; 1 + (step as usize * 37) % 9000];
                let mut opened = OpenOptions::new().create(true).append(true).open(&path)?;
                let file = self.files.entry(name.clone()).or_default();
                file.names.insert(name.clone());
                file.content.extend(&data);
                opened.write_all(&data)?;
                if step.is_multiple_of(3) {
                    opened.sync_all()?;
                    file.synced = Some(file.content.len());
                    file.names = BTreeSet::from([name]);
                    self.syncs += 1;
                }
            }
            3 if self.files.contains_key(&name) => {
                let renamed = format!("{name}-renamed");
                if let Some(mut file) = self.files.remove(&name) {
                    file.names.insert(renamed.clone());
                    self.files.insert(renamed.clone(), file);
                }
                fs::rename(&path, point.join(&renamed))?;
            }
            4 if self.files.contains_key(&name) => {
                self.files.remove(&name);
                fs::remove_file(&path)?;
            }
            5 => {
                let file = self.files.iter().next();
                read_back(point, file.map(|(name, file)| (name, &file.content)))?;
            }
            6 => list(point, self.files.keys())?,
            _ => {}
        }
        Ok(())
    }

    /// Returns whether these bytes may be the content of a file after the kill. They must begin
    /// with all synced bytes. A part of the bytes that were appended later may follow, and then
    /// zeros up to the end of the block.
    fn is_content(file: &Appended, found: &[u8]) -> bool {
        let common = found.iter().zip(&file.content).take_while(|(one, other)| one == other);
        let equal = common.count();
        let is_slack = found.len() - equal < 4096 && found[equal..].iter().all(|byte| *byte == 0);
        equal >= file.synced.unwrap_or(0) && is_slack
    }

    fn check(&self, point: &Path) {
        for (name, file) in self.files.iter().filter(|(_, file)| file.synced.is_some()) {
            let found = file.names.iter().filter_map(|name| fs::read(point.join(name)).ok());
            let is_there = found.into_iter().any(|found| Self::is_content(file, &found));
            assert!(is_there, "{name}, once {:?}: synced bytes are lost", file.names);
        }
    }
}

/// Performs steps until one fails.
fn work_until_killed(point: &Path, writer: u64, seed: u64) -> (Work, Error) {
    let mut work = Work::default();
    let mut step = seed;
    loop {
        if let Err(error) = work.step(point, writer, step) {
            return (work, error);
        }
        step += 1;
    }
}

fn killed_once(transport: Transport, seed: u64, seen: &mut Seen) -> u64 {
    let (place, image) = mounted_over(transport, "64MiB", &[]);
    let delay = Duration::from_micros(2000 + seed.wrapping_mul(2_654_435_761) % 120_000);
    let works = killed_while_working(&place, delay, seen, move |point, writer| {
        work_until_killed(point, writer, seed)
    });
    // The mount is removed only after all writers have ended. Otherwise they would write to the
    // directory below it.
    repair(&place, &image);
    place.mount(&[]);
    works.iter().for_each(|work| work.check(&place.point));
    fs::write(place.point.join("after"), "alive").unwrap();
    assert_eq!(fs::read(place.point.join("after")).unwrap(), b"alive");
    place.umount();
    check(&image);
    works.iter().map(|work| work.syncs).sum()
}

#[test]
fn synced_files_survive_a_daemon_that_is_killed_under_load() {
    require_mounting!();
    kill_under_load(Transport::Device);
}

#[test]
fn synced_files_survive_a_daemon_that_is_killed_over_io_uring() {
    require_mounting!(Transport::Uring);
    kill_under_load(Transport::Uring);
}

fn kill_under_load(transport: Transport) {
    let (kills, seed) = (number("FSLAB_KILLS").unwrap_or(KILLS), seed());
    let mut seen = Seen::default();
    let syncs: u64 = (0..kills)
        .map(|round| killed_once(transport, seed.wrapping_add(round * 1000), &mut seen))
        .sum();
    println!("{kills} kills, {syncs} syncs, {seen:?}");
    assert!(syncs > kills, "{syncs} syncs before {kills} kills");
    seen.expect_all_queues(transport);
}
