//! Profile files in the format of the AWS command line: `~/.aws/credentials` and `~/.aws/config`.
//!
//! A file may be inside the tree that a mount of this program serves. Reading this file could then
//! wait for the very archive whose settings it contains. So a separate thread reads the file, with
//! a time limit. If reading takes too long, the contents of the last successful read are used.

use std::collections::HashMap;
use std::env;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use ini::{Ini, ParseOption};
use parking_lot::Mutex;
use rustix::fs::OFlags;

/// A message about a missing setting and its remedy.
pub type Lacking = String;

/// The maximum size of a file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The time limit for reading a file.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// The contents of each file when it was last read.
static LAST: Mutex<Option<HashMap<PathBuf, String>>> = Mutex::new(None);

/// The settings of one profile.
#[derive(Clone, Default)]
pub struct Profile {
    pub key_id: Option<String>,
    pub secret_key: Option<String>,
    pub token: Option<String>,
    pub region: Option<String>,
    pub endpoint_url: Option<String>,
    /// The name of a setting in the profile that selects an unsupported credential method.
    pub unsupported: Option<&'static str>,
}

impl fmt::Debug for Profile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Profile")
    }
}

/// Settings that select credential methods which this program does not support.
const UNSUPPORTED: [&str; 5] =
    ["credential_process", "role_arn", "sso_session", "sso_start_url", "web_identity_token_file"];

impl Profile {
    /// Returns the keys and the token.
    ///
    /// # Errors
    /// Fails if the profile has none.
    pub fn keys(&self, name: &str) -> Result<(String, String, Option<String>), Lacking> {
        match (&self.key_id, &self.secret_key, self.unsupported) {
            (Some(id), Some(secret), _) => Ok((id.clone(), secret.clone(), self.token.clone())),
            (_, _, Some(key)) => Err(format!(
                "profile {name} gets its keys through {key}, which fslab does not support: set \
                 them in the environment, as `aws configure export-credentials --format env` \
                 prints them"
            )),
            _ => Err(format!(
                "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write \
                 aws_access_key_id and aws_secret_access_key for profile {name} into \
                 ~/.aws/credentials"
            )),
        }
    }

    fn take(&mut self, section: &ini::Properties) {
        // A comment may follow the value, after a blank.
        let plain = |value: &str| value.split(" #").next().unwrap_or_default().trim().to_owned();
        let get = |key: &str| section.get(key).map(plain);
        let fill = |known: &mut Option<String>, key: &str| {
            if known.is_none() {
                *known = get(key).filter(|value| !value.is_empty());
            }
        };
        fill(&mut self.key_id, "aws_access_key_id");
        fill(&mut self.secret_key, "aws_secret_access_key");
        fill(&mut self.token, "aws_session_token");
        fill(&mut self.region, "region");
        fill(&mut self.endpoint_url, "endpoint_url");
        let found = UNSUPPORTED.into_iter().find(|key| section.get(key).is_some());
        self.unsupported = self.unsupported.or(found);
    }
}

