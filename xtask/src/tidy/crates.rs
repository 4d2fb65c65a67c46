//! Checks that ARCHITECTURE.md mentions every crate and has fewer than 300 lines.

use super::tree::{Tree, Violation, has_word};

const MAP: &str = "ARCHITECTURE.md";
const MAP_LINES_MAX: usize = 300;

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let map = tree.get(MAP).unwrap_or_default();
    let missing = tree.manifests().filter(|(_, name, _)| !has_word(map, name));
    let mut violations: Vec<_> = missing
        .map(|(_, name, _)| Violation::of_file(MAP, format!("does not mention {name}")))
        .collect();
    let lines = map.lines().count();
    if lines >= MAP_LINES_MAX {
        violations
            .push(Violation::of_file(MAP, format!("{lines} lines: too long for an overview")));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        let manifest = ("crates/fslab-vfs/Cargo.toml", "");
        for (map, count) in [
            ("`fslab-vfs` is", 0),
            ("fslab-vfsx", 1),
            ("", 1),
            (&format!("fslab-vfs{}", "\n".repeat(MAP_LINES_MAX)), 1),
        ] {
            assert_eq!(run(&Tree::of(&[manifest, (MAP, map)])).len(), count);
        }
    }
}
