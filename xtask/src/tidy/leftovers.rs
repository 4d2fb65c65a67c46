//! Sources contain no notes about work left to do. It belongs in an issue, which others can see.

use super::tree::{Tree, Violation, has_word, lines_of};

/// Written in two parts, because this file would contain them otherwise.
const WORDS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

const SUFFIXES: &[&str] = &[".rs", ".toml", ".md", ".html"];

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let checked = |path: &str| SUFFIXES.iter().any(|suffix| path.ends_with(suffix));
    let files = tree.files().filter(|(path, _)| checked(path));
    let found = |(path, index, line): (&str, usize, &str)| {
        let word = WORDS.iter().find(|word| has_word(line, word))?;
        Some(Violation::of_line(path, index, format!("{word}: do it, or write an issue")))
    };
    lines_of(files).filter_map(found).collect()
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
        let template = format!("mkstemp(\"a{}\")", "X".repeat(6));
        assert!(run(&Tree::of(&[("a.rs", &template)])).is_empty());
    }
}
