//! The rules of a policy, and their parser: TOML into a [`Policy`], or an error with its line.

use std::io;
use std::time::Duration;

use fslab_sys::user_database;
use fslab_vfs::{Size, parse_duration};
use serde::Deserialize;
use toml::Spanned;

use super::conditions::{Conditions, Facts, FileType, glob};
use crate::engine::BUNDLED_BYTES_MAX;
use crate::error::{Error, Result, line_of};

/// The action of a rule. The variants are ordered from the least to the greatest effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Do nothing.
    Keep,
    /// Make copies in archives; the bytes remain resident.
    Archive,
    /// Make copies in archives; the bytes may be released.
    Release,
}

/// The parsed rules of a policy.
pub struct Policy {
    pub(super) watermarks: Option<Watermarks>,
    pub(super) settle: Duration,
    pub(super) stay: Duration,
    /// Files of at most this many bytes are bundled; `None` for the tier's setting.
    pub(super) bundled: Option<u64>,
    pub(super) rules: Vec<Rule>,
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Policy").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

impl Policy {
    /// Returns the action for a file.
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

    /// Returns whether any rule uses a property of files.
    pub(super) fn asks_for(&self, kind: FileType) -> bool {
        self.rules.iter().any(|rule| rule.asks_for(kind))
    }

    /// Returns the names of the xattrs that rules use.
    pub(super) fn xattr_names(&self) -> impl Iterator<Item = &String> {
        self.rules.iter().flat_map(|rule| rule.xattrs.iter().map(|(name, _)| name))
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    watermarks: Option<RawWatermarks>,
    /// Files that changed within this time are skipped.
    settle: Option<Spanned<String>>,
    /// Bytes that became resident within this time are kept.
    stay: Option<Spanned<String>>,
    /// Files up to this size are bundled.
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

/// Limits of the file system's used space, as shares of its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    /// Files are released if more than this share is used.
    pub high: f64,
    /// Files are released until at most this share is used.
    pub low: f64,
    /// Files are archived if at least this share is used, so that they can be released at once when
    /// needed.
    pub premigrate: f64,
}

pub(super) struct Rule {
    pub(super) action: Action,
    conditions: Conditions,
    types: Vec<FileType>,
    /// The required xattrs: names, each with a value if one is required.
    pub(super) xattrs: Vec<(String, Option<Vec<u8>>)>,
}

/// The text of a policy and its path, for errors with line numbers.
struct Origin<'a> {
    text: &'a str,
    path: &'a str,
}

impl Policy {
    /// Parses rules.
    ///
    /// # Errors
    /// An error with file, line and cause.
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
            return Err(origin.wrong(None, "a policy needs at least one [[rule]]".to_owned()));
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

    /// Returns a duration; zero if none is given.
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
                is_right.then_some(*mark).ok_or_else(|| format!("{name} must be a share {limit}"))
            })
        };
        let high = share("high", &self.high, 1.0, "from 0 to 1")?;
        let below = |name, mark| share(name, mark, high, "from 0 to the value of high");
        let low = below("low", &self.low)?;
        let premigrate = self.premigrate.as_ref().map(|mark| below("premigrate", mark));
        Ok(Watermarks { high, low, premigrate: premigrate.transpose()?.unwrap_or(0.0) })
    }
}

impl Rule {
    fn read(raw: &RawRule, origin: &Origin<'_>) -> Result<Self> {
        let conditions = Conditions {
            paths: origin.each(&raw.paths, |text| glob(text))?,
            users: origin.each(&raw.users, |user| number(user, "user", user_database::user))?,
            groups: origin
                .each(&raw.groups, |group| number(group, "group", user_database::group))?,
            larger: origin.size(raw.larger.as_ref(), 0)?,
            smaller: origin.size(raw.smaller.as_ref(), u64::MAX)?,
            unchanged: origin.duration(raw.unchanged.as_ref())?,
            unused: origin.duration(raw.unused.as_ref())?,
        };
        let xattrs = raw.xattrs.iter().map(|text| xattr(text)).collect();
        Ok(Self { action: raw.action, conditions, types: raw.types.clone(), xattrs })
    }

    pub(super) fn fits(&self, facts: &Facts) -> bool {
        let has_type =
            self.types.is_empty() || self.types.iter().any(|kind| facts.types.contains(kind));
        let has_xattrs = self.xattrs.iter().all(|(name, wanted)| {
            let found = facts.xattrs.iter().find(|(found, _)| found == name);
            found.is_some_and(|(_, value)| wanted.as_ref().is_none_or(|wanted| wanted == value))
        });
        self.conditions.hold_for(facts) && has_type && has_xattrs
    }

    pub(super) fn asks_for(&self, kind: FileType) -> bool {
        self.types.contains(&kind)
    }
}

/// Returns the ID of a user or group. As with `chown`, text that is not a name may be a number.
fn number(
    account: &Account,
    kind: &str,
    look_up: impl Fn(&str) -> io::Result<Option<u32>>,
) -> Result<u32, String> {
    match account {
        Account::Number(number) => Ok(*number),
        Account::Name(name) => number_of(name, kind, look_up),
    }
}

/// Parses a user of a query: a name or a number.
///
/// # Errors
/// There is no such user, or the name service has an error.
pub fn parse_user(name: &str) -> Result<u32, String> {
    number_of(name, "user", user_database::user)
}

/// Parses a group of a query: a name or a number.
///
/// # Errors
/// There is no such group, or the name service has an error.
pub fn parse_group(name: &str) -> Result<u32, String> {
    number_of(name, "group", user_database::group)
}

fn number_of(
    name: &str,
    kind: &str,
    look_up: impl Fn(&str) -> io::Result<Option<u32>>,
) -> Result<u32, String> {
    let found = look_up(name).map_err(|error| format!("can't look up {kind} '{name}': {error}"))?;
    let number = found.or_else(|| name.parse().ok());
    number.ok_or_else(|| format!("there is no {kind} '{name}'"))
}

/// Parses an xattr condition: a name such as `user.keep`, or a name with a required value such as
/// `user.keep=yes`.
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
    is_small
        .then_some(size)
        .ok_or_else(|| format!("'{text}': bundled files can have at most 1 MiB"))
}
