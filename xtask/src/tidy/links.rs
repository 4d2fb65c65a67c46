//! Checks that links between documents lead to existing files and headings.

use super::markdown::{anchors, prose, resolve, targets};
use super::tree::{Tree, Violation};

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let pages = tree.files().filter(|(path, _)| path.ends_with(".md"));
    let links = pages.flat_map(|(path, text)| {
        prose(text)
            .flat_map(move |(index, line)| targets(line).map(move |target| (path, index, target)))
    });
    links
        .filter_map(|(path, index, target)| {
            let fault = fault(tree, path, target)?;
            Some(Violation::of_line(path, index, format!("{fault}: {target}")))
        })
        .collect()
}

/// Returns the fault of a link; `None` if its target exists.
fn fault(tree: &Tree, page: &str, target: &str) -> Option<&'static str> {
    if target.contains("://") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { page.to_owned() } else { resolve(page, file) };
    let folder = format!("{}/", path.trim_end_matches('/'));
    if !tree.has(&path) && !tree.files().any(|(name, _)| name.starts_with(&folder)) {
        return Some("no such file");
    }
    let is_missing = |text: &str| !heading.is_empty() && !anchors(text).contains(heading);
    tree.get(&path).is_some_and(is_missing).then_some("no such heading")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        for (line, count) in [
            ("[b](b.md) and [top](../README.md#set-up)", 0),
            ("[web](https://example.org/x.md#y)", 0),
            ("# Section\n[here](#section) [folder](../docs)", 0),
            ("```sh\n[code](gone.md)\n```", 0),
            ("[gone](gone.md)", 1),
            ("[here](#section) and [there](../README.md#setup)", 2),
            ("[b](./b.md), [gone](../b.md) and [gone](x/b.md)", 2),
        ] {
            let tree = [("docs/a.md", line), ("docs/b.md", ""), ("README.md", "## Set up\n")];
            assert_eq!(run(&Tree::of(&tree)).len(), count, "{line}");
        }
    }
}
