//! Checks that every promise in docs/SEMANTICS.md lists existing tests.
//!
//! A promise is a bullet, which must end with `[test: NAME, ...]`. A name may be qualified
//! (`fslab_vfs::host::tests::name`). Bullets below a heading that contains "Planned" are not
//! promises yet. A test exists if a Rust source defines `fn NAME` or contains the string "NAME".
//! The registries of conformance cases and external suites contain such strings.

use super::tree::{Tree, Violation, has_word};

const PAGE: &str = "docs/SEMANTICS.md";

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let page = tree.get(PAGE).unwrap_or_default();
    let promises = promises(page);
    promises.iter().flat_map(|(index, promise)| check(tree, *index, promise)).collect()
}

/// Returns the promises, each on one line, with the index of its first line.
fn promises(page: &str) -> Vec<(usize, String)> {
    let mut promises: Vec<(usize, String)> = Vec::new();
    let (mut planned, mut in_bullet) = (false, false);
    for (index, line) in page.lines().enumerate() {
        if line.starts_with('#') {
            planned = line.contains("Planned");
        }
        let continues = in_bullet && line.starts_with("  ");
        in_bullet = continues || line.starts_with("- ");
        if planned || !in_bullet {
            continue;
        }
        match promises.last_mut().filter(|_| continues) {
            Some((_, text)) => text.push_str(&format!(" {}", line.trim())),
            None => promises.push((index, line.trim().to_owned())),
        }
    }
    promises
}

fn check(tree: &Tree, index: usize, promise: &str) -> Vec<Violation> {
    let lists: Vec<&str> = promise.split("[test: ").skip(1).collect();
    let ends_with_list = |last: &&str| last.find(']').map(|at| at + 1) == Some(last.len());
    if !lists.last().is_some_and(ends_with_list) || lists.iter().any(|list| !list.contains(']')) {
        return vec![Violation::of_line(PAGE, index, "does not end with `[test: NAME]`")];
    }
    // A promise of several sentences may have a list after each sentence.
    let names = lists.iter().filter_map(|list| Some(list.split_once(']')?.0.split(", ")));
    let missing = names.flatten().filter(|name| !exists(tree, name.trim_matches('`')));
    let message = |name| format!("there is no test {name}");
    missing.map(|name| Violation::of_line(PAGE, index, message(name))).collect()
}

/// Whether a test with this name exists. The crate of a qualified name must match.
pub fn exists(tree: &Tree, name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    let function = format!("fn {last}");
    let literal = format!("\"{last}\"");
    // A qualified name is searched for only in its crate.
    let folder = name.split_once("::").map(|(root, _)| root.replace('_', "-") + "/");
    let is_in = |path: &str, folder| path.trim_start_matches("crates/").starts_with(folder);
    let sources =
        tree.rust().filter(|(path, _)| folder.as_deref().is_none_or(|folder| is_in(path, folder)));
    let sources: Vec<_> = sources.map(|(_, text)| text).collect();
    // Few names are only in literals, so the functions are searched first.
    sources.iter().any(|text| has_word(text, &function))
        || sources.iter().any(|text| text.contains(&literal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        let source =
            "#[test]\nfn reads_back() {}\nconst C: Case = Case { name: \"rename-exchange\" };";
        for (page, count) in [
            ("# Title\nProse promises nothing.\n", 0),
            ("- Reads. [test: reads_back]\n", 0),
            ("- Reads\n  what was\n  written. [test: reads_back, rename-exchange]\n", 0),
            ("- Reads. [test: fslab_vfs::host::reads_back]\n", 0),
            ("- Reads. [test: fslab_fuse::reads_back]\n", 1),
            ("- Reads. [test: reads]\n", 1),
            ("- Reads.\n", 1),
            ("- Reads. [test: reads_back] And writes.\n", 1),
            ("- Reads. [test: reads_back] Writes. [test: reads_back]\n", 0),
            ("- Reads. [test: lost] Writes. [test: reads_back]\n", 1),
            ("- Reads. [test: reads_back Writes. [test: reads_back]\n", 1),
            ("- Reads. [test: \n   \n", 1),
            ("- Reads. [test: reads_back, gone, lost]\n", 2),
            ("## Planned\n- Reads.\n", 0),
            ("## Planned\n- Reads.\n## Now\n- Writes.\n", 1),
        ] {
            let tree = Tree::of(&[(PAGE, page), ("crates/fslab-vfs/src/host.rs", source)]);
            assert_eq!(run(&tree).len(), count, "{page}");
        }
    }
}
