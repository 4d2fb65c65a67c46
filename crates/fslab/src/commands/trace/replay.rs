//! `fslab trace replay`: repeats the operations of a trace on another stack, within this process.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fslab_layers::{LayerChoice, Leaf, Stack};
use fslab_trace::{Inventory, Reader, Record, Replayed, Replayer, Settings, noise};
use fslab_vfs::{Credentials, FileSystem};

use crate::commands::candidates;
use crate::commands::mount::{parse_layer, parse_leaf};
use crate::units::{bytes, duration};

const HELP: &str = "\
The operations are done one by one, in the order in which they ended. If the trace was
recorded with data=full, the recorded data is written; otherwise random data of the recorded sizes.
If root replays, each operation is done as the user who requested it. If another user replays, that
user does all operations, and changes of ownership are skipped.";

/// Arguments of `fslab trace replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// A layer over the target, NAME[:key=value,...]; the first is the top layer
    #[arg(short, long = "layer", value_name = "LAYER", value_parser = parse_layer,
          add = candidates::layers())]
    layers: Vec<LayerChoice>,
    /// First create the files that existed before the trace: their names, kinds, sizes and modes
    #[arg(long)]
    populate: bool,
    /// Keep the recorded pauses between operations
    #[arg(long)]
    recorded_pace: bool,
    /// Fail if any result differs from the recorded one
    #[arg(long)]
    strict: bool,
    /// The trace: its directory, or one file of it
    trace: PathBuf,
    /// The target: a directory, mem:, or ext2:IMAGE. It must be in the state that the traced file
    /// system had when recording began
    #[arg(value_parser = parse_leaf)]
    target: Leaf,
}

impl Args {
    /// Replays the trace and prints the result.
    pub fn run(self) -> Result<()> {
        let mut reader = Reader::open(&self.trace)?;
        let stack = Stack { layers: self.layers.clone(), leaf: self.target.clone() };
        let target = stack.build_in(&crate::stack_context::of_program())?;
        if self.populate {
            self.make_what_was_there(&*target)?;
        }
        let start = Instant::now();
        let replayed = self.replay(&mut reader, &*target)?;
        let elapsed = start.elapsed();
        target.shutdown().context("can't shut down the target")?;
        super::say_what_is_missing(&reader);
        tell(&replayed, elapsed);
        if self.strict && replayed.diverged > 0 {
            bail!("{} operations had other results than recorded", replayed.diverged);
        }
        Ok(())
    }

    fn make_what_was_there(&self, target: &dyn FileSystem) -> Result<()> {
        let mut inventory = Inventory::default();
        for record in Reader::open(&self.trace)? {
            inventory.learn(&record?);
        }
        let made = inventory.make(target, Credentials::own_unless_root(), &mut fill)?;
        say!("files and directories created, as they existed when recording began: {made}");
        Ok(())
    }

    fn replay(&self, reader: &mut Reader, target: &dyn FileSystem) -> Result<Replayed> {
        let mut fill = fill;
        let mut replayer = Replayer::new(
            target,
            Settings { owner: Credentials::own_unless_root(), fill: &mut fill },
        );
        let start = Instant::now();
        for record in reader {
            let record = record?;
            if self.recorded_pace {
                let due = Duration::from_nanos(record.start_ns);
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
            replayer.step(&record);
        }
        Ok(replayer.finish())
    }
}

fn fill(record: &Record, buffer: &mut [u8]) {
    noise(record.sequence, buffer);
}

fn tell(replayed: &Replayed, elapsed: Duration) {
    let Replayed { operations, diverged, bytes_written, bytes_read, left_out, .. } = replayed;
    say!(
        "{operations} operations in {}: {} written, {} read; {diverged} had other results than \
         recorded, {left_out} of them could not be replayed",
        duration(elapsed.as_nanos() as u64),
        bytes(*bytes_written),
        bytes(*bytes_read),
    );
    for divergence in &replayed.divergences {
        say!("  {divergence}");
    }
    let told = replayed.divergences.len() as u64;
    if *diverged > told {
        say!("  and {} more", diverged - told);
    }
}
