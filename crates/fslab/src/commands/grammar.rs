//! Tests that all commands follow the rules for the command line (see CONTRIBUTING.md).

use clap::{Arg, ArgAction, Command};

use super::catalogue;
use super::manual::{self, EXAMPLES};

/// A command without subcommands, with its full name, such as `age image make`.
struct Leaf {
    path: String,
    command: Command,
}

fn leaves() -> Vec<Leaf> {
    let mut found = Vec::new();
    collect(&super::command(), "", &mut found);
    assert!(found.len() > 70, "{}", found.len());
    found
}

fn collect(command: &Command, path: &str, found: &mut Vec<Leaf>) {
    let visible: Vec<_> = command.get_subcommands().filter(|child| !child.is_hide_set()).collect();
    for child in &visible {
        let path = format!("{path} {}", child.get_name());
        collect(child, path.trim_start(), found);
    }
    if visible.is_empty() && path != "help" {
        found.push(Leaf { path: path.to_owned(), command: command.clone() });
    }
}

impl Leaf {
    fn arguments(&self) -> impl Iterator<Item = &Arg> {
        self.command.get_arguments().filter(|argument| !argument.is_hide_set())
    }

    fn has(&self, long: &str) -> bool {
        let is_it = |argument: &Arg| argument.get_long() == Some(long);
        // A command also has the global options of its parent.
        let is_of_parent = |parent: &Command| parent.get_arguments().any(is_it);
        let root = super::command();
        self.command.get_arguments().any(is_it)
            || root
                .find_subcommand(self.path.split(' ').next().unwrap_or_default())
                .is_some_and(|parent| self.path.contains(' ') && is_of_parent(parent))
    }
}

/// Collects violations of a rule, so that one run shows all of them.
#[derive(Default)]
struct Violations(Vec<String>);

impl Violations {
    fn expect(&mut self, is_kept: bool, what: impl FnOnce() -> String) {
        if !is_kept {
            self.0.push(what());
        }
    }
}

impl Drop for Violations {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.is_empty(), "{} violations:\n{}", self.0.len(), self.0.join("\n"));
        }
    }
}

/// Splits a command line into words like a shell, up to a redirection of the output.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            '>' if !is_quoted => break,
            other => words.last_mut().unwrap().push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn every_command_has_examples_that_parse() {
    let mut violations = Violations::default();
    let leaves = leaves();
    for leaf in &leaves {
        let path = &leaf.path;
        violations.expect(manual::of(path).is_some(), || format!("{path}: no example"));
    }
    for entry in EXAMPLES {
        let path = entry.command;
        let is_leaf = leaves.iter().any(|leaf| leaf.path == path);
        violations.expect(is_leaf, || format!("{path}: there is no such command"));
        for example in entry.examples {
            let mut given = words(example.line);
            if given[0] == "sudo" {
                given.remove(0);
            }
            let begins = format!("fslab {path}");
            let parsed = super::command().try_get_matches_from(&given);
            violations.expect(given.join(" ").starts_with(&begins), || {
                format!("{path}: '{}' belongs to another command", example.line)
            });
            violations
                .expect(parsed.is_ok(), || format!("{}: {}", example.line, parsed.unwrap_err()));
            violations.expect(example.line.len() <= 88 && example.what.len() <= 76, || {
                format!("{path}: the example is too long for a terminal: {}", example.line)
            });
        }
    }
}

/// The long options that each short option may stand for. Short options of mount(8), umount(8),
/// ls(1) and mke2fs(8) keep their usual meanings.
const SHORT_OPTIONS: &[(char, &[&str])] = &[
    ('b', &["block-size"]),
    ('f', &["force", "foreground"]),
    ('g', &["groups", "blocks-per-group"]),
    ('h', &["help"]),
    ('i', &["bytes-per-inode"]),
    ('l', &["layer", "long"]),
    ('m', &["reserved-percent"]),
    ('n', &["dry-run"]),
    ('o', &["output", "options"]),
    ('q', &["quiet"]),
    ('r', &["recursive"]),
    ('t', &["threads"]),
    ('v', &["verbose"]),
    ('z', &["lazy"]),
    ('I', &["inode-size"]),
    ('L', &["label"]),
    ('U', &["uuid"]),
    ('V', &["version"]),
];

#[test]
fn a_short_option_means_the_same_everywhere() {
    let mut violations = Violations::default();
    for leaf in leaves() {
        for argument in leaf.arguments() {
            let (Some(short), Some(long)) = (argument.get_short(), argument.get_long()) else {
                continue;
            };
            let known = SHORT_OPTIONS.iter().find(|(letter, _)| *letter == short);
            let is_known = known.is_some_and(|(_, longs)| longs.contains(&long));
            violations.expect(is_known, || format!("{}: -{short} is --{long}", leaf.path));
        }
        let letter = |long: &str, short: char| {
            let named = leaf.arguments().find(|argument| argument.get_long() == Some(long));
            named.is_none_or(|argument| argument.get_short() == Some(short))
        };
        for (long, short) in [("dry-run", 'n'), ("verbose", 'v'), ("quiet", 'q')] {
            violations
                .expect(letter(long, short), || format!("{}: --{long} lacks -{short}", leaf.path));
        }
    }
}

