//! Parses the text of a script into rules. The language is described in [`super`].
//!
//! Words are separated by blanks; double quotes keep blanks within a word. A `#` at the start of a
//! word begins a comment.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fslab_vfs::{ERRNO_NAMES, Errno, Size, errno_from_name, parse_duration};
use globset::GlobBuilder;

use crate::nearest::Nearest;
use crate::observe::operation::{Operation, Operations, awaited};

use super::rule::{Action, Condition, Pattern, Rule};
use super::rule_problem::RuleProblem;

type Result<T> = std::result::Result<T, RuleProblem>;

/// A word that stands for several operations, and the test whether an operation is one of them.
type Group = (&'static str, fn(Operation) -> bool);

const GROUPS: &[Group] = &[
    ("any", |_| true),
    ("sync", |operation| {
        matches!(operation, Operation::Fsync | Operation::Fsyncdir | Operation::Syncfs)
    }),
    ("change", Operation::changes),
];

const ACTIONS: &[&str] = &["error", "late", "skip", "delay", "short", "flip", "full"];
const CONDITIONS: &[&str] = &["on", "nth", "every", "chance", "times"];

/// Parses one line; a blank line or a comment yields no rule.
pub(super) fn parse_line(text: &str, line: usize) -> Result<Option<Rule>> {
    let mut words = Words { rest: split(text)?, last: String::new() };
    if words.rest.is_empty() {
        return Ok(None);
    }
    let operations = operations(&words.next("an operation")?)?;
    let mut rule = Rule {
        line,
        operations,
        pattern: None,
        condition: Condition::default(),
        action: Action::Skip,
        seen: AtomicU64::new(0),
        struck: AtomicU64::new(0),
        room: AtomicU64::new(0),
    };
    let keyword = loop {
        let word = words.next("an action")?;
        match word.as_str() {
            "on" => rule.pattern = Some(pattern(words.next("a pattern")?)?),
            "nth" => rule.condition.nth = range(&words.next("a number")?)?,
            "every" => rule.condition.every = number("every", &words.next("a number")?)?,
            "chance" => rule.condition.chance = chance(&words.next("a percentage")?)?,
            "times" => rule.condition.times = number("times", &words.next("a number")?)?,
            _ => break known(ACTIONS, &word)?,
        }
    };
    rule.action = action(keyword, &mut words)?;
    if let Action::Full(bytes) = rule.action {
        rule.room = AtomicU64::new(bytes);
    }
    if let Some(word) = words.rest.pop_front() {
        return Err(RuleProblem::Trailing { word });
    }
    match rule.operations.iter().find(|operation| !rule.action.fits(**operation)) {
        Some(operation) => Err(RuleProblem::Misfit { action: keyword, operation: *operation }),
        None => Ok(Some(rule)),
    }
}

struct Words {
    rest: VecDeque<String>,
    /// The previous word, for messages about a missing word.
    last: String,
}

impl Words {
    fn next(&mut self, expected: &'static str) -> Result<String> {
        let missing = || RuleProblem::Missing { after: self.last.clone(), expected };
        let word = self.rest.pop_front().ok_or_else(missing)?;
        self.last.clone_from(&word);
        Ok(word)
    }
}

fn split(text: &str) -> Result<VecDeque<String>> {
    let mut words = VecDeque::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let end = match rest.strip_prefix('"') {
            Some(quoted) => quoted.find('"').ok_or(RuleProblem::OpenQuote)? + 2,
            None => rest.find(char::is_whitespace).unwrap_or(rest.len()),
        };
        let (word, behind) = rest.split_at(end);
        words.push_back(word.trim_matches('"').to_owned());
        rest = behind.trim_start();
    }
    Ok(words)
}

fn operations(word: &str) -> Result<Operations> {
    let mut all = Operations::default();
    for name in word.split('|') {
        all.extend(group_or_operation(name)?);
    }
    Ok(all)
}

