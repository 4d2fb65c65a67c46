//! Which files go, and when: rules in TOML, which decide and do nothing.
//!
//! The first rule that fits a file decides. Where watermarks are given, files are released only
//! while the file system is fuller than `high`, those that were not used for longest first, until
//! it is no fuller than `low`; and copied already while it is fuller than `premigrate`.

use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fslab_vfs::{Attr, FileKind, Ino, Request, Timestamp};
use globset::{Glob, GlobMatcher};
use serde::Deserialize;

use crate::command::{Event, State, Tell, is_pinned, state_of, total};
use crate::engine::{Archived, Place, Tier, Visit, age};
use crate::error::{Error, Result};
use crate::home::line_of;
use crate::lower::{Found, own_request};

/// What a rule asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Nothing is done.
    Keep,
    /// Copies are made; the bytes stay.
    Archive,
    /// Copies are made, and the bytes may go.
    Release,
}

/// What decides about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// From the root of the tree.
    pub path: Vec<u8>,
    /// In bytes.
    pub size: u64,
    /// Owner.
    pub uid: u32,
    /// Since the last change of its contents.
    pub unchanged: Duration,
    /// Since it was read or changed last.
    pub unused: Duration,
    /// Its owner wants it here.
    pub is_pinned: bool,
    /// Those of its xattrs that rules ask for.
    pub xattrs: Vec<(String, Vec<u8>)>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    watermarks: Option<Watermarks>,
    /// Files that changed less long ago stay alone.
    #[serde(default)]
    settle: Option<String>,
    #[serde(default, rename = "rule")]
    rules: Vec<toml::Spanned<RawRule>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    action: Action,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    users: Vec<u32>,
    #[serde(default)]
    xattrs: Vec<String>,
    larger: Option<String>,
    smaller: Option<String>,
    unchanged: Option<String>,
    unused: Option<String>,
}

/// How full the file system may be, as shares of its space.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watermarks {
    /// Above this, files are released.
    pub high: f64,
    /// Until it is no fuller than this.
    pub low: f64,
    /// Above this, files are archived, so that they can be released at once when that is needed.
    #[serde(default)]
    pub premigrate: f64,
}

impl Watermarks {
    fn are_in_order(&self) -> bool {
        let is_below = |mark: f64| (0.0..=self.high).contains(&mark);
        self.high <= 1.0 && is_below(self.low) && is_below(self.premigrate)
    }
}

struct Rule {
    action: Action,
    paths: Vec<GlobMatcher>,
    users: Vec<u32>,
    /// Names, and values where one is asked for.
    xattrs: Vec<(String, Option<Vec<u8>>)>,
    larger: u64,
    smaller: u64,
    unchanged: Duration,
    unused: Duration,
}

/// Rules, read and checked.
pub struct Policy {
    watermarks: Option<Watermarks>,
    settle: Duration,
    rules: Vec<Rule>,
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Policy").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

impl Policy {
    /// Reads rules.
    ///
    /// # Errors
    /// Names file, line and what is wrong.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |line, what| Error::Settings { path: origin.into(), line, what };
        let raw: RawPolicy = toml::from_str(text)
            .map_err(|error| wrong(line_of(text, error.span()), error.message().to_owned()))?;
        if raw.watermarks.is_some_and(|marks| !marks.are_in_order()) {
            let what = "watermarks are shares from 0 to 1, low and premigrate below high";
            return Err(wrong(1, what.to_owned()));
        }
        let settle = match &raw.settle {
            Some(text) => duration(text).map_err(|what| wrong(1, what))?,
            None => Duration::ZERO,
        };
        let mut rules = Vec::new();
        for rule in &raw.rules {
            let line = line_of(text, Some(rule.span()));
            rules.push(Rule::new(rule.get_ref()).map_err(|what| wrong(line, what))?);
        }
        if rules.is_empty() {
            return Err(wrong(1, "a policy has at least one [[rule]]".to_owned()));
        }
        Ok(Self { watermarks: raw.watermarks, settle, rules })
    }

    /// Names of xattrs that rules ask for.
    fn xattr_names(&self) -> impl Iterator<Item = &String> {
        self.rules.iter().flat_map(|rule| rule.xattrs.iter().map(|(name, _)| name))
    }

