//! `cargo xtask book`: builds the guide with mdBook and checks the links of the finished pages.
//!
//! `cargo xtask tidy` checks the links of the sources. This command also finds links that mdBook
//! itself breaks, and links to files that mdBook does not copy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use anyhow::{Context as _, Result};

use crate::tally::Tally;
use crate::{environment, process, setup, summary};

const PROGRAM: &str = "mdbook";
const VERSION: &str = "0.5.4";

/// The options of `cargo xtask book`; there are none.
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    /// Builds the book and checks it; succeeds if no link is broken.
    pub fn run(&self) -> Result<bool> {
        let mdbook = mdbook()?;
        let root = environment::workspace_root();
        let output = root.join("target/book");
        process::run_ok(Command::new(mdbook).arg("build").arg(root.join("docs")))?;
        // Link targets are canonical paths, so the paths of pages must be canonical too.
        let output = output.canonicalize().with_context(|| output.display().to_string())?;
        let pages = read_pages(&output)?;
        let broken = broken_links(&output, &pages);
        broken.iter().for_each(|link| println!("{link}"));
        println!("book: {} pages in {}", pages.len(), output.display());
        let tally = match broken.len() {
            0 => Tally::pass(),
            count => Tally::fail(format!("book: {count} broken links, see above")),
        };
        Ok(summary::close(&tally))
    }
}

/// Returns the program, and builds it from source if the cache does not contain this version.
fn mdbook() -> Result<PathBuf> {
    let program = environment::tools()?.join("bin").join(PROGRAM);
    let is_installed = program.is_file()
        && process::output(Command::new(&program).arg("--version"))?.stdout.contains(VERSION);
    if !is_installed {
        println!("book: building {PROGRAM} {VERSION} (a few minutes)");
        // The features for serving and watching pages are not needed here.
        setup::cargo_install(PROGRAM, VERSION, &["--no-default-features", "--features", "search"])?;
    }
    Ok(program)
}

/// The anchors and the links of a finished page.
struct Page {
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

/// Reads the finished pages, by their paths. `print.html`, which contains all pages, is left out,
/// because its anchors are not unique.
fn read_pages(folder: &Path) -> Result<BTreeMap<PathBuf, Page>> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for path in entries.map(|entry| entry.map(|entry| entry.path())) {
            let path = path.with_context(|| folder.display().to_string())?;
            let is_page = path.extension().is_some_and(|extension| extension == "html")
                && path.file_name().is_none_or(|name| name != "print.html");
            if path.is_dir() {
                folders.push(path);
            } else if is_page {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                pages.insert(path, Page::of(&text));
            }
        }
    }
    Ok(pages)
}

impl Page {
    fn of(text: &str) -> Self {
        let links = ["href", "src"].into_iter().flat_map(|name| attributes(text, name));
        Self {
            anchors: attributes(text, "id").map(str::to_owned).collect(),
            links: links.map(str::to_owned).collect(),
        }
    }
}

/// Returns the values of all attributes with a name.
fn attributes<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let begin = format!(" {name}=\"");
    let starts: Vec<usize> = text.match_indices(&begin).map(|(at, _)| at + begin.len()).collect();
    starts.into_iter().filter_map(|start| text[start..].split('"').next())
}

/// Describes the links whose file or anchor does not exist.
fn broken_links(folder: &Path, pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let mut broken = Vec::new();
    for (path, page) in pages {
        // A server shows this page for any path, so its links are relative to the server's root.
        let links = page.links.iter().filter(|_| !path.ends_with("404.html"));
        for link in links.filter(|link| !is_external(link)) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => Ok(path.clone()),
                _ => path.with_file_name(file).canonicalize(),
            };
            let fault = fault(pages, target, anchor);
            let name = path.strip_prefix(folder).unwrap_or(path).display();
            broken.extend(fault.map(|fault| format!("{name}: {fault}: {link}")));
        }
    }
    broken
}

fn is_external(link: &str) -> bool {
    ["https://", "http://", "mailto:", "data:"].iter().any(|scheme| link.starts_with(scheme))
}

/// Returns the fault of a link with this target file and anchor; `None` if both exist.
fn fault(
    pages: &BTreeMap<PathBuf, Page>,
    target: io::Result<PathBuf>,
    anchor: &str,
) -> Option<&'static str> {
    let Ok(target) = target else { return Some("no such file") };
    let has_anchor = |page: &Page| anchor.is_empty() || page.anchors.contains(anchor);
    let is_found = pages.get(&target).is_none_or(has_anchor);
    (!is_found).then_some("no such heading")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_broken_links_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("its path");
        let other = "<h2 id=\"set-up\">Set up</h2> <img src=\"missing.png\">";
        fs::write(folder.join("other.html"), other).expect("a page");
        for (link, is_broken) in [
            ("other.html", false),
            ("other.html#set-up", false),
            ("#here", false),
            ("https://example.org/x.html", false),
            ("other.html#setup", true),
            ("#there", true),
            ("gone.html", true),
        ] {
            let text = format!("<p id=\"here\"> <a href=\"{link}\">x</a>");
            fs::write(folder.join("page.html"), text).expect("a page");
            let broken = broken_links(&folder, &read_pages(&folder).expect("pages"));
            assert_eq!(broken.len(), 1 + usize::from(is_broken), "{link}: {broken:?}");
            assert_eq!(broken[0], "other.html: no such file: missing.png");
        }
    }
}
