//! Checks that Rust files have at most 800 lines of at most 100 columns, and contain only ASCII.

use super::tree::{Tree, Violation};

const LINES_MAX: usize = 800;
const COLUMNS_MAX: usize = 100;

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    tree.rust().flat_map(|(path, text)| file(path, text)).collect()
}

fn file(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        // A URL can't be broken into lines.
        if columns > COLUMNS_MAX && !line.contains("://") {
            let message = format!("{columns} columns; the limit is {COLUMNS_MAX}");
            violations.push(Violation::of_line(path, index, message));
        }
        if let Some(character) = line.chars().find(|character| !character.is_ascii()) {
            let message = format!("not ASCII: {}", character.escape_unicode());
            violations.push(Violation::of_line(path, index, message));
        }
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        let message = format!("{lines} lines; split it, the limit is {LINES_MAX}");
        violations.push(Violation::of_file(path, message));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        let long_file = "\n".repeat(LINES_MAX + 1);
        let long_line = "x".repeat(COLUMNS_MAX + 1);
        for (text, count) in [
            ("fn main() {}\n", 0),
            (&"\n".repeat(LINES_MAX), 0),
            (&long_file, 1),
            (&"x".repeat(COLUMNS_MAX), 0),
            (&long_line, 1),
            (&format!("// https://{long_line}"), 0),
            ("let a = '\u{e4}';", 1),
        ] {
            assert_eq!(run(&Tree::of(&[("a.rs", text)])).len(), count, "{text:?}");
        }
        assert!(run(&Tree::of(&[("a.md", &long_line)])).is_empty());
    }
}