    /// What is to be done with a file.
    #[must_use]
    pub fn decide(&self, facts: &Facts) -> Action {
        if facts.unchanged < self.settle {
            return Action::Keep;
        }
        let rule = self.rules.iter().find(|rule| rule.fits(facts));
        match rule.map_or(Action::Keep, |rule| rule.action) {
            Action::Release if facts.is_pinned => Action::Archive,
            action => action,
        }
    }
}

impl Rule {
    fn new(raw: &RawRule) -> Result<Self, String> {
        let size = |text: &Option<String>, default| text.as_deref().map_or(Ok(default), bytes);
        let time = |text: &Option<String>| text.as_deref().map_or(Ok(Duration::ZERO), duration);
        let glob = |text: &String| {
            let glob = Glob::new(text).map_err(|error| error.to_string())?;
            Ok::<_, String>(glob.compile_matcher())
        };
        Ok(Self {
            action: raw.action,
            paths: raw.paths.iter().map(glob).collect::<Result<_, _>>()?,
            users: raw.users.clone(),
            xattrs: raw.xattrs.iter().map(|text| xattr(text)).collect(),
            larger: size(&raw.larger, 0)?,
            smaller: size(&raw.smaller, u64::MAX)?,
            unchanged: time(&raw.unchanged)?,
            unused: time(&raw.unused)?,
        })
    }

    fn fits(&self, facts: &Facts) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(&facts.path));
        let has_path = self.paths.is_empty() || self.paths.iter().any(|glob| glob.is_match(path));
        let has_user = self.users.is_empty() || self.users.contains(&facts.uid);
        let has_size = facts.size >= self.larger && facts.size < self.smaller;
        let is_old = facts.unchanged >= self.unchanged && facts.unused >= self.unused;
        let has_xattrs = self.xattrs.iter().all(|(name, wanted)| {
            let found = facts.xattrs.iter().find(|(found, _)| found == name);
            found.is_some_and(|(_, value)| wanted.as_ref().is_none_or(|wanted| wanted == value))
        });
        has_path && has_user && has_size && is_old && has_xattrs
    }
}

/// An xattr as people write it: `user.keep`, or `user.keep=yes` for one value only.
fn xattr(text: &str) -> (String, Option<Vec<u8>>) {
    match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.as_bytes().to_vec())),
        None => (text.to_owned(), None),
    }
}

/// A number of bytes as people write it: `4096`, `64KiB`, `1GiB`.
fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("", 0)];
    let parsed = units.iter().find_map(|(unit, power)| {
        let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_shl(*power).filter(|shifted| shifted >> power == number)
    });
    parsed.ok_or_else(|| format!("'{text}' is no size such as 64KiB"))
}

/// A time as people write it: `90s`, `10m`, `12h`, `30d`.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 24 * 3600)];
    let parsed = units.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(*seconds)
    });
    parsed.map(Duration::from_secs).ok_or_else(|| format!("'{text}' is no time such as 12h or 30d"))
}

/// A file whose bytes may go. The one that was used last is the greatest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    used: (i64, u32),
    ino: u64,
    path: Vec<u8>,
    bytes: u64,
}

/// Candidates that are remembered at once; the next run finds the others.
const CANDIDATES_MAX: usize = 100_000;

/// What a run of a policy has come to.
#[derive(Default)]
struct Tally {
    looked_at: u64,
    archived: u64,
    archived_bytes: u64,
    released: u64,
    released_bytes: u64,
}

/// What a policy is done to, and what it has come to so far.
struct Run<'a> {
    tier: &'a Arc<Tier>,
    policy: Policy,
    dry_run: bool,
    /// The file system is fuller than the policy lets it be without copies.
    archives: bool,
    request: &'a Request,
    tally: Tally,
    candidates: BinaryHeap<Candidate>,
}

