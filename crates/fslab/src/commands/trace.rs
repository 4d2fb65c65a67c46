//! `fslab trace`: shows and replays recordings of the `trace` layer.

mod filter;
mod replay;
mod show;

use anyhow::Result;
use clap::Subcommand;
use fslab_trace::Reader;

/// Arguments of `fslab trace`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the operations of a trace, one per line
    Show(show::Args),
    /// Replay a trace on another file system
    Replay(replay::Args),
}

impl Args {
    /// Runs the chosen subcommand.
    pub fn run(self) -> Result<()> {
        match self.action {
            Action::Show(args) => args.run(),
            Action::Replay(args) => args.run(),
        }
    }
}

/// Reports the missing records of a trace on standard error. The whole trace must have been read.
fn say_what_is_missing(reader: &Reader) {
    let missing = reader.missing();
    if missing > 0 {
        eprintln!("fslab: {missing} records are missing within the trace");
    }
    let Some(last) = reader.last_segment() else { return };
    let lost = last.metadata.lost;
    if lost > missing {
        eprintln!("fslab: {} records were lost at the end of the trace", lost - missing);
    }
    if !last.metadata.closed {
        eprintln!(
            "fslab: the trace was not closed: it is still being recorded, or its end was lost"
        );
    }
}
