//! `cargo xtask guide`: runs every command block of README.md and of the guide, as a reader would,
//! and reports failures.
//!
//! The blocks of a page run in order, in one shell, in an empty home folder. The shell has its own
//! mount and process namespaces, so its mounts and processes end with it. Each page has its own
//! `/mnt` and `/srv`. [`blocks`] describes how a page marks slow blocks, and blocks that are not
//! run.

mod blocks;
mod output;
mod shell;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use self::blocks::{Block, Kind};
use crate::steps::{Context, Step, build};
use crate::tally::Tally;
use crate::tidy::Tree;
use crate::{environment, process, summary};

/// The step `guide` of `cargo xtask test`.
pub const STEP: Step = Step {
    name: "guide",
    help: "the quick command blocks of README.md and the guide",
    run: |context| run(&context.program(), false, None),
};

/// The pages and blocks to run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Skip the blocks that are marked slow, as CI does, and build without optimisation
    #[arg(long)]
    quick: bool,
    /// Run only pages whose paths contain this text
    #[arg(long)]
    page: Option<String>,
    /// Run this `fslab` instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// List the blocks, without running them
    #[arg(long)]
    list: bool,
}

impl Args {
    /// Runs the blocks and prints the summary; succeeds if nothing failed.
    pub fn run(&self) -> Result<bool> {
        if self.list {
            for (page, blocks) in pages(self.page.as_deref())? {
                blocks.iter().for_each(|block| println!("{page}:{}: {}", block.line, block.kind));
            }
            return Ok(true);
        }
        let start = Instant::now();
        let fslab = match &self.program {
            Some(program) => {
                fs::canonicalize(program).with_context(|| program.display().to_string())?
            }
            None => self.built()?,
        };
        let tally = run(&fslab, !self.quick, self.page.as_deref())?;
        println!("guide took {:.1} s", start.elapsed().as_secs_f64());
        Ok(summary::close(&tally))
    }

    /// Builds the program and returns its path. The program is optimised unless `quick` is set.
    fn built(&self) -> Result<PathBuf> {
        let context = Context::new()?;
        if self.quick { build::program(&context) } else { build::release(&context) }
    }
}

/// Runs the blocks of pages, including slow ones if `slow` is set.
fn run(fslab: &Path, slow: bool, wanted: Option<&str>) -> Result<Tally> {
    if let Some(reason) = environment::why_no_mounts() {
        return Ok(Tally::skip("guide", reason));
    }
    let mut tally = Tally::default();
    for (page, blocks) in pages(wanted)? {
        let is_run = |block: &&Block| match block.kind {
            Kind::Quick => true,
            Kind::Slow => slow,
            Kind::NotHere(_) => false,
        };
        let (chosen, others): (Vec<&Block>, Vec<&Block>) = blocks.iter().partition(is_run);
        for block in others {
            println!("{page}:{}: {}", block.line, block.kind);
        }
        if chosen.is_empty() {
            continue;
        }
        let start = Instant::now();
        let ended = shell::run(fslab, &page, &chosen)?;
        let seconds = start.elapsed().as_secs_f64();
        println!("{page}: {} of {} blocks in {seconds:.1} s", ended.passed, chosen.len());
        tally += ended;
    }
    Ok(tally)
}

/// Runs the blocks of one page in another environment, and compares their output. `command` makes
/// the command that runs a script in that environment.
pub fn run_elsewhere(
    page: &str,
    command: impl FnOnce(&str) -> Result<std::process::Command>,
) -> Result<Tally> {
    let (_, blocks) =
        pages(Some(page))?.pop().with_context(|| format!("there is no page {page}"))?;
    let is_run = |block: &&Block| !matches!(block.kind, Kind::NotHere(_));
    let chosen: Vec<&Block> = blocks.iter().filter(is_run).collect();
    let ended = process::output(&mut command(&shell::script_of(&chosen))?)?;
    shell::judge(page, &chosen, &ended)
}

/// Returns README.md and the pages of the guide with their blocks.
fn pages(wanted: Option<&str>) -> Result<Vec<(String, Vec<Block>)>> {
    let tree = Tree::of_workspace()?;
    let mut pages = Vec::new();
    for (name, text) in tree.files_for_users() {
        if wanted.is_none_or(|wanted| name.contains(wanted)) {
            match blocks::of(text) {
                Ok(blocks) => pages.push((name.to_owned(), blocks)),
                Err((line, message)) => bail!("{name}:{line}: {message}"),
            }
        }
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    /// Without this test, an invalid block would be detected only when root runs the blocks.
    #[test]
    fn every_block_of_the_guide_parses() {
        let pages = super::pages(None).unwrap();
        assert!(pages.len() > 10 && pages[0].0 == "README.md", "{}", pages.len());
    }
}