/// Does what a policy says, or says what it would do. Without rules, those of the tier's home.
pub(crate) fn run(
    tier: &Arc<Tier>,
    rules: Option<(&str, &str)>,
    dry_run: bool,
    request: &Request,
    tell: &mut Tell<'_>,
) -> Result<()> {
    let policy = match rules {
        Some((rules, origin)) => Policy::parse(rules, origin)?,
        None => usual(tier)?,
    };
    let (tally, candidates) = (Tally::default(), BinaryHeap::new());
    let archives = match policy.watermarks {
        Some(Watermarks { premigrate, .. }) => fullness(tier)?.share() >= premigrate,
        None => true,
    };
    let mut run = Run { tier, policy, dry_run, archives, request, tally, candidates };
    tier.walk(b"", request, &mut |place| {
        if place.found.attr.kind == FileKind::Regular {
            run.tally.looked_at += 1;
            run.consider(&place, tell)?;
        }
        Ok(Visit::Into)
    })?;
    run.release_some(tell)?;
    let Tally { looked_at, archived, archived_bytes, released, released_bytes } = run.tally;
    total(
        tell,
        &[
            ("files", looked_at),
            ("archived", archived),
            ("archived_bytes", archived_bytes),
            ("released", released),
            ("released_bytes", released_bytes),
        ],
    )
}

/// The policy in the tier's home.
fn usual(tier: &Tier) -> Result<Policy> {
    let path = tier.settings().policy.as_ref().ok_or_else(|| Error::Refused {
        what: "the tier has no home with a policy: name one with --file".to_owned(),
    })?;
    let rules = std::fs::read_to_string(path).map_err(|source| Error::Refused {
        what: format!("can't read the policy {}: {source}; name one with --file", path.display()),
    })?;
    Policy::parse(&rules, &path.display().to_string())
}

impl Run<'_> {
    /// Archives a file where its rule says so, and remembers it where its bytes may go.
    fn consider(&mut self, place: &Place<'_>, tell: &mut Tell<'_>) -> Result<()> {
        let action = self.policy.decide(&facts(self.tier, &self.policy, place));
        if action == Action::Keep {
            return Ok(());
        }
        let state = state_of(self.tier, place)?;
        if needs_archiving(&state) {
            if !self.archives {
                return Ok(());
            }
            match self.archive(place, &state) {
                Ok(Archived::Now { bytes }) => {
                    self.tally.archived += 1;
                    self.tally.archived_bytes += bytes;
                }
                Ok(Archived::Before) => {}
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => return problem(tell, &error),
            }
        }
        if action == Action::Release && state.resident_bytes > 0 {
            self.candidates.push(candidate(place, state.resident_bytes));
            if self.candidates.len() > CANDIDATES_MAX {
                self.candidates.pop();
            }
        }
        Ok(())
    }

    fn archive(&self, place: &Place<'_>, state: &State) -> Result<Archived> {
        if self.dry_run {
            return Ok(Archived::Now { bytes: state.bytes });
        }
        self.tier.archive(place.found.ino(), place.path, self.request)
    }

    /// Releases candidates, those that were not used for longest first, as far as watermarks ask.
    fn release_some(&mut self, tell: &mut Tell<'_>) -> Result<()> {
        let mut wanted = bytes_wanted(self.tier, &self.policy)?;
        for candidate in std::mem::take(&mut self.candidates).into_sorted_vec() {
            if wanted == 0 {
                break;
            }
            let released =
                if self.dry_run { Ok(candidate.bytes) } else { release(self.tier, &candidate) };
            match released {
                Ok(bytes) => {
                    self.tally.released += u64::from(bytes > 0);
                    self.tally.released_bytes += bytes;
                    wanted = wanted.saturating_sub(bytes);
                }
                Err(error) => problem(tell, &error)?,
            }
        }
        Ok(())
    }
}

fn problem(tell: &mut Tell<'_>, error: &Error) -> Result<()> {
    let heard = tell(Event::Problem { what: error.to_string() });
    if heard { Ok(()) } else { Err(Error::Interrupted) }
}

fn needs_archiving(state: &State) -> bool {
    state.state == "resident" || state.changed
}

fn candidate(place: &Place<'_>, bytes: u64) -> Candidate {
    let attr = &place.found.attr;
    let used = last_use(attr);
    Candidate {
        used: (used.seconds, used.nanoseconds),
        ino: attr.ino.0,
        path: place.path.to_vec(),
        bytes,
    }
}

fn last_use(attr: &Attr) -> Timestamp {
    attr.accessed.max(attr.modified)
}

fn facts(tier: &Tier, policy: &Policy, place: &Place<'_>) -> Facts {
    let (attr, now) = (&place.found.attr, tier.surroundings().calendar.now());
    Facts {
        path: place.path.to_vec(),
        size: attr.size,
        uid: attr.uid,
        unchanged: age(attr.modified, now),
        unused: age(last_use(attr), now),
        is_pinned: is_pinned(tier, place.found),
        xattrs: policy.xattr_names().filter_map(|name| xattr_of(tier, place, name)).collect(),
    }
}