/// Reads a profile from the files of the user who runs this program.
///
/// # Errors
/// Fails if a file can't be read, or if a required profile is in no file.
pub fn read(name: &str, must_be_there: bool) -> Result<Profile, Lacking> {
    let home = env::var_os("HOME").map(PathBuf::from);
    let place = |variable: &str, usual: &str| {
        let set = env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        set.or_else(|| home.as_ref().map(|home| home.join(usual)))
    };
    let credentials = place("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
    let config = place("AWS_CONFIG_FILE", ".aws/config");
    let of_config = if name == "default" { name.to_owned() } else { format!("profile {name}") };
    let mut profile = Profile::default();
    let mut is_there = false;
    for (file, section) in [(credentials, name.to_owned()), (config, of_config)] {
        let Some(text) = file.as_deref().map(text_of).transpose()?.flatten() else { continue };
        let (text, file) = (text, file.unwrap_or_default());
        let sections = sections_of(&text).map_err(|error| {
            // The message of the library is not shown, because it may contain a part of the line,
            // such as a key.
            format!("{}, line {}: not in the format of a profile file", file.display(), error.line)
        })?;
        for found in sections.section_all(Some(section)) {
            is_there = true;
            profile.take(found);
        }
    }
    if must_be_there && !is_there {
        return Err(format!("there is no profile {name} in ~/.aws/credentials and ~/.aws/config"));
    }
    Ok(profile)
}

/// Parses the sections. Nested settings of a profile keep their indentation, so that they are not
/// mistaken for settings of the profile itself.
fn sections_of(text: &str) -> Result<Ini, ini::ParseError> {
    let options = ParseOption {
        enabled_quote: false,
        enabled_escape: false,
        enabled_indented_mutiline_value: false,
        enabled_preserve_key_leading_whitespace: true,
    };
    Ini::load_from_str_opt(text, options)
}

/// Returns the contents of a file, or `None` if it does not exist.
fn text_of(file: &Path) -> Result<Option<String>, Lacking> {
    let (sender, receiver) = sync_channel(1);
    let path = file.to_owned();
    let thread = std::thread::Builder::new().name("fslab-profiles".to_owned());
    // The send fails if the receiver has timed out, which is not an error.
    let spawned = thread.spawn(move || sender.send(read_file(&path)).unwrap_or_default());
    spawned.map_err(|error| format!("can't read {}: {error}", file.display()))?;
    let mut last = LAST.lock();
    let last = last.get_or_insert_default();
    match receiver.recv_timeout(READ_LIMIT) {
        Ok(Ok(text)) => {
            last.insert(file.to_owned(), text.clone());
            Ok(Some(text))
        }
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
        Ok(Err(error)) => Err(format!("{}: {error}", file.display())),
        Err(_) => match last.get(file) {
            Some(text) => Ok(Some(text.clone())),
            None => Err(format!(
                "{}: can't be read within {} s; keep this file outside of the tier's tree",
                file.display(),
                READ_LIMIT.as_secs()
            )),
        },
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    // Without `O_NONBLOCK`, opening a FIFO would wait for a writer.
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file: File = options.open(path)?;
    let found = file.metadata()?;
    let wrong = |what: &str| io::Error::new(ErrorKind::InvalidData, what);
    if !found.is_file() {
        return Err(wrong("is not a regular file"));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong("is longer than 1 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifos_and_endless_files_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let long = folder.path().join("long");
        std::fs::write(&long, "#".repeat(2 << 20)).unwrap();
        for (path, expected) in [
            (fifo.as_path(), "is not a regular file"),
            (long.as_path(), "longer than 1 MiB"),
            (Path::new("/dev/zero"), "is not a regular file"),
            (folder.path(), "is not a regular file"),
        ] {
            let error = text_of(path).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(text_of(&folder.path().join("missing")).unwrap().is_none());
    }

    #[test]
    fn profile_is_merged_from_sections() {
        let text = "[x]\naws_access_key_id = id\naws_secret_access_key=a+b/c=\n[profile x]\n\
                    region = r\nendpoint_url = https://h # no\ns3 =\n  region = q\n[y]\n\
                    role_arn = z\n";
        let sections = sections_of(text).unwrap();
        let mut profile = Profile::default();
        for name in ["x", "profile x"] {
            sections.section_all(Some(name)).for_each(|found| profile.take(found));
        }
        let keys = profile.keys("x").unwrap();
        assert_eq!(keys, ("id".to_owned(), "a+b/c=".to_owned(), None));
        assert_eq!(profile.region.as_deref(), Some("r"));
        let mut other = Profile::default();
        sections.section_all(Some("y")).for_each(|found| other.take(found));
        assert!(other.keys("y").unwrap_err().contains("role_arn"));
        assert!(!format!("{profile:?}").contains("a+b"), "a secret is never shown");
    }
}