/// Commands that have no JSON output, with the reason.
const WITHOUT_JSON: &[(&str, &str)] = &[
    ("mount", "prints nothing"),
    ("umount", "prints nothing"),
    ("upgrade", "prints one line; `fslab status --json` shows the version"),
    ("trace replay", "its result is the exit code of --strict"),
    ("age snapshot", "writes a Parquet file"),
    ("age derive", "writes a Parquet file"),
    ("age profile", "writes a Parquet file; `fslab list --json` has the profiles"),
    ("age chart", "writes a picture"),
    ("age image make", "writes a file; its header is the output of `age image info`"),
    ("age image pack", "writes a file"),
    ("age image unpack", "writes a file"),
    ("age image info", "prints a list of names and values"),
    ("campaign new", "prints the frozen plan, which is also in campaign.json"),
    ("campaign run", "prints nothing; `campaign status --json` shows the result"),
    ("campaign submit", "prints the number of a job"),
    ("reproduce", "writes figures.json"),
    ("ext2 mkfs", "writes an image; `ext2 info --json` shows it"),
    ("ext2 cat", "prints the content of a file"),
    ("ext2 put", "writes a file"),
    ("ext2 get", "writes a file"),
    ("ext2 import", "writes files"),
    ("ext2 export", "writes files"),
    ("ext2 dx", "draws a tree"),
    ("ext2 resize", "prints one line; `ext2 info --json` shows the result"),
    ("ext2 tune", "prints nothing; `ext2 info --json` shows the result"),
    ("sca cat", "prints the content of a file"),
    ("sca dump", "prints its own documented text format"),
    ("sca compact", "prints one line; `sca stat --json` shows the result"),
    ("sca encode", "prints three lines; `sca stat --json` shows the result"),
    ("sca decode", "prints three lines; `sca stat --json` shows the result"),
    ("sca repair", "writes a file"),
    ("completions", "prints a script"),
    ("man", "writes files"),
];

#[test]
fn every_command_that_shows_something_has_json() {
    let mut violations = Violations::default();
    for leaf in leaves() {
        let is_exempt = WITHOUT_JSON.iter().any(|(path, _)| *path == leaf.path);
        violations.expect(leaf.has("json") != is_exempt, || {
            format!("{}: needs either --json or a line in WITHOUT_JSON", leaf.path)
        });
    }
}

/// Commands that delete data, change data in place, or take long.
const WITH_DRY_RUN: &[&str] = &[
    "mount",
    "age replay",
    "age image make",
    "compare",
    "campaign submit",
    "reproduce",
    "ext2 mkfs",
    "ext2 repair",
    "ext2 resize",
    "ext2 tune",
    "sca compact",
    "sca encode",
    "sca decode",
    "tier archive",
    "tier release",
    "tier recall",
    "tier drain",
    "tier policy",
    "tier scrub",
    "tier expire",
    "tier undelete",
];

/// Commands that need no dry run, grouped by the reason.
const WITHOUT_DRY_RUN: &[(&str, &[&str])] = &[
    (
        "only shows something",
        &[
            "status",
            "doctor",
            "stats",
            "list",
            "report",
            "sql",
            "campaign status",
            "campaign report",
            "trace show",
            "age diff",
            "age show",
            "age score",
            "age verify",
            "age image info",
            "dataset check",
            "dataset show",
            "ext2 info",
            "ext2 ls",
            "ext2 cat",
            "ext2 stat",
            "ext2 check",
            "ext2 dx",
            "ext2 layout",
            "sca stat",
            "sca check",
            "sca verify",
            "sca cat",
            "sca dump",
            "tier wait",
            "tier state",
            "tier find",
            "tier du",
            "tier queue",
            "tier versions",
            "tier cat",
            "tier archives",
        ],
    ),
    (
        "measures on files of its own",
        &["probe", "age simulate", "age verify-method", "sca recovery"],
    ),
    ("measures on an image of its own", &["ext2 capacity"]),
    (
        "writes only the files given on its command line",
        &[
            "age snapshot",
            "age derive",
            "age profile",
            "age chart",
            "age image pack",
            "age image unpack",
            "dataset create",
            "tier export",
            "ext2 get",
            "ext2 export",
            "sca repair",
            "ext2 undelete",
            "tier init",
            "tier key",
            "tier rebuild",
            "completions",
            "man",
            "campaign new",
        ],
    ),
    ("`campaign status` shows the remaining blocks", &["campaign run"]),
    ("adds to an image", &["ext2 put", "ext2 import"]),
    ("adds to the catalogue or the archives", &["tier tree", "tier scan"]),
    (
        "another command reverses it",
        &[
            "umount",
            "tier attach",
            "tier retire",
            "tier detach",
            "tier cancel",
            "tier pin",
            "tier unpin",
        ],
    ),
    ("keeps the mount and its files", &["upgrade"]),
    ("its target is made only for the replay", &["trace replay"]),
];

