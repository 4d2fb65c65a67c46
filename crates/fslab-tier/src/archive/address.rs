//! The address of an archive: a URL such as `dir:/mnt/archive`.
//!
//! The text after the scheme is the location, which the kind interprets. Bytes that a URL may not
//! contain are written as `%XX`, so every location has one URL, and each URL is ASCII. Text without
//! a scheme is the path of a directory archive.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display, Formatter};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::kind::{ArchiveKindSpec, NewArchive, Purpose};
use super::registry::{OWN, archive_kinds};
use super::{Archive, ArchiveDescription, Writer};
use crate::cleanup::Cleanup;
use crate::error::{Error, Result};
use crate::id::Id;

/// The kind and the location of an archive.
#[derive(Clone)]
pub struct ArchiveAddress {
    kind: &'static ArchiveKindSpec,
    location: OsString,
}

impl ArchiveAddress {
    /// Parses a URL or a plain path. A relative path remains relative.
    ///
    /// # Errors
    /// If no kind has the scheme, or the text is not a URL.
    pub fn parse(text: &OsStr) -> Result<Self> {
        let wrong = |what: String| Error::Refused {
            what: format!("archive '{}': {what}", text.to_string_lossy()),
        };
        let Some((scheme, location)) = split_scheme(text.as_bytes()) else {
            return Ok(Self::from(Path::new(text)));
        };
        let Some(kind) = archive_kinds().find(|kind| kind.name == scheme) else {
            let known: Vec<_> = archive_kinds().map(|kind| kind.name).collect();
            let known = known.join(", ");
            return Err(wrong(format!("unknown kind of archive; known kinds: {known}")));
        };
        let location = decoded(location)
            .ok_or_else(|| wrong("each % must be followed by two hexadecimal digits".to_owned()))?;
        match location.as_slice() {
            [] => Err(wrong("nothing follows the scheme".to_owned())),
            location if location.contains(&0) => Err(wrong("it contains a NUL byte".to_owned())),
            _ => Ok(Self { kind, location: OsString::from_vec(location) }),
        }
    }

    /// Returns the name of the archive in messages: the path of a directory, otherwise the URL.
    #[must_use]
    pub fn label(&self) -> String {
        match self.local_path() {
            Some(path) => path.display().to_string(),
            None => self.to_string(),
        }
    }

    /// Returns the directory of the archive, if the archive is a local directory.
    #[must_use]
    pub fn local_path(&self) -> Option<PathBuf> {
        (self.kind.local_path)(&self.location)
    }

    /// Returns the file that a writer keeps locked, if this kind of archive has one.
    #[must_use]
    pub fn lock_file(&self) -> Option<PathBuf> {
        (self.kind.lock_file)(&self.location)
    }

    /// Returns the same address with symbolic links resolved.
    ///
    /// # Errors
    /// If nothing exists at the address.
    pub fn canonical(&self) -> Result<Self> {
        Ok(Self { location: (self.kind.canonical)(&self.location)?, ..self.clone() })
    }

    /// Returns whether an archive of any owner exists at the address.
    #[must_use]
    pub fn is_made(&self) -> bool {
        (self.kind.is_made)(&self.location)
    }

    /// Checks that an archive can be created at the address. Creates nothing.
    ///
    /// # Errors
    /// If an archive can't be created. The message contains the reason.
    pub fn check_place(&self) -> Result<()> {
        (self.kind.check_place)(&self.location)
    }

    /// Makes an empty archive. Dropping the result removes it.
    ///
    /// # Errors
    /// If something already exists at the address. A failed call leaves no files behind.
    pub(crate) fn make(&self, new: &NewArchive<'_>) -> Result<Cleanup> {
        (self.kind.make)(&self.location, new)
    }

    /// Returns the archive's description, without opening it.
    ///
    /// # Errors
    /// If no archive exists at the address, or it was made by a later fslab.
    pub fn describe(&self) -> Result<ArchiveDescription> {
        (self.kind.describe)(&self.location)
    }

    /// Opens the archive for its owner. Opening it for writing takes its lease.
    ///
    /// # Errors
    /// If the archive belongs to another tier, or is in use.
    pub(super) fn open(&self, owner: Id, purpose: &Purpose) -> Result<Arc<dyn Archive>> {
        (self.kind.open)(&self.location, owner, purpose)
    }

    /// Makes a tree the writer of this archive, in place of the previous writer.
    ///
    /// # Errors
    /// If the archive belongs to another tier, or is in use.
    pub fn take_over(&self, owner: Id, writer: &Writer) -> Result<()> {
        (self.kind.take_over)(&self.location, owner, writer)
    }

    /// Describes the tree that writes to the archive, with the time when it became the writer and
    /// the time of the last write.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn holder(&self) -> Result<String> {
        (self.kind.holder)(&self.location)
    }

    /// Returns the reason why the archive retains deleted containers, for users; `None` if it frees
    /// their space.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn retention(&self) -> Result<Option<String>> {
        (self.kind.retention)(&self.location)
    }

    /// Returns the reason why a tree may only read the archive; `None` if it may write.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn refusal(&self, writer: Option<&Writer>) -> Result<Option<String>> {
        (self.kind.refusal)(&self.location, writer)
    }
}

