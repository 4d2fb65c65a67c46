//! Checks that no file contains the name of a package registry, because users configure the source
//! of packages themselves.

use super::tree::{Tree, Violation, lines_of};

/// Each name is written in two parts, so that this file does not contain it.
const HOSTS: &[&str] = &[concat!("crates", ".io"), concat!("py", "pi"), concat!("registry", ".")];

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    // Cargo writes its own registry into the lock file.
    let files = tree.files().filter(|(path, _)| !path.ends_with("Cargo.lock"));
    let found = |(path, index, line): (&str, usize, &str)| {
        let line = line.to_lowercase();
        let host = HOSTS.iter().find(|host| names(&line, host))?;
        Some(Violation::of_line(
            path,
            index,
            format!("contains the name of a package registry: {host}"),
        ))
    };
    lines_of(files).filter_map(found).collect()
}

/// Returns whether a line contains a host name. A name that ends with a dot must be followed by a
/// label and another dot. Otherwise `registry.rs`, a file of the project, and "the registry." at
/// the end of a sentence would match.
fn names(line: &str, host: &str) -> bool {
    line.match_indices(host).any(|(start, _)| {
        let rest = &line[start + host.len()..];
        let label = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next();
        let label = label.unwrap_or("");
        !host.ends_with('.') || !label.is_empty() && rest[label.len()..].starts_with('.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        let host = HOSTS[0];
        for (path, line, count) in [
            ("README.md", format!("from {host}"), 1),
            ("a.toml", format!("https://{}npmjs.org", HOSTS[2]), 1),
            ("a.md", HOSTS[1].to_uppercase(), 1),
            ("a.md", format!("listed in the {}", HOSTS[2]), 0),
            ("a.md", format!("see {}rs and stack.rs", HOSTS[2]), 0),
            ("a.rs", format!("self.{}iter()", HOSTS[2]), 0),
            ("Cargo.lock", host.to_owned(), 0),
        ] {
            assert_eq!(run(&Tree::of(&[(path, &line)])).len(), count, "{line}");
        }
    }
}
