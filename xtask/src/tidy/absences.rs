//! Finds unsafe code outside fslab-sys, and output to the terminal in libraries. Also finds uses of
//! clocks and random sources in crates that get times and seeds as parameters.

use super::tree::{RustLexer, Tree, Violation, has_word};

/// Words that code must not use.
struct Absence {
    words: &'static [&'static str],
    /// Whether the rule applies to a path.
    within: fn(&str) -> bool,
    message: &'static str,
}

const ABSENCES: &[Absence] = &[
    Absence {
        words: &["unsafe"],
        within: |path| !path.starts_with("crates/fslab-sys/"),
        message: "unsafe code belongs in fslab-sys",
    },
    Absence {
        words: &["SystemTime::now", "Instant::now", "thread_rng", "rand::rng", "rand::random"],
        within: |path| source_crate(path).is_some_and(|name| DETERMINISTIC.contains(&name)),
        message: "this crate must get the clock and the random source as parameters",
    },
    Absence {
        words: &["println!", "eprintln!", "print!", "eprint!"],
        within: is_library,
        message: "libraries must not print; only the fslab command may print",
    },
];

const DETERMINISTIC: &[&str] =
    &["fslab-layers", "fslab-sca", "fslab-tier", "fslab-ext2", "fslab-age"];

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    tree.rust().flat_map(|(path, text)| file(path, text)).collect()
}

fn file(path: &str, text: &str) -> Vec<Violation> {
    let rules: Vec<_> = ABSENCES.iter().filter(|absence| (absence.within)(path)).collect();
    let mut violations = Vec::new();
    // A file with this name contains only tests.
    let mut in_tests = path.ends_with("/tests.rs");
    let mut lexer = RustLexer::default();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        // If the module's declaration ends with `;`, its code is in another file.
        let is_elsewhere = lines.peek().is_some_and(|(_, next)| next.trim_end().ends_with(';'));
        in_tests |= line.trim_start().starts_with("#[cfg(test)]") && !is_elsewhere;
        let code = lexer.split(line).code;
        let broken = |absence: &&&Absence| absence.is_broken_by(&code, in_tests);
        let broken = rules.iter().filter(broken);
        violations.extend(broken.map(|rule| Violation::of_line(path, index, rule.message)));
    }
    violations
}

impl Absence {
    /// Returns whether code breaks the rule. Tests may use clocks and print, but no unsafe code.
    fn is_broken_by(&self, code: &str, in_tests: bool) -> bool {
        let holds_in_tests = self.words == ["unsafe"];
        (holds_in_tests || !in_tests) && self.words.iter().any(|word| names(code, word))
    }
}

fn names(code: &str, word: &str) -> bool {
    match word.strip_suffix('!') {
        Some(name) => code.contains(word) && has_word(code, name),
        None => has_word(code, word),
    }
}

/// Returns whether a file belongs to a library. Test doubles and conformance suites are excluded,
/// because only test programs use them, which may print.
fn is_library(path: &str) -> bool {
    let is_library = |name: &str| name != "fslab" && !name.ends_with("-testing");
    let library = source_crate(path).is_some_and(is_library);
    library && !path.contains("/src/testing")
}

/// Returns the crate of a file below `crates/NAME/src`.
fn source_crate(path: &str) -> Option<&str> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    rest.starts_with("src/").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        for (path, text, count) in [
            ("crates/fslab-vfs/src/a.rs", "unsafe { f() }", 1),
            ("crates/fslab-vfs/src/a.rs", "// unsafe is not here\nf(\"unsafe\")", 0),
            ("crates/fslab-vfs/src/a.rs", "#![forbid(unsafe_code)]", 0),
            ("crates/fslab-sys/src/a.rs", "unsafe { f() }", 0),
            ("crates/fslab-layers/src/a.rs", "let now = SystemTime::now();", 1),
            ("crates/fslab-compare/src/a.rs", "let now = Instant::now();", 0),
            ("crates/fslab-layers/src/a.rs", "#[cfg(test)]\nmod a {\nInstant::now();", 0),
            ("crates/fslab-layers/src/a.rs", "#[cfg(test)]\nmod a;\nInstant::now();", 1),
            ("crates/fslab-vfs/src/a.rs", "eprintln!(\"x\");", 1),
            ("crates/fslab-vfs/src/a.rs", "#[cfg(test)]\nmod a {\nunsafe {}", 1),
            ("crates/fslab-vfs-testing/src/skip.rs", "eprintln!(\"x\");", 0),
            ("crates/fslab-vfs/tests/it/main.rs", "println!(\"x\");", 0),
            ("crates/fslab-vfs/src/a/tests.rs", "println!(\"x\");", 0),
            ("crates/fslab/src/a.rs", "println!(\"x\");", 0),
        ] {
            assert_eq!(run(&Tree::of(&[(path, text)])).len(), count, "{path}: {text}");
        }
    }
}
