//! Checks that the tables of exit codes in README.md and the guide match the program.

use super::tree::{Tree, Violation};

const CODE: &str = "crates/fslab/src/exit.rs";
const TABLES: &[&str] = &["README.md", "docs/guide/src/reference/exit-codes.md"];

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let codes: Vec<_> = tree.get(CODE).unwrap_or_default().lines().filter_map(code).collect();
    TABLES
        .iter()
        .flat_map(|page| {
            let listed: Vec<_> =
                tree.get(page).unwrap_or_default().lines().filter_map(row).collect();
            compare(page, &codes, &listed)
        })
        .collect()
}

fn compare(page: &str, codes: &[u8], listed: &[u8]) -> Vec<Violation> {
    let missing = codes.iter().filter(|code| !listed.contains(code));
    let extra = listed.iter().filter(|code| !codes.contains(code));
    let missing = missing.map(|code| format!("does not list exit code {code}"));
    let extra = extra.map(|code| format!("lists exit code {code}, which the program does not use"));
    missing.chain(extra).map(|message| Violation::of_file(page, message)).collect()
}

/// Returns the number in a line such as `BadInput = 3,`.
fn code(line: &str) -> Option<u8> {
    let (name, number) = line.trim().strip_suffix(',')?.split_once(" = ")?;
    let is_variant = name.chars().all(char::is_alphanumeric);
    number.parse().ok().filter(|_| is_variant)
}

/// Returns the number in a row such as `| 3 | what was given ... |`.
fn row(line: &str) -> Option<u8> {
    line.strip_prefix('|')?.split('|').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        let code = "pub enum Code {\n    Success = 0,\n    Failure = 1,\n}\n";
        let good = "| code | meaning |\n|---|---|\n| 0 | done |\n| 1 | failed |\n";
        for (readme, count) in
            [(good, 0), ("| 0 | done |\n", 1), (&format!("{good}| 7 | what |\n"), 1), ("", 2)]
        {
            let tree = Tree::of(&[
                (CODE, code),
                ("README.md", readme),
                ("docs/guide/src/reference/exit-codes.md", good),
            ]);
            assert_eq!(run(&tree).len(), count, "{readme}");
        }
    }
}