#[test]
fn every_command_that_deletes_or_changes_in_place_has_a_dry_run() {
    let mut violations = Violations::default();
    let without = || WITHOUT_DRY_RUN.iter().flat_map(|(_, paths)| paths.iter());
    let leaves = leaves();
    for leaf in &leaves {
        let path = &leaf.path;
        let lines = WITH_DRY_RUN.iter().chain(without()).filter(|known| *known == path).count();
        violations.expect(lines == 1, || format!("{path}: {lines} lines in the two lists"));
        let wants = WITH_DRY_RUN.contains(&path.as_str());
        violations.expect(leaf.has("dry-run") == wants, || {
            format!("{path}: --dry-run and its line in WITH_DRY_RUN must both exist or be absent")
        });
    }
    for known in WITH_DRY_RUN.iter().chain(without()) {
        let is_leaf = leaves.iter().any(|leaf| leaf.path == *known);
        violations.expect(is_leaf, || format!("{known}: there is no such command"));
    }
}

#[test]
fn long_options_are_kebab_case_and_value_names_upper_case() {
    let mut violations = Violations::default();
    let is_kebab = |name: &str| {
        name.chars()
            .all(|letter| letter.is_ascii_lowercase() || letter == '-' || letter.is_ascii_digit())
    };
    for leaf in leaves() {
        for argument in leaf.arguments() {
            let path = &leaf.path;
            if let Some(long) = argument.get_long() {
                violations.expect(is_kebab(long), || format!("{path}: --{long}"));
            }
            let names = argument.get_value_names().unwrap_or_default();
            let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
            for name in names.iter().filter(|_| takes_value) {
                let is_upper = !name.chars().any(|letter| letter.is_ascii_lowercase());
                violations.expect(is_upper, || format!("{path}: the value {name}"));
            }
        }
    }
}

/// Layer options are typed on command lines, so they have hyphens, like long options. Parameters of
/// workloads are keys in plans, which have underscores.
#[test]
fn layer_options_are_kebab_case_and_plan_keys_snake_case() {
    let mut violations = Violations::default();
    for layer in catalogue::all_layers() {
        for option in layer.options {
            let is_kebab =
                !option.name.contains(|letter: char| letter == '_' || letter.is_uppercase());
            violations.expect(is_kebab, || format!("layer {}: {}", layer.name, option.name));
        }
    }
    for workload in fslab_compare::workload::WORKLOADS {
        for parameter in workload.parameters {
            let is_snake =
                !parameter.name.contains(|letter: char| letter == '-' || letter.is_uppercase());
            violations
                .expect(is_snake, || format!("workload {}: {}", workload.name, parameter.name));
        }
    }
}

/// Words that help pages and messages must not contain, and their replacements. `cargo xtask tidy`
/// searches all files for whole phrases.
const BANNED: &[(&str, &str)] =
    &[("tell", "print, report"), ("told", "printed, reported"), ("elsewhere", "offline")];

#[test]
fn command_summaries_are_short_and_every_argument_has_help() {
    let mut violations = Violations::default();
    for leaf in leaves() {
        let path = &leaf.path;
        let about = leaf.command.get_about().map(ToString::to_string).unwrap_or_default();
        violations
            .expect(about.len() <= 80 && !about.ends_with('.'), || format!("{path}: {about}"));
        for argument in leaf.arguments() {
            let (name, help) = (argument.get_id(), argument.get_help());
            let has_help = help.is_some_and(|help| !help.to_string().is_empty());
            violations.expect(has_help, || format!("{path}: {name} has no help"));
        }
    }
}

/// Checks all help pages, and the error messages in a snapshot file.
#[test]
fn help_and_messages_contain_no_banned_words() {
    let mut violations = Violations::default();
    for (name, text) in [
        ("help.txt", include_str!("../../tests/it/snapshots/help.txt")),
        ("errors.txt", include_str!("../../tests/it/snapshots/errors.txt")),
    ] {
        assert!(text.len() > 5000, "{name}");
        for line in text.lines() {
            for word in line.split(|letter: char| !letter.is_alphanumeric()) {
                let banned = BANNED.iter().find(|(banned, _)| *banned == word.to_lowercase());
                violations.expect(banned.is_none(), || {
                    let (banned, better) = banned.copied().unwrap_or_default();
                    format!("{name}: '{banned}' for {better} in: {line}")
                });
            }
        }
    }
}

#[test]
fn usage_error_names_the_help_of_the_command() {
    let line = |words: &[&str]| {
        let error = super::command().try_get_matches_from(words).unwrap_err();
        crate::exit::line_of_usage(&error)
    };
    for (words, help) in [
        (["fslab", "sca", "stat"].as_slice(), "see `fslab sca stat --help`"),
        (&["fslab", "mount", "--lazy"], "see `fslab mount --help`"),
        (&["fslab", "tier", "expire", "a", "b"], "see `fslab tier expire --help`"),
        (&["fslab", "mont"], "see `fslab --help`"),
    ] {
        assert!(line(words).ends_with(help), "{words:?}: {}", line(words));
    }
    assert!(line(&["fslab", "mont"]).contains("'mount'"), "{}", line(&["fslab", "mont"]));
}
