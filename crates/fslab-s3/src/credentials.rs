//! Keys, region and endpoint, from the environment or from a profile.
//!
//! Secrets are kept in memory only. After they are read, the program disables core dumps.

use std::env;
use std::fmt;

use object_store::aws::AwsCredential;
use reqwest::Url;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::address::Location;
use crate::profiles::{self, Lacking, Profile};

/// The region in requests to a store that has no regions.
const USUAL_REGION: &str = "us-east-1";

/// The credentials, the region and the endpoint of a store.
pub struct Access {
    pub credential: AwsCredential,
    /// The region that requests are signed for.
    pub region: String,
    /// The URL of the store.
    pub endpoint: Url,
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Access to {}", self.endpoint)
    }
}

impl Access {
    /// Finds the credentials, the region and the endpoint for a location.
    ///
    /// # Errors
    /// Returns a one-line message about the missing setting.
    pub fn find(location: &Location) -> Result<Self, Lacking> {
        let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let access = Self::find_in(location, &set, &profiles::read)?;
        forbid_core_dumps();
        Ok(access)
    }

    /// Like [`Self::find`], with the given environment and profiles.
    fn find_in(
        location: &Location,
        set: &dyn Fn(&str) -> Option<String>,
        read: &dyn Fn(&str, bool) -> Result<Profile, Lacking>,
    ) -> Result<Self, Lacking> {
        let named = location.profile.is_some();
        // A profile named in the location applies only to this archive, so it takes precedence over
        // the environment, which applies to all archives.
        let from = |name: &str| set(name).filter(|_| !named);
        let keys = from("AWS_ACCESS_KEY_ID").zip(from("AWS_SECRET_ACCESS_KEY"));
        let region = from("AWS_REGION").or_else(|| from("AWS_DEFAULT_REGION"));
        let endpoint = from("AWS_ENDPOINT_URL_S3").or_else(|| from("AWS_ENDPOINT_URL"));
        let name = location.profile.clone().or_else(|| set("AWS_PROFILE"));
        let is_named = name.is_some();
        let name = name.unwrap_or_else(|| "default".to_owned());
        let is_complete = keys.is_some() && region.is_some() && endpoint.is_some();
        let profile = match is_complete {
            true => Profile::default(),
            false => read(&name, is_named && (named || keys.is_none()))?,
        };
        let (key_id, secret_key, token) = match keys {
            Some((id, secret)) => (id, secret, from("AWS_SESSION_TOKEN")),
            None => profile.keys(&name)?,
        };
        for value in [Some(&key_id), Some(&secret_key), token.as_ref()].into_iter().flatten() {
            if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err("a key or token contains invalid characters".to_owned());
            }
        }
        let region = region.or(profile.region);
        let endpoint = endpoint.or(profile.endpoint_url);
        let endpoint = match (endpoint, &region) {
            (Some(endpoint), _) => endpoint,
            (None, Some(region)) => format!("https://s3.{region}.amazonaws.com"),
            (None, None) => {
                return Err("no region and no endpoint: set AWS_REGION or AWS_ENDPOINT_URL, or \
                            `region` or `endpoint_url` in a profile"
                    .to_owned());
            }
        };
        let region = region.unwrap_or_else(|| USUAL_REGION.to_owned());
        if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err("the region contains invalid characters".to_owned());
        }
        let endpoint = checked_endpoint(&endpoint, location.plain_http)?;
        Ok(Self { credential: AwsCredential { key_id, secret_key, token }, region, endpoint })
    }

    /// Returns the host and port of the store, for messages.
    pub fn host(&self) -> String {
        let host = self.endpoint.host_str().unwrap_or("?");
        self.endpoint.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Replaces keys in a text by `***`, because a store may repeat them in a message.
    pub fn scrubbed(&self, text: &str) -> String {
        let AwsCredential { key_id, secret_key, token } = &self.credential;
        let secrets = [Some(secret_key), token.as_ref(), Some(key_id)];
        let scrub = |text: String, secret: &String| text.replace(secret.as_str(), "***");
        secrets.into_iter().flatten().filter(|one| !one.is_empty()).fold(text.to_owned(), scrub)
    }
}

