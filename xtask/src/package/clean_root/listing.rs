//! The list of files below a root directory, and the differences between two lists.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process;

/// Folders whose content apt, dpkg and systemd change in every run, and folders that the trial
/// uses.
const LEFT_OUT: [&str; 9] = [
    "home",
    "srv",
    "tmp",
    "var/cache",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/lib/systemd",
    "var/log",
    "var/tmp",
];

/// Files of dpkg that list the files of each installed package.
const OF_DPKG: &str = "var/lib/dpkg/info";

/// Files by path, with type, mode, owner, and the target of a link.
pub struct Listing(BTreeMap<String, String>);

impl Listing {
    /// Lists the files below a folder of this machine.
    pub fn of(root: &Path) -> Result<Self> {
        let mut find = Command::new("find");
        find.current_dir(root).args([".", "-xdev", "-printf", "%P\\t%y %m %U:%G %l\\n"]);
        Ok(Self::parse(&process::capture(&mut find)?))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        let kept = lines.filter(|(path, _)| !is_left_out(path));
        Self(kept.map(|(path, facts)| (path.to_owned(), facts.to_owned())).collect())
    }

    /// Returns a line for each difference from an earlier list. Files in `allowed` may be new.
    pub fn since(&self, earlier: &Self, allowed: &[&str]) -> Vec<String> {
        let is_new = |path: &String| !earlier.0.contains_key(path);
        let new = self.0.keys().filter(|path| is_new(path) && !allowed.contains(&path.as_str()));
        let missing = earlier.0.keys().filter(|path| !self.0.contains_key(*path));
        let changed = self.0.iter().filter_map(|(path, facts)| {
            let before = earlier.0.get(path).filter(|before| *before != facts)?;
            Some(format!("changed: {path}: {before}, now {facts}"))
        });
        let new = new.map(|path| format!("left behind: {path}"));
        new.chain(missing.map(|path| format!("missing: {path}"))).chain(changed).collect()
    }
}

fn is_left_out(path: &str) -> bool {
    let is_below =
        |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    LEFT_OUT.iter().any(|folder| is_below(folder)) && !is_below(OF_DPKG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_lists_are_found() {
        let earlier = Listing::parse("etc\td 755 0:0 \netc/a\tf 644 0:0 \netc/b\tf 644 0:0 \n");
        let later = "etc\td 755 0:0 \netc/a\tf 600 0:0 \netc/own\tf 644 0:0 \netc/x\tl 777 0:0 y\n\
                     var/log/apt\td 755 0:0 \nvar/lib/dpkg/info/fslab.list\tf 644 0:0 \n";
        let found = Listing::parse(later).since(&earlier, &["etc/own"]);
        assert_eq!(
            found,
            [
                "left behind: etc/x",
                "left behind: var/lib/dpkg/info/fslab.list",
                "missing: etc/b",
                "changed: etc/a: f 644 0:0 , now f 600 0:0 ",
            ]
        );
    }
}
