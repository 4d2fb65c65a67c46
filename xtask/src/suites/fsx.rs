//! fsx: random reads, writes, truncations, holes and mappings of one file, each checked against a
//! copy in memory. To repeat a failure, run `cargo xtask suite fsx --seed N --seeds 1`.

use std::fs;

use anyhow::Result;

use super::{Options, Over, Suite};
use crate::stage::{Stage, Target};
use crate::tally::Tally;
use crate::{environment, process};

/// The suite `fsx`.
pub const SUITE: Suite =
    Suite { name: "fsx", program: Some("fsx"), over: Over::Stacks, quick: QUICK, run };

const QUICK: Options = Options { operations: 10_000, seeds: 1, first_seed: 1 };

const CONFIGURATION: &str = "\
flen = 1048576

[weights]
truncate = 1.0
fsync = 1.0
fdatasync = 1.0
punch_hole = 1.0
posix_fallocate = 1.0
copy_file_range = 1.0
";

fn run(stage: &mut Stage, target: &Target, options: &Options) -> Result<Tally> {
    let folder = stage.beside("fsx")?;
    let mut configuration = CONFIGURATION.to_owned();
    // fsx stops at the first operation that the file system does not support.
    if target.is_bindfs() {
        println!("fsx on {target}: without punch_hole, which bindfs does not support");
        configuration = CONFIGURATION.replace("punch_hole = 1.0\n", "punch_hole = 0.0\n");
    }
    fs::write(folder.join("configuration.toml"), configuration)?;
    let mut tally = Tally::default();
    for seed in (options.first_seed..).take(options.seeds as usize) {
        tally += one_seed(stage, target, options.operations, seed)?;
    }
    Ok(tally)
}

fn one_seed(stage: &Stage, target: &Target, operations: u32, seed: u32) -> Result<Tally> {
    let folder = stage.beside("fsx")?;
    let mut command = environment::tool("fsx")?;
    command.arg("-f").arg(folder.join("configuration.toml"));
    command.args(["-N", &operations.to_string(), "-S", &seed.to_string()]);
    command.arg("-P").arg(&folder).arg(stage.directory().join(format!("fsx-{seed}")));
    let output = process::output(command.env("RUST_BACKTRACE", "0"))?;
    let name = format!("fsx on {target}: seed {seed}, {operations} operations");
    if output.status.success() {
        println!("{name}: ok");
        return Ok(Tally::pass());
    }
    println!("{name}: FAILED\n{}{}", tail(&output.stdout), tail(&output.stderr));
    Ok(Tally::fail(name))
}

/// Returns the last lines of the output, in which fsx lists the operations before the failure.
fn tail(text: &str) -> String {
    const LINES: usize = 60;
    let lines: Vec<_> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
    last.iter().map(|line| format!("  {line}\n")).collect()
}
