//! Policies: rules in TOML that decide which files are archived and released, and when.
//!
//! The first rule that matches a file decides. With watermarks, files are released if more than the
//! share `high` of the file system is used, until at most `low` is used. The least recently used
//! files are released first. Files are archived in advance if at least `premigrate` is used.
//!
//! `rules`: parsing. `conditions`: which files a rule or a query selects. `file_facts`: the facts
//! about a file that rules use. `selection`, `candidates`: the files that a policy affects.
//! `freed_space`: whether releases free space. `run`: running a policy.

mod candidates;
mod conditions;
mod file_facts;
mod freed_space;
mod rules;
mod run;
mod selection;

pub(crate) use conditions::{Conditions, glob, is_one_of};
pub use conditions::{Facts, FileType, parse_pattern};
pub use rules::{Action, Policy, Watermarks, parse_group, parse_user};
pub(crate) use run::run;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn facts() -> Facts {
        Facts {
            path: b"home/ann/video.mkv".to_vec(),
            size: 5 << 20,
            uid: 1000,
            gid: 0,
            types: vec![FileType::Executable, FileType::Linked],
            unchanged: Duration::from_secs(10 * 24 * 3600),
            unused: Duration::from_secs(2 * 24 * 3600),
            here_for: Duration::from_secs(2 * 3600),
            is_pinned: false,
            xattrs: vec![("user.project".to_owned(), b"blue".to_vec())],
        }
    }

    #[track_caller]
    fn decides(rules: &str, facts: &Facts, action: Action) {
        assert_eq!(Policy::parse(rules, "test").unwrap().decide(facts), action, "{rules}");
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let release = "[[rule]]\naction = 'release'\n";
        decides(release, &facts(), Action::Release);
        decides(release, &Facts { is_pinned: true, ..facts() }, Action::Archive);
        decides(&format!("settle = '30d'\n{release}"), &facts(), Action::Keep);
        decides(&format!("stay = '2h'\n{release}"), &facts(), Action::Release);
        decides(&format!("stay = '3h'\n{release}"), &facts(), Action::Archive);
        for (condition, fits) in [
            ("paths = ['**/*.mkv']", true),
            ("paths = ['*.iso']", false),
            ("users = [7, 1000]", true),
            ("users = [7]", false),
            ("users = ['root', '1000']", true),
            ("users = ['root']", false),
            ("groups = ['root']", true),
            ("groups = [0]", true),
            ("groups = [7, '8']", false),
            ("types = ['sparse', 'linked']", true),
            ("types = ['sparse']", false),
            ("larger = '5MiB'", true),
            ("larger = '6MiB'", false),
            ("larger = '5120K'", true),
            ("larger = '4.5GiB'", false),
            ("smaller = '5MiB'", false),
            ("unchanged = '10d'", true),
            ("unchanged = '11d'", false),
            ("xattrs = ['user.project']", true),
            ("xattrs = ['user.project=blue']", true),
            ("xattrs = ['user.project=red']", false),
            ("xattrs = ['user.project', 'user.other']", false),
            ("unused = '48h'", true),
            ("unused = '3d'", false),
            ("unused = '1d23h'", true),
            ("unused = '48h30m'", false),
        ] {
            let rules = format!("[[rule]]\naction = 'archive'\n{condition}\n{release}");
            let action = if fits { Action::Archive } else { Action::Release };
            decides(&rules, &facts(), action);
        }
    }

    #[test]
    fn invalid_policies_are_refused_with_a_line_number() {
        for (rules, line, part) in [
            ("[[rule]]\naction = 'keep'\n[[rule]]\naction = 'burn'\n", 4, "burn"),
            ("[[rule]]\naction = 'keep'\nlarger = 'huge'\n", 3, "'huge' is not a size"),
            ("[[rule]]\naction = 'keep'\n\nunused = '30'\n", 4, "'30' is not a time"),
            ("[[rule]]\naction = 'keep'\nage = '3d'\n", 3, "age"),
            ("[[rule]]\naction = 'keep'\npaths = [\n'*',\n'a[']\n", 5, "a["),
            ("[[rule]]\naction = 'keep'\nusers = ['no such']\n", 3, "no user 'no such'"),
            ("[[rule]]\naction = 'keep'\ngroups = [1,\n'no such']\n", 4, "no group 'no such'"),
            ("[[rule]]\naction = 'keep'\nusers = [-1]\n", 3, "a name or a number"),
            ("[[rule]]\naction = 'keep'\ntypes = ['video']\n", 3, "`sparse`"),
            ("", 1, "at least one"),
            (
                "settle = '1h'\nstay = 'long'\n[[rule]]\naction = 'keep'\n",
                2,
                "'long' is not a time",
            ),
            ("\nbundle = '2MiB'\n[[rule]]\naction = 'keep'\n", 2, "at most 1 MiB"),
            ("[watermarks]\nhigh = 1.5\nlow = 0.6\n[[rule]]\naction = 'keep'\n", 2, "from 0 to 1"),
            (
                "[watermarks]\nhigh = 0.5\nlow = 0.6\n[[rule]]\naction = 'keep'\n",
                3,
                "low must be a share",
            ),
            (
                "[watermarks]\nhigh = 0.5\nlow = 0.0\npremigrate = 0.6\n[[rule]]\naction='keep'\n",
                4,
                "premigrate",
            ),
        ] {
            let message = Policy::parse(rules, "p.toml").unwrap_err().to_string();
            assert!(message.starts_with(&format!("p.toml, line {line}: ")), "{message}");
            assert!(message.contains(part), "{message}");
        }
    }
}
