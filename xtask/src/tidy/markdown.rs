//! Finds the links, headings and lines of prose in a Markdown page.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the lines outside code fences, with their indices from 0.
pub fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the targets of the links in a line, such as `file.md#heading` in
/// `[text](file.md#heading)`.
pub fn targets(line: &str) -> impl Iterator<Item = &str> {
    let links = line.split("](").skip(1);
    links.filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

/// Returns the anchors that code hosts and mdBook give to the headings of a page.
pub fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts = BTreeMap::<String, usize>::new();
    let headings = prose(text).filter_map(|(_, line)| {
        let level = line.chars().take_while(|character| *character == '#').count();
        let heading = line.get(level..)?.strip_prefix(' ')?;
        (1..=6).contains(&level).then_some(heading)
    });
    let numbered = headings.map(|heading| {
        let anchor = anchor(heading);
        let count = counts.entry(anchor.clone()).or_default();
        *count += 1;
        if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
    });
    numbered.collect()
}

/// Returns the anchor of a heading. It has letters in lower case, digits, `_` and `-`. Blanks
/// become `-`, and other characters are removed.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '_' | '-' => Some(character),
        _ => character.is_alphanumeric().then_some(character),
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Returns the path of a linked file, relative to the project's root. `page` is the path of the
/// page with the link.
pub fn resolve(page: &str, file: &str) -> String {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<_> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/').filter(|part| !part.is_empty()) {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_no_links_and_no_headings() {
        let page = "# One\n```sh\n# no heading\n```\n## `two` -- Three?\n# One\n";
        let anchors = anchors(page).into_iter().collect::<Vec<_>>();
        assert_eq!(anchors, ["one", "one-1", "two----three"]);
        assert_eq!(prose(page).map(|(index, _)| index).collect::<Vec<_>>(), [0, 4, 5]);
    }

    #[test]
    fn paths_are_resolved_from_the_page() {
        for (page, file, path) in [
            ("docs/a/b.md", "../c.md", "docs/c.md"),
            ("a.md", "./docs/c.md", "docs/c.md"),
            ("docs/a.md", "../..", ""),
        ] {
            assert_eq!(resolve(page, file), path, "{page} {file}");
        }
    }
}
