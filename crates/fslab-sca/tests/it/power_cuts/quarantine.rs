//! Tests of power cuts while unknown bytes after the last frame are quarantined.

use std::sync::Arc;

use fslab_vfs::{FileSystem, Ino, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::{CrashFs, Order, Plan, State};

use super::mutants::{EARLY_BLANK, Mutant};

const LAYER: &str = "copy:chunk=4KiB,threads=1,cache=0";

/// Length of the pieces that the test searches for. The quarantined copies consist of longer
/// pieces.
const PIECE: usize = 64;

/// In each state after a power cut, the bytes are where they were, or in copies.
#[test]
fn unknown_bytes_survive_a_power_cut_during_their_quarantine() {
    quarantine(None).unwrap();
    let problem = quarantine(Some(&EARLY_BLANK));
    eprintln!("{}: {}", EARLY_BLANK.bug, problem.expect_err("the planted bug was not caught"));
}

/// Writes to a file with unknown bytes at its end, and checks all states after a power cut.
fn quarantine(mutant: Option<&Mutant>) -> Result<(), String> {
    let crash = Arc::new(CrashFs::default());
    let unknown: Vec<u8> = (0..40 * PIECE).map(|at| (at / 251 + at % 251) as u8).collect();
    write_at_the_end(&*crate::layer(LAYER).build(crash.clone()).unwrap(), &[1; 4096]);
    write_at_the_end(&*crash, &unknown);
    crash.settle().unwrap();
    let start = crash.position();
    let below: Arc<dyn FileSystem> = crash.clone();
    let below = mutant.map_or(Arc::clone(&below), |mutant| (mutant.plant)(below));
    write_at_the_end(&*crate::layer(LAYER).build(below).unwrap(), b"next");
    let mut checked = 0;
    let mut visit = |state: &State| {
        checked += 1;
        let bytes = content(&state.open().unwrap());
        let is_kept = |piece: &[u8]| bytes.windows(PIECE).any(|window| window == piece);
        match unknown.chunks(PIECE).position(|piece| !is_kept(piece)) {
            Some(number) => Err(format!("byte {} of the unknown bytes is lost", number * PIECE)),
            None => Ok(()),
        }
    };
    let (log, plan) = (crash.log(), Plan::full(0));
    log.for_each_state(Order::Independent, &plan, &|point| point >= start, &mut visit)?;
    assert!(checked > 10, "only {checked} states were checked");
    Ok(())
}

/// Appends to the file, which is created if necessary, and syncs and closes it.
fn write_at_the_end(fs: &dyn FileSystem, bytes: &[u8]) {
    let client = Client::new(fs);
    let file = match client.lookup(Ino::ROOT, "file") {
        Ok(found) => client.open(found.ino, OpenMode::READ_WRITE).unwrap(),
        Err(_) => client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap().1,
    };
    let size = client.attr(file.ino).unwrap().size;
    file.write_all(size, bytes).unwrap();
    file.fsync(false).unwrap();
    file.close().unwrap();
}

fn content(fs: &dyn FileSystem) -> Vec<u8> {
    let client = Client::new(fs);
    client.contents(client.lookup(Ino::ROOT, "file").unwrap().ino).unwrap()
}
