//! `cargo xtask fuzz`: runs every fuzz target for a given time.
//!
//! New inputs of a target go to a temporary folder, so the corpora in the repository change only on
//! purpose. A failing input is kept in `fuzz/artifacts`, as cargo-fuzz does.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::tally::Tally;
use crate::{environment, process, summary};

/// The targets and the duration.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Minutes per target
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Run only targets whose names contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// Options of AddressSanitizer, against false reports. Libdeflate's decoder is compiled twice with
/// the same table, which looks like a duplicate definition. When the process exits, threads of the
/// last input may still be running, which looks like a leak.
const SANITIZER: &str = "detect_odr_violation=0:detect_leaks=0";

impl Args {
    /// Runs the targets one after another; succeeds if none found a failure.
    pub fn run(&self) -> Result<bool> {
        let program = environment::find_tool("cargo-fuzz");
        program.context("cargo-fuzz is not installed; run `cargo install cargo-fuzz`")?;
        let targets = targets(&self.only)?;
        ensure!(!targets.is_empty(), "no fuzz target contains {:?}", self.only);
        let mut tally = Tally::default();
        for target in targets {
            tally += self.one(&target).unwrap_or_else(|e| Tally::fail(format!("{target}: {e:#}")));
            if process::interrupted() {
                break;
            }
        }
        Ok(summary::close(&tally))
    }

    fn one(&self, target: &str) -> Result<Tally> {
        let learnt = tempfile::tempdir().context("cannot make a temporary folder")?;
        let mut command: Command = environment::cargo();
        // Stable compilers refuse the sanitizer flags without this variable.
        command.env("RUSTC_BOOTSTRAP", "1").env("ASAN_OPTIONS", SANITIZER);
        command.args(["fuzz", "run", target]).arg(learnt.path());
        let corpus = environment::workspace_root().join("fuzz/corpus").join(corpus_of(target));
        if corpus.is_dir() {
            command.arg(corpus);
        }
        command.args(["--", "-rss_limit_mb=1024", "-print_final_stats=1"]);
        command.arg(format!("-max_total_time={}", self.minutes * 60));
        println!("== {target}: {} minutes", self.minutes);
        process::run_ok(&mut command)?;
        Ok(Tally::pass())
    }
}

/// Returns the corpus of a target. Targets that read stored files share one.
fn corpus_of(target: &str) -> &str {
    if target.starts_with("sca_") { "stored" } else { target }
}

/// Returns the names of the fuzz targets, sorted.
fn targets(only: &str) -> Result<Vec<String>> {
    let files = environment::files()?;
    let name = |path: &String| {
        let name = path.strip_prefix("fuzz/fuzz_targets/")?.strip_suffix(".rs")?;
        name.contains(only).then(|| name.to_owned())
    };
    let mut names: Vec<_> = files.iter().filter_map(name).collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_of_the_folder_is_run() {
        let all = targets("").unwrap();
        assert!(all.len() > 10 && all.contains(&"sca_reader".to_owned()), "{all:?}");
        assert_eq!(targets("sca_reader").unwrap(), ["sca_reader"]);
        assert_eq!(corpus_of("sca_reader"), "stored");
        assert_eq!(corpus_of("requests"), "requests");
    }
}
