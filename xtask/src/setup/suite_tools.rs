//! The outside test suites that are Rust programs: pjdfstest and fsx, built once into the cache.

use std::fs;

use anyhow::Result;

use super::Missing;
use crate::{environment, process};

/// A program of one exact version, so that allow-lists of its tests stay right.
struct SuiteTool {
    name: &'static str,
    version: &'static str,
}

const SUITE_TOOLS: &[SuiteTool] = &[
    SuiteTool { name: "pjdfstest", version: "0.2.2" },
    SuiteTool { name: "fsx", version: "0.3.2" },
];

/// Builds the missing ones; answers those that could not be built.
pub fn install() -> Result<Vec<Missing>> {
    let mut missing = Vec::new();
    for tool in SUITE_TOOLS {
        if tool.is_installed()? {
            continue;
        }
        println!("setup: building {} {} (about a minute)", tool.name, tool.version);
        if let Err(error) = tool.install() {
            missing.push(tool.missing(&error));
        }
    }
    Ok(missing)
}

impl SuiteTool {
    /// Asks cargo's own list and the disk, not the program: that takes no network and no time.
    fn is_installed(&self) -> Result<bool> {
        let folder = environment::tools()?;
        let listed = fs::read_to_string(folder.join(".crates.toml")).unwrap_or_default();
        Ok(lists(&listed, self) && folder.join("bin").join(self.name).is_file())
    }

    fn install(&self) -> Result<()> {
        let mut command = environment::cargo();
        command.args(["install", "--quiet", "--debug", "--locked", "--root"]);
        command.arg(environment::tools()?).args(["--version", self.version, self.name]);
        // Warnings of others' code are not asked for, and this workspace's target is not theirs.
        command.env_remove("RUSTFLAGS").env_remove("CARGO_TARGET_DIR");
        process::capture(&mut command).map(drop)
    }

    fn missing(&self, error: &anyhow::Error) -> Missing {
        Missing {
            what: format!("{} {}", self.name, self.version),
            consequence: format!("the {} suite is skipped", self.name),
            remedy: format!("{error:#}"),
        }
    }
}

/// Whether cargo's list of installed programs has this version of the tool.
fn lists(list: &str, tool: &SuiteTool) -> bool {
    let start = format!("\"{} {} (", tool.name, tool.version);
    list.lines().any(|line| line.starts_with(&start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_version_counts_as_installed() {
        let list = "[v1]\n\"fsx 0.3.2 (registry+x)\" = [\"fsx\"]\n";
        assert!(lists(list, &SuiteTool { name: "fsx", version: "0.3.2" }));
        assert!(!lists(list, &SuiteTool { name: "fsx", version: "0.3.1" }));
        assert!(!lists(list, &SuiteTool { name: "pjdfstest", version: "0.2.2" }));
        assert!(!lists("", &SuiteTool { name: "fsx", version: "0.3.2" }));
    }
}
