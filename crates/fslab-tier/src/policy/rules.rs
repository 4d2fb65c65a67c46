//! The rules of a policy, and their parser: TOML into a [`Policy`], or an error with its line.

use std::io;
use std::path::Path;
use std::time::Duration;

use fslab_sys::user_database;
use fslab_vfs::{Size, parse_duration};
use globset::{Glob, GlobMatcher};
use serde::Deserialize;
use toml::Spanned;

use crate::engine::BUNDLED_BYTES_MAX;
use crate::error::{Error, Result, line_of};

/// What a rule asks for, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Nothing is done.
    Keep,
    /// Copies are made; the bytes stay.
    Archive,
    /// Copies are made, and the bytes may go.
    Release,
}

/// What a file may be beside a plain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileType {
    /// Somebody may execute it.
    Executable,
    /// It takes less space than its length says, what is in archives alone counted as if it was
    /// here: it has holes, or the file system compresses it.
    Sparse,
    /// It has several names.
    Linked,
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
    /// Its group.
    pub gid: u32,
    /// What it is beside a plain file; sparse only where a rule asks for that.
    pub types: Vec<FileType>,
    /// Since the last change of its contents.
    pub unchanged: Duration,
    /// Since it was read or changed last.
    pub unused: Duration,
    /// Since its bytes came here last: it was made, written to, or recalled.
    pub here_for: Duration,
    /// Its owner wants it here.
    pub is_pinned: bool,
    /// Those of its xattrs that rules ask for.
    pub xattrs: Vec<(String, Vec<u8>)>,
}

/// Rules, read and checked.
pub struct Policy {
    pub(super) watermarks: Option<Watermarks>,
    pub(super) settle: Duration,
    pub(super) stay: Duration,
    /// Files of so many bytes or fewer go out together; as the tier has it if not said.
    pub(super) bundled: Option<u64>,
    pub(super) rules: Vec<Rule>,
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Policy").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

impl Policy {
    /// What is to be done with a file.
    #[must_use]
    pub fn decide(&self, facts: &Facts) -> Action {
        if facts.unchanged < self.settle {
            return Action::Keep;
        }
        let rule = self.rules.iter().find(|rule| rule.fits(facts));
        match rule.map_or(Action::Keep, |rule| rule.action) {
            Action::Release if facts.is_pinned || facts.here_for < self.stay => Action::Archive,
            action => action,
        }
    }

    /// Whether a rule asks whether files are of a type.
    pub(super) fn asks_for(&self, kind: FileType) -> bool {
        self.rules.iter().any(|rule| rule.asks_for(kind))
    }

    /// Names of xattrs that rules ask for.
    pub(super) fn xattr_names(&self) -> impl Iterator<Item = &String> {
        self.rules.iter().flat_map(|rule| rule.xattrs.iter().map(|(name, _)| name))
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    watermarks: Option<RawWatermarks>,
    /// Files that changed less long ago stay alone.
    settle: Option<Spanned<String>>,
    /// Bytes that came less long ago stay here.
    stay: Option<Spanned<String>>,
    /// Files up to this size go out together.
    bundle: Option<Spanned<String>>,
    #[serde(default, rename = "rule")]
    rules: Vec<RawRule>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    action: Action,
    #[serde(default)]
    paths: Vec<Spanned<String>>,
    #[serde(default)]
    users: Vec<Spanned<Account>>,
    #[serde(default)]
    groups: Vec<Spanned<Account>>,
    #[serde(default)]
    types: Vec<FileType>,
    #[serde(default)]
    xattrs: Vec<String>,
    larger: Option<Spanned<String>>,
    smaller: Option<Spanned<String>>,
    unchanged: Option<Spanned<String>>,
    unused: Option<Spanned<String>>,
}

/// A user or a group.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a name or a number")]
enum Account {
    Number(u32),
    Name(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWatermarks {
    high: Spanned<f64>,
    low: Spanned<f64>,
    premigrate: Option<Spanned<f64>>,
}

/// How full the file system may be, as shares of its space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    /// Above this, files are released.
    pub high: f64,
    /// Until it is no fuller than this.
    pub low: f64,
    /// Above this, files are archived, so that they can be released at once when that is needed.
    pub premigrate: f64,
}

pub(super) struct Rule {
    pub(super) action: Action,
    paths: Vec<GlobMatcher>,
    users: Vec<u32>,
    groups: Vec<u32>,
    types: Vec<FileType>,
    /// Names, and values where one is asked for.
    pub(super) xattrs: Vec<(String, Option<Vec<u8>>)>,
    larger: u64,
    smaller: u64,
    unchanged: Duration,
    unused: Duration,
}

/// A text in which every error has its line.
struct Origin<'a> {
    text: &'a str,
    path: &'a str,
}

impl Policy {
    /// Reads rules.
    ///
    /// # Errors
    /// Names file, line and what is wrong.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let origin = Origin { text, path: origin };
        let raw: RawPolicy = toml::from_str(text)
            .map_err(|error| origin.wrong(error.span(), error.message().to_owned()))?;
        let watermarks = raw.watermarks.as_ref().map(|marks| marks.read(&origin)).transpose()?;
        let bundled = raw.bundle.as_ref().map(|size| origin.read(size, |size| bundled(size)));
        let rules = raw.rules.iter().map(|rule| Rule::read(rule, &origin)).collect::<Result<_>>();
        let policy = Self {
            watermarks,
            settle: origin.duration(raw.settle.as_ref())?,
            stay: origin.duration(raw.stay.as_ref())?,
            bundled: bundled.transpose()?,
            rules: rules?,
        };
        if policy.rules.is_empty() {
            return Err(origin.wrong(None, "a policy has at least one [[rule]]".to_owned()));
        }
        Ok(policy)
    }
}

impl Origin<'_> {
    fn wrong(&self, span: Option<std::ops::Range<usize>>, what: String) -> Error {
        Error::Settings { path: self.path.into(), line: line_of(self.text, span), what }
    }

