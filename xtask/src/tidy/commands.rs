//! Checks that every subcommand is documented: README.md or the guide must show `fslab NAME`.

use super::tree::{Tree, Violation, has_word};

const COMMANDS: &str = "crates/fslab/src/commands.rs";

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let documented = |name: &str| {
        let call = format!("fslab {}", name.replace('_', "-"));
        tree.files_for_users().any(|(_, text)| has_word(text, &call))
    };
    let list = tree.get(COMMANDS).unwrap_or_default().lines().enumerate();
    list.filter_map(|(index, line)| Some((index, subcommand(line)?)))
        .filter(|(_, name)| !documented(name))
        .map(|(index, name)| {
            let message = format!("neither README.md nor the guide shows `fslab {name}`");
            Violation::of_line(COMMANDS, index, message)
        })
        .collect()
}

/// Returns the module of a subcommand from a line such as `List(list::Args),`.
fn subcommand(line: &str) -> Option<&str> {
    line.trim().strip_suffix("::Args),")?.split_once('(').map(|(_, module)| module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        let list = "enum Command {\n    /// List\n    List(list::Args),\n}";
        let dry_run = "    DryRun(dry_run::Args),";
        for (code, page, text, count) in [
            (list, "README.md", "run `fslab list`", 0),
            (list, "docs/guide/src/a.md", "fslab list --json", 0),
            (list, "docs/decisions/0001.md", "fslab list", 1),
            (list, "README.md", "fslab listing", 1),
            (dry_run, "README.md", "fslab dry-run", 0),
            (dry_run, "README.md", "", 1),
            ("mod fstab;", "README.md", "", 0),
        ] {
            assert_eq!(
                run(&Tree::of(&[(COMMANDS, code), (page, text)])).len(),
                count,
                "{code} {text}"
            );
        }
    }
}
