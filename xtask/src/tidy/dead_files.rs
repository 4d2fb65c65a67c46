//! Checks that every Rust file is compiled: a `mod` declares it, or cargo finds it by its path.

use std::collections::BTreeSet;

use super::tree::{Tree, Violation};

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let named: BTreeSet<_> = tree.rust().flat_map(|(path, text)| children(path, text)).collect();
    tree.rust()
        .filter(|(path, _)| !is_root(path) && !named.contains(*path))
        .map(|(path, _)| Violation::of_file(path, "no `mod` declares this file"))
        .collect()
}

/// Returns whether cargo finds the file without a `mod`.
fn is_root(path: &str) -> bool {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let place = folder.rsplit('/').next().unwrap_or("");
    let own_program = ["bin", "tests", "benches", "examples", "fuzz_targets"].contains(&place);
    own_program || ["lib.rs", "main.rs", "build.rs"].contains(&file)
}

/// Returns the files that the `mod name;` lines of a file may declare.
fn children(path: &str, text: &str) -> Vec<String> {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let folder =
        if is_root(path) { stem.rsplit_once('/').map_or("", |(folder, _)| folder) } else { stem };
    let both = |name: &str| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
    text.lines().filter_map(declared).flat_map(both).collect()
}

/// Returns the name in a line such as `pub(crate) mod name;`.
fn declared(line: &str) -> Option<&str> {
    let (before, name) = line.trim().strip_suffix(';')?.rsplit_once(' ')?;
    (before == "mod" || before.starts_with("pub") && before.ends_with(" mod")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "pub(crate) mod b;\nmod c;\n// mod dead;\nmod t {}\n"),
            ("crates/a/src/b.rs", "    pub mod deep;\n"),
            ("crates/a/src/b/deep.rs", ""),
            ("crates/a/src/c/mod.rs", ""),
            ("crates/a/src/dead.rs", ""),
            ("crates/a/src/b/dead.rs", ""),
            ("crates/a/src/deep.rs", ""),
            ("crates/a/tests/it/main.rs", "mod reads;"),
            ("crates/a/tests/it/reads.rs", ""),
            ("crates/a/tests/it/dead.rs", ""),
            ("crates/a/benches/speed.rs", ""),
        ]);
        let found: Vec<_> = run(&tree).into_iter().map(|violation| violation.path).collect();
        let expected = [
            "crates/a/src/b/dead.rs",
            "crates/a/src/dead.rs",
            "crates/a/src/deep.rs",
            "crates/a/tests/it/dead.rs",
        ];
        assert_eq!(found, expected);
    }
}
