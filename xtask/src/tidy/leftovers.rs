//! Checks that sources and documents contain no notes about unfinished work and no merge conflicts.
//! Unfinished work belongs in an issue, where others can see it.

use super::tree::{Tree, Violation, has_word, lines_of};

/// Each word is written in two parts, so that this file does not contain it.
const WORDS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// The first line of a merge conflict starts with seven of the first character, and its last line
/// with seven of the second.
const CONFLICTS: [char; 2] = ['<', '>'];

const SUFFIXES: &[&str] = &[".rs", ".toml", ".md", ".html"];

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let checked = |path: &str| SUFFIXES.iter().any(|suffix| path.ends_with(suffix));
    let files = tree.files().filter(|(path, _)| checked(path));
    let found = |(path, index, line): (&str, usize, &str)| {
        let problem = match WORDS.iter().find(|word| has_word(line, word)) {
            Some(word) => format!("{word}: finish the work, or write an issue"),
            None if is_conflict(line) => "a merge conflict: resolve it".to_owned(),
            None => return None,
        };
        Some(Violation::of_line(path, index, problem))
    };
    lines_of(files).filter_map(found).collect()
}

fn is_conflict(line: &str) -> bool {
    CONFLICTS.iter().any(|mark| line.starts_with(&format!("{} ", mark.to_string().repeat(7))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        for word in WORDS {
            let text = format!("fn f() {{}} // {word}: later\n");
            assert_eq!(run(&Tree::of(&[("a.rs", &text)])).len(), 1, "{text}");
            assert_eq!(run(&Tree::of(&[("docs/a.md", &text)])).len(), 1, "{text}");
            assert_eq!(run(&Tree::of(&[("a.bin", &text)])).len(), 0, "{text}");
        }
        for mark in CONFLICTS {
            let text = format!("before\n{} main\n", mark.to_string().repeat(7));
            assert_eq!(run(&Tree::of(&[("docs/a.md", &text)])).len(), 1, "{text}");
        }
        let template = format!("mkstemp(\"a{}\")", "X".repeat(6));
        assert!(run(&Tree::of(&[("a.rs", &template)])).is_empty());
    }
}