fn group_or_operation(name: &str) -> Result<Operations> {
    let all = || Operation::ALL.iter().copied();
    if let Some((_, is_member)) = GROUPS.iter().find(|(group, _)| *group == name) {
        return Ok(all().filter(|operation| is_member(*operation)).collect());
    }
    let awaited_names =
        || all().filter(|operation| *operation != Operation::Forget).map(Operation::name);
    let names = || GROUPS.iter().map(|(group, _)| *group).chain(awaited_names());
    let operation = awaited(name).ok_or_else(|| RuleProblem::UnknownOperation {
        word: name.to_owned(),
        nearest: Nearest::to(name, names()),
    })?;
    Ok(Operations::from([operation]))
}

fn known(actions: &[&'static str], word: &str) -> Result<&'static str> {
    actions.iter().copied().find(|action| *action == word).ok_or_else(|| {
        let all = CONDITIONS.iter().chain(ACTIONS).copied();
        RuleProblem::UnknownWord { word: word.to_owned(), nearest: Nearest::to(word, all) }
    })
}

fn action(keyword: &'static str, words: &mut Words) -> Result<Action> {
    Ok(match keyword {
        "error" => Action::Error(errno(&words.next("the name of an error")?)?),
        "late" => Action::Late(errno(&words.next("the name of an error")?)?),
        "delay" => {
            let (least, most) = durations(&words.next("a duration")?)?;
            Action::Delay(least, most)
        }
        "short" => Action::Short(size("short", &words.next("a size")?, 1)?),
        "full" => Action::Full(size("full", &words.next("a size")?, 0)?),
        "flip" => match words.next("a number of bytes, or 'at' and an offset")?.as_str() {
            "at" => Action::FlipAt(size("flip at", &words.next("an offset")?, 0)?),
            count => Action::Flip(number("flip", count)?),
        },
        // `known` refuses all other words except `skip`.
        _ => Action::Skip,
    })
}

fn bad(keyword: &'static str, word: &str, expected: &'static str) -> RuleProblem {
    RuleProblem::BadValue { keyword, word: word.to_owned(), expected }
}

fn pattern(word: String) -> Result<Pattern> {
    let whole_path = word.starts_with('/');
    match GlobBuilder::new(&word).literal_separator(true).build() {
        Ok(glob) => Ok(Pattern { glob: glob.compile_matcher(), whole_path }),
        Err(source) => Err(RuleProblem::BadPattern { word, source }),
    }
}

/// Parses `N`, `N..M`, `N..` or `..M`, counted from 1, with both ends included.
fn range(word: &str) -> Result<RangeInclusive<u64>> {
    let expected = || bad("nth", word, "a positive number, or a range such as 3..10, 3.. or ..10");
    let end = |text: &str, open: u64| match text {
        "" => Ok(open),
        text => text.parse().ok().filter(|number| *number > 0).ok_or_else(expected),
    };
    let (first, last) = match word.split_once("..") {
        Some((first, last)) => (end(first, 1)?, end(last, u64::MAX)?),
        None => {
            let only = end(word, 0)?;
            (only, only)
        }
    };
    if first == 0 || first > last { Err(expected()) } else { Ok(first..=last) }
}

fn number(keyword: &'static str, word: &str) -> Result<u64> {
    let value = word.parse().ok().filter(|number| *number > 0);
    value.ok_or_else(|| bad(keyword, word, "a positive number"))
}

fn chance(word: &str) -> Result<f64> {
    let percent = word.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let within = percent.filter(|percent| (0.0..=100.0).contains(percent));
    within
        .map(|percent| percent / 100.0)
        .ok_or_else(|| bad("chance", word, "a percentage from 0% to 100%"))
}

fn size(keyword: &'static str, word: &str, least: u64) -> Result<u64> {
    let value = word.parse().ok().map(|size: Size| size.bytes());
    value
        .filter(|size| *size >= least)
        .ok_or_else(|| bad(keyword, word, "a number of bytes such as 512, 64KiB or 10MiB"))
}

fn durations(word: &str) -> Result<(Duration, Duration)> {
    let (least, most) = word.split_once("..").unwrap_or((word, word));
    let expected = || bad("delay", word, "a duration such as 50us, 5ms or 1s, or a range of two");
    let duration = |text: &str| parse_duration(text).ok().ok_or_else(expected);
    let (least, most) = (duration(least)?, duration(most)?);
    if least > most { Err(expected()) } else { Ok((least, most)) }
}

/// Parses a name such as `ENOSPC`, or a number.
fn errno(word: &str) -> Result<Errno> {
    errno_from_name(word).ok_or_else(|| RuleProblem::UnknownErrno {
        word: word.to_owned(),
        nearest: Nearest::to(word, ERRNO_NAMES.iter().map(|(name, _)| *name)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        parse_line(text, 1).unwrap().unwrap()
    }

    #[track_caller]
    fn refuses(text: &str, message: &str) {
        assert_eq!(parse_line(text, 1).unwrap_err().to_string(), message);
    }

    #[test]
    fn documented_rules_are_parsed() {
        let parsed =
            rule("read|write on *.db nth 3..10 every 2 chance 25% times 4 error ENOSPC # c");
        assert_eq!(parsed.operations.len(), 2);
        assert_eq!(parsed.condition.nth, 3..=10);
        assert_eq!((parsed.condition.every, parsed.condition.times), (2, 4));
        assert!((parsed.condition.chance - 0.25).abs() < f64::EPSILON);
        assert_eq!(parsed.action, Action::Error(Errno::NOSPC));
        assert_eq!(rule("sync skip").operations.len(), 3);
        assert_eq!(rule("any late 5").action, Action::Late(Errno::IO));
        assert_eq!(rule("write full 10MiB").action, Action::Full(10 << 20));
        assert_eq!(rule("write short 512").action, Action::Short(512));
        assert_eq!(rule("read flip 2").action, Action::Flip(2));
        assert_eq!(rule("read flip at 4KiB").action, Action::FlipAt(4096));
        let (fifty, five) = (Duration::from_micros(50), Duration::from_millis(5));
        assert_eq!(rule("open delay 50us").action, Action::Delay(fifty, fifty));
        assert_eq!(rule("open delay 50us..5ms").action, Action::Delay(fifty, five));
        assert_eq!(rule("unlink nth ..4 skip").condition.nth, 1..=4);
        assert!(rule("write on \"/a b/**\" skip").pattern.unwrap().whole_path);
        assert!(parse_line("   # nothing", 1).unwrap().is_none());
    }

    #[test]
    fn invalid_rules_are_named_in_the_error() {
        refuses("reed error EIO", "unknown operation 'reed'; did you mean 'read'?");
        refuses("read eror EIO", "unknown condition or action 'eror'; did you mean 'error'?");
        refuses("read error ENOSPACE", "unknown error 'ENOSPACE'; did you mean 'ENOSPC'?");
        refuses("read", "'read' should be followed by an action");
        refuses("read error", "'error' should be followed by the name of an error");
        refuses("read chance 1 skip", "'chance' needs a percentage from 0% to 100%, not '1'");
        refuses("read every 0 skip", "'every' needs a positive number, not '0'");
        refuses("read skip", "'skip' can't be applied to read");
        refuses("write skip now", "nothing should follow the action, but 'now' does");
        refuses("write on \"a skip", "a quote is not closed");
        refuses(
            "read delay soon",
            "'delay' needs a duration such as 50us, 5ms or 1s, or a range of two, not 'soon'",
        );
        refuses(
            "read nth 0 skip",
            "'nth' needs a positive number, or a range such as 3..10, 3.. or ..10, not '0'",
        );
        refuses("any full 1KiB", "'full' can't be applied to lookup");
        refuses(
            "write short 0",
            "'short' needs a number of bytes such as 512, 64KiB or 10MiB, not '0'",
        );
        let message = parse_line("read on [a error EIO", 1).unwrap_err().to_string();
        assert!(message.starts_with("pattern '[a': "), "{message}");
    }
}
