//! Checks that every promise in docs/SEMANTICS.md lists existing tests.
//!
//! A promise is a bullet, which must end with `[test: NAME, ...]`. A name may be qualified
//! (`fslab_vfs::host::tests::name`). Bullets below a heading that contains "Planned" are not
//! promises yet. A test exists if a Rust source defines `fn NAME` or contains the string "NAME".
//! The registries of conformance cases and external suites contain such strings.

use std::collections::HashMap;

use super::tree::{Tree, Violation, is_name_character};

const PAGE: &str = "docs/SEMANTICS.md";

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let page = tree.get(PAGE).unwrap_or_default();
    let (promises, tests) = (promises(page), Tests::of(tree));
    promises.iter().flat_map(|(index, promise)| check(&tests, *index, promise)).collect()
}

/// Returns the promises, each joined into one line, with the index of its first line.
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

fn check(tests: &Tests, index: usize, promise: &str) -> Vec<Violation> {
    let lists: Vec<&str> = promise.split("[test: ").skip(1).collect();
    let ends_with_list = |last: &&str| last.find(']').map(|at| at + 1) == Some(last.len());
    if !lists.last().is_some_and(ends_with_list) || lists.iter().any(|list| !list.contains(']')) {
        return vec![Violation::of_line(PAGE, index, "does not end with `[test: NAME]`")];
    }
    // A promise with several sentences may have a list of tests after each sentence.
    let names = lists.iter().filter_map(|list| Some(list.split_once(']')?.0.split(", ")));
    let missing = names.flatten().filter(|name| !tests.exists(name.trim_matches('`')));
    let message = |name| format!("there is no test {name}");
    missing.map(|name| Violation::of_line(PAGE, index, message(name))).collect()
}

/// The functions of all Rust sources by name, with the files that define them.
pub struct Tests<'a> {
    tree: &'a Tree,
    functions: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> Tests<'a> {
    /// Collects the functions.
    pub fn of(tree: &'a Tree) -> Self {
        let mut functions: HashMap<_, Vec<_>> = HashMap::new();
        for (path, text) in tree.rust() {
            for (start, keyword) in text.match_indices("fn ") {
                let rest = &text[start + keyword.len()..];
                let end = rest.find(|c: char| !is_name_character(c)).unwrap_or(rest.len());
                if !text[..start].ends_with(is_name_character) {
                    functions.entry(&rest[..end]).or_default().push(path);
                }
            }
        }
        Self { tree, functions }
    }

    /// Returns whether a test with this name exists. The crate of a qualified name must match.
    pub fn exists(&self, name: &str) -> bool {
        let last = name.rsplit("::").next().unwrap_or(name);
        let folder = name.split_once("::").map(|(root, _)| root.replace('_', "-") + "/");
        let may_be_in = |path: &str| {
            let inner = path.trim_start_matches("crates/");
            folder.as_deref().is_none_or(|folder| inner.starts_with(folder))
        };
        let literal = format!("\"{last}\"");
        self.functions.get(last).is_some_and(|paths| paths.iter().any(|path| may_be_in(path)))
            || self.tree.rust().any(|(path, text)| may_be_in(path) && text.contains(&literal))
    }
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
