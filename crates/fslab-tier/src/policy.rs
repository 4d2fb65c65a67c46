//! Which files go, and when: rules in TOML, which decide and do nothing.
//!
//! The first rule that fits a file decides. Where watermarks are given, files are released only
//! while the file system is fuller than `high`, those that were not used for longest first, until
//! it is no fuller than `low`.

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
}

struct Rule {
    action: Action,
    paths: Vec<GlobMatcher>,
    users: Vec<u32>,
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
        if let Some(Watermarks { high, low }) = raw.watermarks
            && !(0.0 <= low && low <= high && high <= 1.0)
        {
            return Err(wrong(1, "watermarks are shares from 0 to 1, low below high".to_owned()));
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
        has_path && has_user && has_size && is_old
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

/// Does what a policy says, or says what it would do.
pub(crate) fn run(
    tier: &Arc<Tier>,
    rules: &str,
    origin: &str,
    dry_run: bool,
    request: &Request,
    tell: &mut Tell<'_>,
) -> Result<()> {
    let policy = Policy::parse(rules, origin)?;
    let mut tally = Tally::default();
    let mut candidates: BinaryHeap<Candidate> = BinaryHeap::new();
    tier.walk(b"", request, &mut |place| {
        if place.found.attr.kind == FileKind::Regular {
            tally.looked_at += 1;
            consider(tier, &policy, &place, dry_run, request, &mut tally, &mut candidates, tell)?;
        }
        Ok(Visit::Into)
    })?;
    release_some(tier, &policy, candidates, dry_run, &mut tally, tell)?;
    total(
        tell,
        &[
            ("files", tally.looked_at),
            ("archived", tally.archived),
            ("archived_bytes", tally.archived_bytes),
            ("released", tally.released),
            ("released_bytes", tally.released_bytes),
        ],
    )
}

#[allow(clippy::too_many_arguments, reason = "one step of a loop that was too long")]
fn consider(
    tier: &Arc<Tier>,
    policy: &Policy,
    place: &Place<'_>,
    dry_run: bool,
    request: &Request,
    tally: &mut Tally,
    candidates: &mut BinaryHeap<Candidate>,
    tell: &mut Tell<'_>,
) -> Result<()> {
    let action = policy.decide(&facts(tier, place));
    if action == Action::Keep {
        return Ok(());
    }
    let state = state_of(tier, place)?;
    if needs_archiving(&state) {
        let done = if dry_run {
            Ok(Archived::Now { bytes: state.bytes })
        } else {
            tier.archive(place.found.ino(), place.path, request)
        };
        match done {
            Ok(Archived::Now { bytes }) => {
                tally.archived += 1;
                tally.archived_bytes += bytes;
            }
            Ok(Archived::Before) => {}
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => return problem(tell, &error),
        }
    }
    if action == Action::Release && state.resident_bytes > 0 {
        candidates.push(candidate(place, state.resident_bytes));
        if candidates.len() > CANDIDATES_MAX {
            candidates.pop();
        }
    }
    Ok(())
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

fn facts(tier: &Tier, place: &Place<'_>) -> Facts {
    let (attr, now) = (&place.found.attr, tier.surroundings().calendar.now());
    Facts {
        path: place.path.to_vec(),
        size: attr.size,
        uid: attr.uid,
        unchanged: age(attr.modified, now),
        unused: age(last_use(attr), now),
        is_pinned: is_pinned(tier, place.found),
    }
}

/// Releases candidates, those that were not used for longest first, as far as watermarks ask.
fn release_some(
    tier: &Arc<Tier>,
    policy: &Policy,
    candidates: BinaryHeap<Candidate>,
    dry_run: bool,
    tally: &mut Tally,
    tell: &mut Tell<'_>,
) -> Result<()> {
    let mut wanted = bytes_wanted(tier, policy)?;
    for candidate in candidates.into_sorted_vec() {
        if wanted == 0 {
            break;
        }
        let released = if dry_run { Ok(candidate.bytes) } else { release(tier, &candidate) };
        match released {
            Ok(bytes) => {
                tally.released += u64::from(bytes > 0);
                tally.released_bytes += bytes;
                wanted = wanted.saturating_sub(bytes);
            }
            Err(error) => problem(tell, &error)?,
        }
    }
    Ok(())
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
    let Some(Watermarks { high, low }) = policy.watermarks else { return Ok(u64::MAX) };
    let stat = tier.lower().statfs(&own_request(), Ino::ROOT).map_err(Error::below(b""))?;
    let unit = u64::from(stat.fragment_size);
    let (all, free) = (stat.blocks * unit, stat.blocks_free * unit);
    let used = all.saturating_sub(free) as f64;
    if used <= high * all as f64 {
        return Ok(0);
    }
    Ok((used - low * all as f64) as u64)
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
        ] {
            let message = Policy::parse(rules, "p.toml").unwrap_err().to_string();
            assert!(message.starts_with(&format!("p.toml, line {line}: ")), "{message}");
            assert!(message.contains(part), "{message}");
        }
    }
}
