//! `cargo xtask lines`: counts the product code of each crate.
//!
//! A line of Rust in `crates/*/src` and `xtask/src` is counted unless it is blank or only a
//! comment. Tests are left out: modules with `cfg(test)`, files and folders named `tests` or
//! `testing`, and crates named `*-testing`. Examples, benchmarks, build scripts and data files are
//! not counted either.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::tidy::Tree;

/// Options of the count.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also list every file
    #[arg(long)]
    files: bool,
}

/// Numbers of files, of lines, and of lines that are neither blank nor only a comment.
type Count = [usize; 3];

impl Args {
    /// Counts the lines and prints a table.
    pub fn run(&self) -> Result<bool> {
        let tree = Tree::of_workspace()?;
        let (mut crates, mut total) = (BTreeMap::<&str, Count>::new(), Count::default());
        println!("{:24} {:>6} {:>9} {:>9}", "crate", "files", "lines", "code");
        for (path, text) in tree.rust() {
            let Some(name) = crate_of(path) else { continue };
            let count = count(text);
            for sums in [crates.entry(name).or_default(), &mut total] {
                sums.iter_mut().zip(count).for_each(|(sum, more)| *sum += more);
            }
            if self.files {
                println!("{path} {} {}", count[1], count[2]);
            }
        }
        for (name, [files, all, code]) in crates.into_iter().chain([("all", total)]) {
            println!("{name:24} {files:>6} {all:>9} {code:>9}");
        }
        Ok(true)
    }
}

/// Returns the crate of a file of product code.
fn crate_of(path: &str) -> Option<&str> {
    let (name, file) = match path.strip_prefix("crates/") {
        Some(path) => path.split_once("/src/")?,
        None => ("xtask", path.strip_prefix("xtask/src/")?),
    };
    let is_test = |part: &str| matches!(part.trim_end_matches(".rs"), "tests" | "testing");
    let is_product = !name.ends_with("-testing") && !file.split('/').any(is_test);
    is_product.then_some(name)
}

fn count(text: &str) -> Count {
    let (mut all, mut counted) = (0, 0);
    let (mut is_behind_cfg, mut in_test) = (false, false);
    for line in text.lines() {
        let code = line.trim();
        if in_test {
            // The sources are formatted, so the closing brace of a module is at the start of its
            // line.
            in_test = line != "}";
            continue;
        }
        if is_behind_cfg && line.starts_with("mod ") {
            in_test = line.ends_with('{');
            is_behind_cfg = false;
            continue;
        }
        is_behind_cfg = line == "#[cfg(test)]";
        all += 1;
        counted += usize::from(!code.is_empty() && !code.starts_with("//"));
    }
    [1, all, counted]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_tests_do_not_count_as_code() {
        let text = concat!(
            "//! Head.\n\n/// Doc.\nfn a() {\n    // b\n}\n\n",
            "#[cfg(test)]\nmod tests {\n    fn c() {}\n}\nfn d() {}\n",
        );
        // The attribute `#[cfg(test)]` is counted as a line.
        assert_eq!(count(text), [1, 9, 4]);
        assert_eq!(count("#[cfg(test)]\nmod tests;\nmod a;\n")[2], 2);
    }

    #[test]
    fn tests_and_examples_belong_to_no_crate() {
        for (path, name) in [
            ("crates/fslab-vfs/src/a/b.rs", Some("fslab-vfs")),
            ("xtask/src/main.rs", Some("xtask")),
            ("crates/fslab-vfs-testing/src/a.rs", None),
            ("crates/fslab-vfs-testing/src.rs", None),
            ("crates/fslab-vfs/src/a/tests.rs", None),
            ("crates/fslab-vfs/tests/it/a.rs", None),
            ("crates/fslab-vfs-testing/src/a.rs", None),
            ("fuzz/fuzz_targets/a.rs", None),
        ] {
            assert_eq!(crate_of(path), name, "{path}");
        }
    }
}
