//! Links between documents lead to files that exist.

use super::tree::{Tree, Violation, lines_of};

/// Finds what breaks the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let pages = tree.files().filter(|(path, _)| path.ends_with(".md"));
    lines_of(pages)
        .flat_map(|(path, index, line)| targets(line).map(move |target| (path, index, target)))
        .filter(|(path, _, target)| !leads_somewhere(tree, path, target))
        .map(|(path, at, target)| Violation::of_line(path, at, format!("no such file: {target}")))
        .collect()
}

/// What stands in the round brackets of `[text](target)`, and what mdBook includes.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let links = line.split("](").skip(1);
    let links = links.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let includes = line.split("{{#include ").skip(1);
    links.chain(includes.filter_map(|rest| rest.split_once("}}").map(|(target, _)| target)))
}

fn leads_somewhere(tree: &Tree, page: &str, target: &str) -> bool {
    let file = target.split_once('#').map_or(target, |(file, _)| file);
    if file.is_empty() || file.contains("://") {
        return true;
    }
    let path = resolve(page, file);
    let folder = format!("{}/", path.trim_end_matches('/'));
    tree.has(&path) || tree.files().any(|(name, _)| name.starts_with(&folder))
}

fn resolve(page: &str, target: &str) -> String {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<_> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/').filter(|part| !part.is_empty()) {
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
    fn planted_violations_are_found() {
        for (line, count) in [
            ("[b](b.md) and [top](../README.md#setup)", 0),
            ("[web](https://example.org/x.md)", 0),
            ("[here](#section) [folder](../docs)", 0),
            ("[gone](gone.md)", 1),
            ("{{#include b.md}} and {{#include gone.rs}}", 1),
            ("[b](./b.md), [gone](../b.md) and [gone](x/b.md)", 2),
        ] {
            let tree = Tree::of(&[("docs/a.md", line), ("docs/b.md", ""), ("README.md", "")]);
            assert_eq!(run(&tree).len(), count, "{line}");
        }
    }
}
