//! Parses locations: `//BUCKET/PREFIX`, followed by options such as `;profile=backup`.

use std::ffi::OsStr;
use std::time::Duration;

use crate::restore_options::{RestoreOptions, Retrieval};

/// A parsed location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub bucket: String,
    /// The common prefix of all keys, without a slash at the end.
    pub prefix: String,
    /// The profile with the keys, the region and the endpoint. With `None`, environment variables
    /// take precedence over a profile.
    pub profile: Option<String>,
    /// Whether HTTP without TLS is allowed even to other machines.
    pub plain_http: bool,
    /// The duration of a writer's lease without a renewal.
    pub lease: Duration,
    /// The time without progress after which a request fails.
    pub stall: Duration,
    /// How objects in cold storage classes are restored.
    pub restore: RestoreOptions,
}

/// The syntax of a location, for messages.
pub const FORM: &str = "s3://BUCKET/PREFIX";

/// The default lease of a writer, in seconds.
const LEASE_SECONDS: u64 = 60;

/// The longest lease, in seconds. It limits how long a new writer waits for a dead one.
pub const LEASE_SECONDS_MAX: u64 = 3600;

/// The default time without progress, in seconds.
const STALL_SECONDS: u64 = 30;

/// For how many days a store keeps a restored copy of an object in cold storage. Recalled blocks
/// are then in the tree.
const RESTORE_DAYS: u32 = 2;

/// The longest time for a restored copy, in days.
const RESTORE_DAYS_MAX: u32 = 365;

/// The longest prefix, in bytes. A key has at most 1024 bytes.
const PREFIX_BYTES_MAX: usize = 512;

impl Location {
    /// Parses a location, without the scheme.
    ///
    /// # Errors
    /// Returns a message if the location is wrong.
    pub fn parse(location: &OsStr) -> Result<Self, String> {
        let wrong = |what: &str| format!("{what}; the form is {FORM}");
        let text = location.to_str().ok_or_else(|| wrong("it is not UTF-8"))?;
        let text = text.strip_prefix("//").ok_or_else(|| wrong("// must follow the scheme"))?;
        let (place, options) = text.split_once(';').unwrap_or((text, ""));
        let (bucket, prefix) = place.split_once('/').ok_or_else(|| wrong("it has no prefix"))?;
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !is_bucket(bucket) {
            return Err(wrong("a bucket name has 3 to 63 characters of a-z, 0-9, . and -"));
        }
        if !is_prefix(prefix) {
            return Err(wrong(
                "a prefix consists of one or more names of A-Z, a-z, 0-9, . _ and -, separated by \
                 /",
            ));
        }
        let mut parsed = Self {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            profile: None,
            plain_http: false,
            lease: Duration::from_secs(LEASE_SECONDS),
            stall: Duration::from_secs(STALL_SECONDS),
            restore: RestoreOptions { retrieval: Retrieval::default(), days: RESTORE_DAYS },
        };
        for option in options.split(';').filter(|option| !option.is_empty()) {
            parsed.set(option)?;
        }
        Ok(parsed)
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match (name, value) {
            ("profile", name) if !name.is_empty() => self.profile = Some(name.to_owned()),
            ("plain-http", "yes") => self.plain_http = true,
            ("lease", value) => self.lease = seconds(name, value)?,
            ("stall", value) => self.stall = seconds(name, value)?,
            ("restore-days", value) => {
                let days = value.parse().ok().filter(|days| (1..=RESTORE_DAYS_MAX).contains(days));
                let wrong =
                    || format!("{name} must be a number of days from 1 to {RESTORE_DAYS_MAX}");
                self.restore.days = days.ok_or_else(wrong)?;
            }
            ("retrieval", value) => {
                let wrong = || format!("{name} must be expedited, standard or bulk");
                self.restore.retrieval = Retrieval::parse(value).ok_or_else(wrong)?;
            }
            _ => {
                return Err(format!(
                    "unknown option '{option}'; known options: profile=NAME, plain-http=yes, \
                     lease=SECONDS, stall=SECONDS, restore-days=DAYS, retrieval=SPEED"
                ));
            }
        }
        Ok(())
    }
}

fn seconds(name: &str, value: &str) -> Result<Duration, String> {
    let seconds = value.parse().ok().filter(|value| (2..=LEASE_SECONDS_MAX).contains(value));
    let wrong = || format!("{name} must be a number of seconds from 2 to {LEASE_SECONDS_MAX}");
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

fn is_bucket(name: &str) -> bool {
    let is_inner = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.' || byte == b'-'
    };
    (3..=63).contains(&name.len()) && name.bytes().all(is_inner) && !name.starts_with('.')
}

fn is_prefix(prefix: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_name =
        |name: &str| !name.is_empty() && name != "." && name != ".." && name.bytes().all(is_inner);
    prefix.len() <= PREFIX_BYTES_MAX && prefix.split('/').all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location, String> {
        Location::parse(OsStr::new(text))
    }

    #[test]
    fn location_has_bucket_prefix_and_options() {
        let plain = parse("//my-bucket/a/b/").unwrap();
        assert_eq!((plain.bucket.as_str(), plain.prefix.as_str()), ("my-bucket", "a/b"));
        assert_eq!((plain.profile, plain.plain_http, plain.lease.as_secs()), (None, false, 60));
        let full = parse("//bucket/p;profile=x;plain-http=yes;lease=5").unwrap();
        assert_eq!(full.profile.as_deref(), Some("x"));
        assert_eq!((full.plain_http, full.lease.as_secs()), (true, 5));
        assert_eq!((full.restore.days, full.restore.retrieval), (2, Retrieval::Standard));
        let cold = parse("//bucket/p;restore-days=7;retrieval=bulk").unwrap().restore;
        assert_eq!((cold.days, cold.retrieval), (7, Retrieval::Bulk));
    }

    #[test]
    fn wrong_locations_are_refused() {
        for (location, expected) in [
            ("bucket/p", "// must follow"),
            ("//bucket", "no prefix"),
            ("//bucket/", "a prefix consists of"),
            ("//bucket/a//b", "a prefix consists of"),
            ("//bucket/../b", "a prefix consists of"),
            ("//bucket/a b", "a prefix consists of"),
            ("//Bucket/p", "a bucket name has"),
            ("//b/p", "a bucket name has"),
            ("//bucket/p;lease=1", "lease must be a number"),
            ("//bucket/p;lease=99999999999999999999", "lease must be a number"),
            ("//bucket/p;restore-days=0", "restore-days must be a number"),
            ("//bucket/p;restore-days=366", "restore-days must be a number"),
            ("//bucket/p;retrieval=fast", "retrieval must be expedited"),
            ("//bucket/p;plain-http=no", "unknown option"),
            ("//bucket/p;key=secret", "unknown option"),
        ] {
            let error = parse(location).unwrap_err();
            assert!(error.contains(expected), "{location}: {error}");
        }
    }
}
