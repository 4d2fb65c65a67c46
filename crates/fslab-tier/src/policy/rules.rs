//! Reading rules: TOML that people write, into a [`Policy`] that is right or refused with its line.

use std::path::Path;
use std::time::Duration;

use fslab_vfs::{Size, parse_duration};
use globset::{Glob, GlobMatcher};
use serde::Deserialize;

use super::{Action, Facts, Policy};
use crate::engine::BUNDLED_BYTES_MAX;
use crate::error::{Error, Result};
use crate::home::line_of;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    watermarks: Option<Watermarks>,
    /// Files that changed less long ago stay alone.
    #[serde(default)]
    settle: Option<toml::Spanned<String>>,
    /// Bytes that came less long ago stay here.
    #[serde(default)]
    stay: Option<toml::Spanned<String>>,
    /// Files up to this size go out together.
    #[serde(default)]
    bundle: Option<toml::Spanned<String>>,
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

pub(super) struct Rule {
    pub(super) action: Action,
    paths: Vec<GlobMatcher>,
    users: Vec<u32>,
    /// Names, and values where one is asked for.
    pub(super) xattrs: Vec<(String, Option<Vec<u8>>)>,
    larger: u64,
    smaller: u64,
    unchanged: Duration,
    unused: Duration,
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
        let time = |time: &Option<toml::Spanned<String>>| match time {
            Some(time) => parse_duration(time.get_ref())
                .map_err(|what| wrong(line_of(text, Some(time.span())), what)),
            None => Ok(Duration::ZERO),
        };
        let bundled = raw.bundle.as_ref().map(|size| {
            bundled(size.get_ref()).map_err(|what| wrong(line_of(text, Some(size.span())), what))
        });
        let bundled = bundled.transpose()?;
        let (settle, stay) = (time(&raw.settle)?, time(&raw.stay)?);
        let mut rules = Vec::new();
        for rule in &raw.rules {
            let line = line_of(text, Some(rule.span()));
            rules.push(Rule::new(rule.get_ref()).map_err(|what| wrong(line, what))?);
        }
        if rules.is_empty() {
            return Err(wrong(1, "a policy has at least one [[rule]]".to_owned()));
        }
        Ok(Self { watermarks: raw.watermarks, settle, stay, bundled, rules })
    }
}

impl Rule {
    fn new(raw: &RawRule) -> Result<Self, String> {
        let size = |text: &Option<String>, default| text.as_deref().map_or(Ok(default), bytes);
        let time =
            |text: &Option<String>| text.as_deref().map_or(Ok(Duration::ZERO), parse_duration);
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

    pub(super) fn fits(&self, facts: &Facts) -> bool {
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

fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<Size>().map(Size::bytes)
}

fn bundled(text: &str) -> Result<u64, String> {
    let size = bytes(text)?;
    let is_small = size <= BUNDLED_BYTES_MAX;
    is_small.then_some(size).ok_or_else(|| format!("'{text}': what is bundled is at most 1 MiB"))
}
