//! Builds the external test suites that are Rust programs, pjdfstest and fsx, once into the cache.

use std::fs;

use anyhow::Result;

use super::Missing;
use crate::environment;

/// Exact versions of the suites, so that allow-lists of their tests stay correct.
const SUITE_TOOLS: [(&str, &str); 2] = [("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// Builds the missing tools. Returns those that could not be built.
pub fn install() -> Result<Vec<Missing>> {
    // cargo's list and the disk are read, instead of running the program. This needs no network and
    // little time.
    let folder = environment::tools()?;
    let listed = fs::read_to_string(folder.join(".crates.toml")).unwrap_or_default();
    let mut missing = Vec::new();
    for (name, version) in SUITE_TOOLS {
        if lists(&listed, name, version) && folder.join("bin").join(name).is_file() {
            continue;
        }
        println!("setup: building {name} {version} (about a minute)");
        if let Err(error) = super::cargo_install(name, version, &["--debug"]) {
            let consequence = format!("the {name} suite is skipped");
            missing.push(Missing::new(format!("{name} {version}"), consequence, error));
        }
    }
    Ok(missing)
}

/// Returns whether cargo's list of installed programs contains this version of a tool.
fn lists(list: &str, name: &str, version: &str) -> bool {
    list.lines().any(|line| line.starts_with(&format!("\"{name} {version} (")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_version_counts_as_installed() {
        let list = "[v1]\n\"fsx 0.3.2 (registry+x)\" = [\"fsx\"]\n";
        assert!(lists(list, "fsx", "0.3.2"));
        assert!(!lists(list, "fsx", "0.3.1"));
        assert!(!lists(list, "pjdfstest", "0.2.2"));
        assert!(!lists("", "fsx", "0.3.2"));
    }
}
