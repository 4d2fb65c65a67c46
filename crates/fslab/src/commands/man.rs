//! `fslab man`: the man pages, made from the command line itself.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::CommandFactory;

/// Arguments of `fslab man`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to write them; made if missing
    directory: PathBuf,
}

impl Args {
    /// Writes one page a subcommand.
    pub fn run(self) -> Result<()> {
        fs::create_dir_all(&self.directory)
            .with_context(|| format!("can't make {}", self.directory.display()))?;
        let shown = || format!("can't write to {}", self.directory.display());
        clap_mangen::generate_to(super::Cli::command(), &self.directory).with_context(shown)?;
        for entry in self.directory.read_dir().with_context(shown)? {
            let path = entry.with_context(shown)?.path();
            let is_ours = |name: &str| name.starts_with("fslab") && name.ends_with(".1");
            if path.file_name().and_then(OsStr::to_str).is_some_and(is_ours) {
                let page = fs::read_to_string(&path).with_context(shown)?;
                fs::write(&path, with_lines_kept(&page)).with_context(shown)?;
            }
        }
        Ok(())
    }
}

/// What follows the options in `--help` is tables: man(1) would fill lines with it.
fn with_lines_kept(page: &str) -> String {
    const GENERATED: &str = ".SH EXTRA\n";
    let Some((before, rest)) = page.split_once(GENERATED) else { return page.to_owned() };
    let end = rest.find(".SH ").unwrap_or(rest.len());
    let (section, after) = rest.split_at(end);
    format!("{before}.SH NOTES\n.nf\n{section}.fi\n{after}")
}
