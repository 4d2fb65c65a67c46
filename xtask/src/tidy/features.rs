//! Checks that an existing test is listed for every FUSE feature requested from the kernel.

use super::semantics::Tests;
use super::tree::{Tree, Violation};

const LIST: &str = "crates/fslab-fuse/src/features.rs";

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let list = tree.get(LIST).unwrap_or_default();
    let names = list.lines().enumerate().filter_map(|(index, line)| Some((index, test(line)?)));
    let tests = Tests::of(tree);
    names
        .filter(|(_, name)| !tests.exists(name))
        .map(|(index, name)| Violation::of_line(LIST, index, format!("there is no test {name}")))
        .collect()
}

/// Returns the name in a line `test: "NAME",`.
fn test(line: &str) -> Option<&str> {
    line.trim().strip_prefix("test: \"")?.strip_suffix("\",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        let source = "#[test]\nfn reads_back() {}";
        for (list, count) in [
            ("pub test: &'static str,\n", 0),
            ("    test: \"fslab_fuse::reads_back\",\n", 0),
            ("    test: \"fslab_fuse::features::reads_back\",\n", 0),
            ("    test: \"fslab_fuse::reads\",\n    test: \"fslab_vfs::reads_back\",\n", 2),
        ] {
            let tree = Tree::of(&[(LIST, list), ("crates/fslab-fuse/tests/it/a.rs", source)]);
            assert_eq!(run(&tree).len(), count, "{list}");
        }
    }
}
