//! Finds code that compiles the absolute path of the git clone into a program. Clones that share a
//! build folder share built programs, and cargo does not notice that another clone has another
//! path. Tests run in their package's folder, so relative paths work.

use super::tree::{Tree, Violation, lines_of};

const WORDS: &str = "env!(\"CARGO_MANIFEST_DIR\")";

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let sources = tree.rust().filter(|(path, _)| path.starts_with("crates/"));
    let broken = lines_of(sources).filter(|(_, _, line)| line.contains(WORDS));
    let message = "use a path relative to the package's folder";
    broken.map(|(path, index, _)| Violation::of_line(path, index, message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        let source = format!("let golden = {WORDS};\nlet other = \"tests/golden\";\n");
        assert_eq!(run(&Tree::of(&[("crates/a/tests/it/b.rs", &source)])).len(), 1);
        assert_eq!(run(&Tree::of(&[("xtask/src/a.rs", &source)])).len(), 0);
    }
}
