//! Every subcommand is documented: README.md or the guide shows `fslab NAME`.

use super::Check;
use super::tree::{Tree, Violation, has_word};

/// The check.
pub const CHECK: Check =
    Check { name: "commands", help: "README.md or the guide shows every subcommand", run };

const COMMANDS: &str = "crates/fslab/src/commands/";

fn run(tree: &Tree) -> Vec<Violation> {
    let documented = |name: &str| {
        let call = format!("fslab {}", name.replace('_', "-"));
        let mut pages = tree.files().filter(|(path, _)| is_for_users(path));
        pages.any(|(_, text)| has_word(text, &call))
    };
    tree.rust()
        .filter_map(|(path, _)| {
            let name = path.strip_prefix(COMMANDS)?.strip_suffix(".rs")?;
            let undocumented = !name.contains('/') && !documented(name);
            let message = format!("neither README.md nor the guide shows `fslab {name}`");
            undocumented.then(|| Violation::of_file(path, message))
        })
        .collect()
}

fn is_for_users(path: &str) -> bool {
    path == "README.md" || path.starts_with("docs/guide/") && path.ends_with(".md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        let list = "crates/fslab/src/commands/list.rs";
        let dry_run = "crates/fslab/src/commands/dry_run.rs";
        for (path, page, text, count) in [
            (list, "README.md", "run `fslab list`", 0),
            (list, "docs/guide/src/a.md", "fslab list --json", 0),
            (list, "docs/decisions/0001.md", "fslab list", 1),
            (list, "README.md", "fslab listing", 1),
            (dry_run, "README.md", "fslab dry-run", 0),
            (dry_run, "README.md", "", 1),
            ("crates/fslab/src/commands/list/rows.rs", "README.md", "", 0),
        ] {
            assert_eq!(run(&Tree::of(&[(path, ""), (page, text)])).len(), count, "{path} {text}");
        }
    }
}
