//! Compares help pages, errors and the fields of JSON output with files in the project. A developer
//! who changes them sees in the diff what users will see.
//!
//! `FSLAB_UPDATE_SNAPSHOTS=1 cargo test -p fslab --test it -- snapshots` rewrites the files.

mod errors;
mod json;
mod stability;

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::fslab;

/// Compares a text with a file of the project. If an update was requested, writes the file instead.
#[track_caller]
fn expect(path: &str, text: &str) {
    let file = Path::new("../..").join(path);
    if is_updating() {
        fs::write(&file, text).unwrap();
        return;
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    let differs = expected.lines().zip(text.lines()).find(|(one, other)| one != other);
    assert!(
        expected == text,
        "{path} differs, first here: {differs:?}; lines {} and {}. FSLAB_UPDATE_SNAPSHOTS=1 \
         rewrites it",
        expected.lines().count(),
        text.lines().count()
    );
}

fn is_updating() -> bool {
    std::env::var_os("FSLAB_UPDATE_SNAPSHOTS").is_some()
}

/// Formats a command line for a page.
fn shown(words: &[&str]) -> String {
    let quoted = |word: &&str| match word.contains([' ', '?', '*', '\'']) {
        true => format!("'{word}'"),
        false => (*word).to_owned(),
    };
    let words: Vec<String> = words.iter().map(quoted).collect();
    format!("fslab {}", words.join(" "))
}

fn help(words: &[String]) -> String {
    let mut command = fslab(&[]);
    command.args(words).arg("--help").env("COLUMNS", "100").env_remove("SOURCE_DATE_EPOCH");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Appends the help page of a command, and those of its subcommands.
fn add_pages(words: &[String], pages: &mut String) {
    let page = help(words);
    let subcommands: Vec<String> = page
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|name| name != "help")
        .collect();
    let name = [&["fslab".to_owned()], words].concat().join(" ");
    pages.push_str(&format!("==== {name}\n{page}\n"));
    for subcommand in subcommands {
        add_pages(&[words, &[subcommand]].concat(), pages);
    }
}

#[test]
fn help_pages_are_as_recorded() {
    let mut pages = String::new();
    add_pages(&[], &mut pages);
    assert!(pages.matches("\n==== ").count() > 75, "too few pages");
    for (number, line) in pages.lines().enumerate() {
        assert!(!line.contains("os error"), "line {number}: {line}");
    }
    expect("crates/fslab/tests/it/snapshots/help.txt", &pages);
    expect("docs/guide/src/reference/commands.md", &commands_page(&pages));
}

const COMMANDS: &str = "\
# Commands

The help page of each command, as `fslab COMMAND --help` prints it. `fslab man DIR` writes man pages
with the same content.

";

/// Returns the page of the guide with the help page of each command.
fn commands_page(pages: &str) -> String {
    let section = |page: &str| {
        let (name, help) = page.split_once('\n').unwrap();
        section(name, help)
    };
    let sections: Vec<String> = pages.split("==== ").skip(1).map(section).collect();
    format!("{COMMANDS}{}", sections.join("\n"))
}

/// Returns a section of a page of the guide: the output of a command, without trailing blanks.
fn section(command: &str, output: &str) -> String {
    let lines: Vec<&str> = output.trim_end().lines().map(str::trim_end).collect();
    format!("## `{command}`\n\n```text\n{}\n```\n", lines.join("\n"))
}

const NAMES: &str = "\
# Names and their options

All named items with their options and defaults, as `fslab list SECTION` prints them.
`fslab list NAME` prints only one entry.

";

/// The sections of `fslab list`.
const SECTIONS: [&str; 8] =
    ["layers", "leaves", "archives", "workloads", "plans", "profiles", "renderers", "attributes"];

#[test]
fn names_and_options_are_as_recorded() {
    let section = |name: &&str| {
        let output = fslab(&["list", name]).env("COLUMNS", "100").output().unwrap();
        assert!(output.status.success(), "{name}");
        let text = String::from_utf8(output.stdout).unwrap();
        section(&format!("fslab list {name}"), &text)
    };
    let sections: Vec<String> = SECTIONS.iter().map(section).collect();
    expect("docs/guide/src/reference/names.md", &format!("{NAMES}{}", sections.join("\n")));
}

/// Replaces the random path of a directory with `DIR`.
fn without_scratch(text: &str, scratch: &Path) -> String {
    let real: PathBuf = scratch.canonicalize().unwrap();
    let text = text.replace(real.to_str().unwrap(), "DIR");
    text.replace(scratch.to_str().unwrap(), "DIR")
}