impl From<&Path> for ArchiveAddress {
    /// Returns the address of a directory.
    fn from(path: &Path) -> Self {
        // A path without a scheme belongs to the first kind, `dir`.
        Self { kind: OWN[0], location: path.as_os_str().to_owned() }
    }
}

impl From<PathBuf> for ArchiveAddress {
    fn from(path: PathBuf) -> Self {
        Self::from(path.as_path())
    }
}

impl FromStr for ArchiveAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(OsStr::new(text))
    }
}

impl Display for ArchiveAddress {
    /// Writes the URL.
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:", self.kind.name)?;
        self.location.as_bytes().iter().try_for_each(|byte| match byte {
            byte if is_plain(*byte) => write!(formatter, "{}", char::from(*byte)),
            byte => write!(formatter, "%{byte:02X}"),
        })
    }
}

impl fmt::Debug for ArchiveAddress {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "ArchiveAddress({self})")
    }
}

impl PartialEq for ArchiveAddress {
    fn eq(&self, other: &Self) -> bool {
        (self.kind.name, &self.location) == (other.kind.name, &other.location)
    }
}

impl Eq for ArchiveAddress {}

impl Serialize for ArchiveAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ArchiveAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Splits a URL into its scheme and its location. As in RFC 3986, a scheme begins with a letter and
/// contains no slash.
fn split_scheme(text: &[u8]) -> Option<(&str, &[u8])> {
    let end = text.iter().position(|byte| *byte == b':')?;
    let (scheme, location) = (&text[..end], &text[end + 1..]);
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let is_scheme = scheme.first()?.is_ascii_alphabetic() && scheme.iter().all(is_inner);
    Some((std::str::from_utf8(scheme).ok().filter(|_| is_scheme)?, location))
}

/// Returns whether a byte is written to a URL without an escape.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=:@".contains(&byte)
}

fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = after;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: impl AsRef<OsStr>) -> Result<ArchiveAddress> {
        ArchiveAddress::parse(text.as_ref())
    }

    #[track_caller]
    fn check_round_trip(path: &[u8]) {
        let address = ArchiveAddress::from(Path::new(OsStr::from_bytes(path)));
        let url = address.to_string();
        assert!(
            url.starts_with("dir:") && url.bytes().all(|byte| byte.is_ascii_graphic()),
            "{url}"
        );
        let again: ArchiveAddress = url.parse().unwrap();
        assert_eq!(again, address);
        assert_eq!(again.local_path().unwrap().as_os_str().as_bytes(), path, "{url}");
    }

    #[test]
    fn every_path_round_trips_through_its_url() {
        for first in 1..=u8::MAX {
            check_round_trip(&[b'/', first]);
            for second in 1..=u8::MAX {
                check_round_trip(&[b'/', b'a', first, second]);
            }
        }
        for path in ["/", "//two/slashes", "/a/../b", "/100%25", "/%", "/dir:/x", "/new\nline "] {
            check_round_trip(path.as_bytes());
        }
    }

    #[test]
    fn url_escapes_only_bytes_that_need_it() {
        let cases: [(&[u8], &str); 4] = [
            (b"/mnt/archive-1_a.b~c", "dir:/mnt/archive-1_a.b~c"),
            (b"/my disk/50%\n", "dir:/my%20disk/50%25%0A"),
            (b"/a?b#c", "dir:/a%3Fb%23c"),
            (b"/\xff\xc3\xa4", "dir:/%FF%C3%A4"),
        ];
        for (path, url) in cases {
            let address = ArchiveAddress::from(Path::new(OsStr::from_bytes(path)));
            assert_eq!(address.to_string(), url);
        }
    }

    #[test]
    fn text_without_a_scheme_is_a_literal_path() {
        for path in ["/a%20b", "/a b", "relative", "./dir:/x", "/c:/x", "1:x", ":x", "a b:c", ""] {
            let address = parse(path).unwrap();
            assert_eq!(address.local_path().unwrap(), Path::new(path));
        }
    }

    /// Users may type spaces and non-ASCII letters into a URL without escaping them.
    #[test]
    fn url_with_unescaped_spaces_and_non_ascii_is_accepted() {
        let expected = ArchiveAddress::from(Path::new("/my disk/\u{e4}?"));
        assert_eq!(parse("dir:/my disk/\u{e4}?").unwrap(), expected);
        assert_eq!(parse("dir:/my%20disk/%c3%A4%3f").unwrap(), expected);
    }

    #[test]
    fn wrong_urls_are_refused_in_one_line() {
        let cases = [
            ("s3://x", "archive 's3://x': unknown kind of archive; known kinds: dir"),
            ("DIR:/x", "archive 'DIR:/x': unknown kind of archive; known kinds: dir"),
            ("dir:", "archive 'dir:': nothing follows the scheme"),
            ("dir:/%0", "archive 'dir:/%0': each % must be followed by two hexadecimal digits"),
            ("dir:/%+1", "archive 'dir:/%+1': each % must be followed by two hexadecimal digits"),
            ("dir:/a%00b", "archive 'dir:/a%00b': it contains a NUL byte"),
        ];
        for (text, message) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }
}