/// What can't be read is not there for a rule.
fn xattr_of(tier: &Tier, place: &Place<'_>, name: &str) -> Option<(String, Vec<u8>)> {
    let value = tier.lower().getxattr(&tier.request(), place.found.ino(), name.as_ref());
    Some((name.to_owned(), value.ok()?))
}

fn release(tier: &Arc<Tier>, candidate: &Candidate) -> Result<u64> {
    let found = Found::at(tier.lower(), &candidate.path).map_err(Error::below(&candidate.path))?;
    if found.ino() != Ino(candidate.ino) {
        return Ok(0);
    }
    Ok(tier.release(found.ino(), &candidate.path, 0)?.bytes)
}

/// Bytes that must be freed: all there are where no watermarks are given.
fn bytes_wanted(tier: &Tier, policy: &Policy) -> Result<u64> {
    let Some(Watermarks { high, low, .. }) = policy.watermarks else { return Ok(u64::MAX) };
    let full = fullness(tier)?;
    if full.share() <= high {
        return Ok(0);
    }
    Ok((full.used - low * full.all) as u64)
}

/// Bytes of the file system below.
struct Fullness {
    used: f64,
    all: f64,
}

impl Fullness {
    fn share(&self) -> f64 {
        if self.all > 0.0 { self.used / self.all } else { 0.0 }
    }
}

fn fullness(tier: &Tier) -> Result<Fullness> {
    let stat = tier.lower().statfs(&own_request(), Ino::ROOT).map_err(Error::below(b""))?;
    let bytes = |blocks: u64| blocks as f64 * f64::from(stat.fragment_size);
    Ok(Fullness {
        used: bytes(stat.blocks.saturating_sub(stat.blocks_free)),
        all: bytes(stat.blocks),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            path: b"home/ann/video.mkv".to_vec(),
            size: 5 << 20,
            uid: 1000,
            unchanged: Duration::from_secs(10 * 24 * 3600),
            unused: Duration::from_secs(2 * 24 * 3600),
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
        for (condition, fits) in [
            ("paths = ['**/*.mkv']", true),
            ("paths = ['*.iso']", false),
            ("users = [7, 1000]", true),
            ("users = [7]", false),
            ("larger = '5MiB'", true),
            ("larger = '6MiB'", false),
            ("smaller = '5MiB'", false),
            ("unchanged = '10d'", true),
            ("unchanged = '11d'", false),
            ("xattrs = ['user.project']", true),
            ("xattrs = ['user.project=blue']", true),
            ("xattrs = ['user.project=red']", false),
            ("xattrs = ['user.project', 'user.other']", false),
            ("unused = '48h'", true),
            ("unused = '3d'", false),
        ] {
            let rules = format!("[[rule]]\naction = 'archive'\n{condition}\n{release}");
            let action = if fits { Action::Archive } else { Action::Release };
            decides(&rules, &facts(), action);
        }
    }

    #[test]
    fn wrong_policies_are_refused_with_their_line() {
        for (rules, line, part) in [
            ("[[rule]]\naction = 'keep'\n[[rule]]\naction = 'burn'\n", 4, "burn"),
            ("[[rule]]\naction = 'keep'\nlarger = 'huge'\n", 1, "'huge' is no size"),
            ("[[rule]]\naction = 'keep'\nunused = '3 weeks'\n", 1, "'3 weeks' is no time"),
            ("[[rule]]\naction = 'keep'\nage = '3d'\n", 3, "age"),
            ("", 1, "at least one"),
            ("[watermarks]\nhigh = 0.5\nlow = 0.6\n[[rule]]\naction = 'keep'\n", 1, "shares"),
            (
                "[watermarks]\nhigh = 0.5\nlow = 0.0\npremigrate = 0.6\n[[rule]]\naction='keep'\n",
                1,
                "premigrate",
            ),
        ] {
            let message = Policy::parse(rules, "p.toml").unwrap_err().to_string();
            assert!(message.starts_with(&format!("p.toml, line {line}: ")), "{message}");
            assert!(message.contains(part), "{message}");
        }
    }
}