/// Checks that an endpoint consists of a scheme, a host and optionally a port. A path would not be
/// signed, and a password would be shown in messages.
fn checked_endpoint(text: &str, plain_http: bool) -> Result<Url, Lacking> {
    let wrong = |what: &str| format!("the endpoint {what}: set AWS_ENDPOINT_URL to https://HOST");
    let url: Url = text.parse().map_err(|error| wrong(&format!("is not a URL ({error})")))?;
    let has_more = !url.username().is_empty()
        || url.password().is_some()
        || url.path() != "/"
        || url.query().is_some()
        || url.fragment().is_some();
    if has_more || url.host_str().is_none() {
        return Err(wrong("must consist of a scheme, a host and optionally a port"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if plain_http || is_loopback(&url) => Ok(url),
        "http" => Err(format!(
            "the endpoint {url} has no TLS: anybody on the network path can read and change the \
             data; to use it anyway, add ;plain-http=yes to the address"
        )),
        _ => Err(wrong("must begin with https://")),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Disables core dumps. A limit of one byte prevents a dump to a file. For this value the kernel
/// also refuses to pipe a dump to a program, which a limit of zero does not prevent.
fn forbid_core_dumps() {
    let limit = getrlimit(Resource::Core);
    let maximum = limit.maximum;
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(1), maximum }) {
        // This fails if the hard limit is zero, which at least disables dumps to files.
        tracing::debug!(%error, "can't disable core dumps");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ffi::OsStr;

    use super::*;

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "sec")];

    fn find(
        address: &str,
        set: &[(&str, &str)],
        profile: Option<Profile>,
    ) -> Result<Access, Lacking> {
        let location = Location::parse(OsStr::new(address)).unwrap();
        let set: HashMap<_, _> = set.iter().copied().collect();
        let set = |name: &str| set.get(name).map(|value| (*value).to_owned());
        let read = |name: &str, _: bool| profile.clone().ok_or_else(|| format!("no {name}"));
        Access::find_in(&location, &set, &read)
    }

    fn profile() -> Profile {
        Profile {
            key_id: Some("profile-id".to_owned()),
            secret_key: Some("profile-secret".to_owned()),
            region: Some("eu-north-1".to_owned()),
            ..Profile::default()
        }
    }

    #[test]
    fn named_profile_overrides_the_environment() {
        let environment = [KEYS[0], KEYS[1], ("AWS_REGION", "us-west-2")];
        let own = find("//bucket/p", &environment, Some(profile())).unwrap();
        assert_eq!((own.credential.key_id.as_str(), own.region.as_str()), ("id", "us-west-2"));
        let named = find("//bucket/p;profile=x", &environment, Some(profile())).unwrap();
        assert_eq!(named.credential.key_id, "profile-id");
        assert_eq!(named.endpoint.as_str(), "https://s3.eu-north-1.amazonaws.com/");
    }

    #[test]
    fn plain_http_is_only_allowed_for_loopback_by_default() {
        for (endpoint, address, is_allowed) in [
            ("http://127.0.0.1:9", "//bucket/p", true),
            ("http://[::1]:9", "//bucket/p", true),
            ("http://localhost:9", "//bucket/p", false),
            ("http://127.0.0.1.example:9", "//bucket/p", false),
            ("http://10.0.0.1", "//bucket/p", false),
            ("http://10.0.0.1", "//bucket/p;plain-http=yes", true),
            ("https://10.0.0.1", "//bucket/p", true),
            ("ftp://127.0.0.1", "//bucket/p", false),
            ("https://user:word@host", "//bucket/p", false),
            ("https://host/path", "//bucket/p", false),
            ("no url", "//bucket/p", false),
        ] {
            let set = [KEYS[0], KEYS[1], ("AWS_ENDPOINT_URL", endpoint)];
            let found = find(address, &set, Some(Profile::default()));
            assert_eq!(found.is_ok(), is_allowed, "{endpoint} {address} {found:?}");
        }
    }

    #[test]
    fn errors_name_the_missing_key_or_region_variable() {
        let missing = find("//bucket/p", &[], Some(Profile::default())).unwrap_err();
        assert!(missing.contains("AWS_ACCESS_KEY_ID"), "{missing}");
        let nowhere = find("//bucket/p", &KEYS, Some(Profile::default())).unwrap_err();
        assert!(nowhere.contains("AWS_REGION"), "{nowhere}");
        let broken = [KEYS[0], ("AWS_SECRET_ACCESS_KEY", "a\nb"), ("AWS_REGION", "x")];
        assert!(find("//bucket/p", &broken, Some(Profile::default())).is_err());
    }

    #[test]
    fn secrets_are_scrubbed_from_text_and_never_shown() {
        let set = [KEYS[0], ("AWS_SECRET_ACCESS_KEY", "S3cr3t"), ("AWS_SESSION_TOKEN", "T0ken")];
        let access = find("//bucket/p", &set, Some(profile())).unwrap();
        let told = access.scrubbed("with S3cr3t and T0ken, yes S3cr3t");
        assert_eq!(told, "with *** and ***, yes ***");
        assert!(!format!("{access:?}").contains("S3cr3t"));
    }
}
