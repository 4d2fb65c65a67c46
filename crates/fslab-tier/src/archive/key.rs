//! Keys of archives: 32 bytes, stored as one line of text in a file that only its owner may read.
//!
//! Invariant: a key is stored nowhere else, neither in settings nor in the catalogue nor in
//! archives. An archive stores only a mark of its key, which identifies the key without revealing
//! it.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::{Container, ContainerKind};
use crate::atomic_write::sync_directory_of;
use crate::error::{Error, Result};
use crate::id::Id;

/// The text before the key in a key file.
const PREFIX: &str = "fslab-tier-key-1 ";

/// Maximum number of bytes that are read from a key file.
const FILE_BYTES_MAX: u64 = 256;

/// The purposes for which keys are derived from the archive's key. Each purpose yields a different
/// key.
const FOR_CONTAINERS: &str = "fslab tier, 2026: a container of an archive";
const FOR_TELLING: &str = "fslab tier, 2026: telling the key of an archive";

/// The key of an archive.
pub struct Key(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key")
    }
}

impl Key {
    /// Makes a key from random bytes, which must come from an unpredictable source.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads a key.
    ///
    /// # Errors
    /// If there is no key, or users other than its owner may read it.
    pub fn read(path: &Path) -> Result<Self> {
        let wrong = |what: &str| Error::Key { path: path.to_owned(), what: what.to_owned() };
        // Without this flag, opening a pipe would wait for a writer.
        let at_once = OFlags::NONBLOCK.bits() as i32;
        let opened = OpenOptions::new().read(true).custom_flags(at_once).open(path);
        let file = opened.map_err(|error| wrong(&format!("can't be read as a key: {error}")))?;
        let about = file.metadata().map_err(Error::file(path))?;
        if !about.is_file() {
            return Err(wrong("is not a file; create a key file with `fslab tier key`"));
        }
        if ![0, rustix::process::geteuid().as_raw()].contains(&about.uid()) {
            return Err(wrong(
                "belongs to another user, who can use this key; change its owner with chown",
            ));
        }
        if about.mode() & 0o077 != 0 {
            return Err(wrong(
                "users other than its owner can use this key; restrict it with chmod 600",
            ));
        }
        let mut text = Zeroizing::new(String::new());
        let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|_same| wrong(NO_KEY))?;
        Self::parse(&text).ok_or_else(|| wrong(NO_KEY))
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.trim_end().strip_prefix(PREFIX)?;
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut key = Self::new([0; 32]);
        for (byte, pair) in key.0.iter_mut().zip(0..32) {
            *byte = u8::from_str_radix(&digits[2 * pair..2 * pair + 2], 16).ok()?;
        }
        Some(key)
    }

    /// Writes the key to a new file that only its owner may read.
    ///
    /// # Errors
    /// If the file already exists, or errors of the system.
    pub fn write(&self, path: &Path) -> Result<()> {
        let digits: Vec<String> = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = Zeroizing::new(format!("{PREFIX}{}\n", digits.concat()));
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(path);
        let mut file = opened.map_err(Error::file(path))?;
        let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_all());
        // Removes a partly written file, because the next attempt would fail if the file existed.
        written.inspect_err(|_| drop(std::fs::remove_file(path))).map_err(Error::file(path))?;
        sync_directory_of(path).map_err(Error::file(path))
    }

    /// Returns a mark that identifies the key, for the description of an archive.
    #[must_use]
    pub fn mark(&self, archive: Id) -> Id {
        let mut mark = [0; 16];
        mark.copy_from_slice(&self.derive(FOR_TELLING, &[&archive.0])[..16]);
        Id(mark)
    }

    /// Returns the key for one version of a container, identified by its salt.
    pub(super) fn of_container(
        &self,
        archive: Id,
        (kind, container): Container,
        salt: &[u8; 32],
    ) -> Zeroizing<[u8; 32]> {
        let kind = [match kind {
            ContainerKind::Files => 0,
            ContainerKind::Tree => 1,
        }];
        self.derive(FOR_CONTAINERS, &[&archive.0, &kind, &container.0, salt])
    }

    fn derive(&self, purpose: &str, parts: &[&[u8]]) -> Zeroizing<[u8; 32]> {
        let mut hasher = blake3::Hasher::new_derive_key(purpose);
        hasher.update(&*self.0);
        for part in parts {
            hasher.update(part);
        }
        Zeroizing::new(*hasher.finalize().as_bytes())
    }
}

const NO_KEY: &str = "contains no key; create one with `fslab tier key`";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn key_file_round_trips_and_invalid_ones_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("key");
        let says = |path: &Path| Key::read(path).unwrap_err().to_string();
        assert!(says(&path).contains("can't be read as a key"));
        Key::new([0xa7; 32]).write(&path).unwrap();
        assert_eq!(*Key::read(&path).unwrap().0, [0xa7; 32]);
        assert!(Key::new([1; 32]).write(&path).is_err(), "a key is never overwritten");
        let open = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode));
        open(0o640).unwrap();
        assert!(says(&path).contains("chmod 600"));
        open(0o600).unwrap();
        for wrong in ["", "fslab-tier-key-1 00", "fslab-tier-key-1 \u{20ac}", "\u{0}"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(says(&path).contains("contains no key"), "{wrong}");
        }
        for wrong in ["0g", "+f"] {
            std::fs::write(&path, format!("{PREFIX}{}", wrong.repeat(32))).unwrap();
            assert!(says(&path).contains("contains no key"));
        }
        let pipe = scratch.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        assert!(says(&pipe).contains("is not a file"));
    }
}