    fn read<T, U>(
        &self,
        value: &Spanned<T>,
        read: impl FnOnce(&T) -> Result<U, String>,
    ) -> Result<U> {
        read(value.get_ref()).map_err(|what| self.wrong(Some(value.span()), what))
    }

    /// Nothing said is no time at all.
    fn duration(&self, time: Option<&Spanned<String>>) -> Result<Duration> {
        time.map_or(Ok(Duration::ZERO), |time| self.read(time, |time| parse_duration(time)))
    }

    fn size(&self, size: Option<&Spanned<String>>, default: u64) -> Result<u64> {
        size.map_or(Ok(default), |size| self.read(size, |size| bytes(size)))
    }

    fn each<T, U>(
        &self,
        values: &[Spanned<T>],
        read: impl Fn(&T) -> Result<U, String>,
    ) -> Result<Vec<U>> {
        values.iter().map(|value| self.read(value, &read)).collect()
    }
}

impl RawWatermarks {
    fn read(&self, origin: &Origin<'_>) -> Result<Watermarks> {
        let share = |name, mark: &Spanned<f64>, most: f64, limit| {
            origin.read(mark, |mark| {
                let is_right = (0.0..=most).contains(mark);
                is_right.then_some(*mark).ok_or_else(|| format!("{name} is a share {limit}"))
            })
        };
        let high = share("high", &self.high, 1.0, "from 0 to 1")?;
        let below = |name, mark| share(name, mark, high, "from 0 to what high says");
        let low = below("low", &self.low)?;
        let premigrate = self.premigrate.as_ref().map(|mark| below("premigrate", mark));
        Ok(Watermarks { high, low, premigrate: premigrate.transpose()?.unwrap_or(0.0) })
    }
}

impl Rule {
    fn read(raw: &RawRule, origin: &Origin<'_>) -> Result<Self> {
        Ok(Self {
            action: raw.action,
            paths: origin.each(&raw.paths, |text| glob(text))?,
            users: origin.each(&raw.users, |user| number(user, "user", user_database::user))?,
            groups: origin
                .each(&raw.groups, |group| number(group, "group", user_database::group))?,
            types: raw.types.clone(),
            xattrs: raw.xattrs.iter().map(|text| xattr(text)).collect(),
            larger: origin.size(raw.larger.as_ref(), 0)?,
            smaller: origin.size(raw.smaller.as_ref(), u64::MAX)?,
            unchanged: origin.duration(raw.unchanged.as_ref())?,
            unused: origin.duration(raw.unused.as_ref())?,
        })
    }

    pub(super) fn fits(&self, facts: &Facts) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(&facts.path));
        let has_path = self.paths.is_empty() || self.paths.iter().any(|glob| glob.is_match(path));
        let has_owner = is_one_of(&self.users, &facts.uid) && is_one_of(&self.groups, &facts.gid);
        let has_type =
            self.types.is_empty() || self.types.iter().any(|kind| facts.types.contains(kind));
        let has_size = facts.size >= self.larger && facts.size < self.smaller;
        let is_old = facts.unchanged >= self.unchanged && facts.unused >= self.unused;
        let has_xattrs = self.xattrs.iter().all(|(name, wanted)| {
            let found = facts.xattrs.iter().find(|(found, _)| found == name);
            found.is_some_and(|(_, value)| wanted.as_ref().is_none_or(|wanted| wanted == value))
        });
        has_path && has_owner && has_type && has_size && is_old && has_xattrs
    }

    pub(super) fn asks_for(&self, kind: FileType) -> bool {
        self.types.contains(&kind)
    }
}

/// Whether something fits a condition; any does where none is given.
fn is_one_of<T: PartialEq>(wanted: &[T], found: &T) -> bool {
    wanted.is_empty() || wanted.contains(found)
}

fn glob(text: &str) -> Result<GlobMatcher, String> {
    Ok(Glob::new(text).map_err(|error| error.to_string())?.compile_matcher())
}

/// The number of a user or group by its name, or, as with `chown`, by the number in its place.
fn number(
    account: &Account,
    kind: &str,
    look_up: impl Fn(&str) -> io::Result<Option<u32>>,
) -> Result<u32, String> {
    let name = match account {
        Account::Number(number) => return Ok(*number),
        Account::Name(name) => name,
    };
    let found = look_up(name).map_err(|error| format!("can't look up {kind} '{name}': {error}"))?;
    let number = found.or_else(|| name.parse().ok());
    number.ok_or_else(|| format!("there is no {kind} '{name}'"))
}

/// An xattr as people write it: `user.keep`, or `user.keep=yes` for one value only.
fn xattr(text: &str) -> (String, Option<Vec<u8>>) {
    match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.as_bytes().to_vec())),
        None => (text.to_owned(), None),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<Size>().map(Size::bytes)
}

fn bundled(text: &str) -> Result<u64, String> {
    let size = bytes(text)?;
    let is_small = size <= BUNDLED_BYTES_MAX;
    is_small.then_some(size).ok_or_else(|| format!("'{text}': what is bundled is at most 1 MiB"))
}
