//! `fslab man`: generates the man pages from the command line definition.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::manual;
use crate::exit;

/// Arguments of `fslab man`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory, created if missing
    directory: PathBuf,
}

impl Args {
    /// Writes one page for each subcommand.
    pub fn run(self) -> Result<()> {
        fs::create_dir_all(&self.directory)
            .with_context(|| format!("can't make {}", self.directory.display()))?;
        let shown = || format!("can't write to {}", self.directory.display());
        clap_mangen::generate_to(super::command(), &self.directory).with_context(shown)?;
        for entry in self.directory.read_dir().with_context(shown)? {
            let path = entry.with_context(shown)?.path();
            let is_ours = |name: &str| name.starts_with("fslab") && name.ends_with(".1");
            if path.file_name().and_then(OsStr::to_str).is_some_and(is_ours) {
                let page = fs::read_to_string(&path).with_context(shown)?;
                fs::write(&path, completed(&page)).with_context(shown)?;
            }
        }
        Ok(())
    }
}

/// Completes a generated page with the usual sections of man pages. The text after the options in
/// `--help` becomes NOTES and EXAMPLES. This text is printed unfilled, because man(1) would
/// otherwise join the lines of its tables.
fn completed(page: &str) -> String {
    const GENERATED: &str = ".SH EXTRA\n";
    // `.nh` prevents man(1) from hyphenating commands.
    let page = &with_values(page).replacen(".SH NAME\n", ".nh\n.SH NAME\n", 1);
    let (before, rest) = page.split_once(GENERATED).unwrap_or((page, ""));
    let end = rest.find(".SH ").unwrap_or(rest.len());
    let (extra, after) = rest.split_at(end);
    let (notes, examples) = extra.split_once("Examples:\n").unwrap_or((extra, ""));
    let kept = |name: &str, text: &str| match text.trim() {
        "" => String::new(),
        _ => format!(".SH {name}\n.nf\n{}\n.fi\n", text.trim_end()),
    };
    [
        before.to_owned(),
        kept("NOTES", notes),
        kept("EXAMPLES", examples),
        definitions(
            "EXIT STATUS",
            exit::TABLE.iter().map(|(code, text)| (code.to_string(), *text)),
        ),
        definitions("ENVIRONMENT", manual::ENVIRONMENT.iter().copied()),
        definitions("FILES", manual::FILES.iter().copied()),
        after.to_owned(),
    ]
    .concat()
}

/// Adds the value name of each option to the SYNOPSIS of a page. The names are taken from OPTIONS.
fn with_values(page: &str) -> String {
    let mut completed = page.to_owned();
    for line in page.lines() {
        let Some((names, value)) = line.split_once(r" \fI<") else { continue };
        let (Some((value, _)), true) = (value.split_once('>'), names.starts_with(r"\fB\-")) else {
            continue;
        };
        let names = names.replace(", ", "|");
        for (before, behind) in [('[', ']'), ('<', '>')] {
            let alone = format!("{before}{names}{behind}");
            let with_value = format!(r"{before}{names} \fI{value}\fR{behind}");
            completed = completed.replacen(&alone, &with_value, 1);
        }
    }
    completed
}

/// Returns a section of terms and their meanings.
fn definitions(
    name: &str,
    terms: impl Iterator<Item = (impl std::fmt::Display, &'static str)>,
) -> String {
    let terms: String =
        terms.map(|(term, text)| format!(".TP\n\\fB{term}\\fR\n{}\n", escaped(text))).collect();
    format!(".SH \"{name}\"\n{terms}")
}

/// Escapes characters that are special in roff.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}
