//! Checks the guide as a book: `docs/SUMMARY.md` must list each page once, and links must lead to
//! pages of the book. Code on a page must equal the file in the comment before it:
//!
//! ```text
//! <!-- copy of: crates/NAME/examples/one.rs -->
//! ```
//!
//! mdBook could include such files, but then readers of the plain pages would not see the code.

use std::collections::BTreeSet;

use super::markdown::{prose, resolve, targets};
use super::tree::{Tree, Violation};

const SUMMARY: &str = "docs/SUMMARY.md";
const BOOK: &str = "docs/";
const GUIDE: &str = "docs/guide/";
const COPY: &str = "<!-- copy of: ";

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let Some(summary) = tree.get(SUMMARY) else {
        return vec![Violation::of_file(SUMMARY, "the table of contents of the book is missing")];
    };
    let entries: Vec<(usize, String)> = prose(summary)
        .flat_map(|(index, line)| targets(line).map(move |target| (index, target)))
        .map(|(index, target)| (index, resolve(SUMMARY, target)))
        .collect();
    let mut chapters = BTreeSet::new();
    let mut found = Vec::new();
    for (index, path) in &entries {
        if !chapters.insert(path.as_str()) {
            let message = format!("{path} is listed twice");
            found.push(Violation::of_line(SUMMARY, *index, message));
        }
    }
    let pages = tree.files().filter(|(path, _)| path.ends_with(".md"));
    for (path, text) in pages {
        if path.starts_with(GUIDE) && !chapters.contains(path) {
            found.push(Violation::of_file(path, format!("{SUMMARY} does not list this page")));
        }
        if chapters.contains(path) {
            found.extend(links_outside(path, text, &chapters));
        }
        found.extend(copies(tree, path, text));
    }
    found
}

/// Finds links to pages that are not chapters, and links to files that mdBook does not copy.
fn links_outside<'a>(
    page: &'a str,
    text: &'a str,
    chapters: &'a BTreeSet<&str>,
) -> impl Iterator<Item = Violation> + 'a {
    let links = prose(text).flat_map(|(index, line)| targets(line).map(move |one| (index, one)));
    links.filter_map(move |(index, target)| {
        let file = target.split_once('#').map_or(target, |(file, _)| file);
        if file.is_empty() || target.contains("://") {
            return None;
        }
        let path = resolve(page, file);
        let is_page = path.ends_with(".md");
        let is_inside = if is_page { chapters.contains(&*path) } else { path.starts_with(BOOK) };
        let message = format!("the link leads out of the book: {target}");
        (!is_inside).then(|| Violation::of_line(page, index, message))
    })
}

/// Finds code fences that differ from the file that they copy.
fn copies(tree: &Tree, page: &str, text: &str) -> Vec<Violation> {
    let lines: Vec<&str> = text.lines().collect();
    let starts = lines.iter().enumerate().filter_map(|(index, line)| {
        let source = line.strip_prefix(COPY)?.strip_suffix(" -->")?;
        Some((index, source))
    });
    let differs = |(index, source): &(usize, &str)| {
        let fence = lines.get(index + 2..).unwrap_or_default();
        let length = fence.iter().position(|line| line.starts_with("```")).unwrap_or_default();
        let original = tree.get(source).map(|text| text.lines().collect::<Vec<_>>());
        original.as_deref() != Some(&fence[..length])
    };
    let message = |source| format!("the code below differs from {source}; copy it again");
    starts
        .filter(differs)
        .map(|(index, source)| Violation::of_line(page, index, message(source)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        let summary = "- [A](guide/a.md)\n- [B](b.md)\n";
        for (summary, page, count) in [
            (summary, "[b](../b.md) [web](https://example.org/x.md) [pic](../p.svg) [up](#a)", 0),
            (summary, "[code](../../x.rs)", 1),
            (summary, "[c](../c.md)", 1),
            ("- [A](guide/a.md)\n- [B](b.md)\n- [A again](./guide/a.md)\n", "", 1),
            ("- [B](b.md)\n", "[code](../../x.rs)", 1),
            (summary, "<!-- copy of: x.rs -->\n```rust\none\ntwo\n```\n", 0),
            (summary, "<!-- copy of: x.rs -->\n```rust\none\n```\n", 1),
            (summary, "<!-- copy of: gone.rs -->\n```rust\none\n```\n", 1),
            (summary, "<!-- copy of: x.rs -->", 1),
        ] {
            let tree = Tree::of(&[
                (SUMMARY, summary),
                ("docs/guide/a.md", page),
                ("docs/b.md", ""),
                ("docs/c.md", "[x](../x.rs)"),
                ("x.rs", "one\ntwo\n"),
            ]);
            assert_eq!(run(&tree).len(), count, "{summary} {page}");
        }
        assert_eq!(run(&Tree::of(&[])).len(), 1);
    }
}
