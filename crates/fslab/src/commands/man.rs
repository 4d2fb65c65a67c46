//! `fslab man`: the man pages, made from the command line itself.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::manual;
use crate::exit;

/// Arguments of `fslab man`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory; made if missing
    directory: PathBuf,
}

impl Args {
    /// Writes one page a subcommand.
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

/// A generated page with the sections that are usual in man pages. The text behind the options in
/// `--help` becomes NOTES and EXAMPLES: it is tables, whose lines man(1) would join.
fn completed(page: &str) -> String {
    const GENERATED: &str = ".SH EXTRA\n";
    // Commands must not be hyphenated.
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

/// A page whose SYNOPSIS shows what options take, as its OPTIONS do.
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

/// A section of terms and what they mean.
fn definitions(
    name: &str,
    terms: impl Iterator<Item = (impl std::fmt::Display, &'static str)>,
) -> String {
    let terms: String =
        terms.map(|(term, text)| format!(".TP\n\\fB{term}\\fR\n{}\n", escaped(text))).collect();
    format!(".SH \"{name}\"\n{terms}")
}

/// Text in which nothing is a command of roff.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}
