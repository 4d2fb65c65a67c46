//! The names of objects under an archive's prefix. `docs/formats/s3.md` explains them.

use std::fmt;
use std::str::FromStr;

use fslab_tier::Id;
use fslab_tier::archive::{Container, ContainerKind};

/// The description of the archive.
pub const DESCRIPTION: &str = "archive.toml";
/// The lease of the archive's writer.
pub const LEASE: &str = "lease";
/// The prefix of the claimed epochs.
pub const EPOCHS: &str = "epochs/";
/// The prefix of marks of objects that are to be deleted.
pub const DELETED: &str = "deleted/";
/// The prefix of objects that a probe writes.
pub const PROBES: &str = "probe/";
/// The prefixes of containers.
pub const CONTAINERS: [&str; 2] = ["files/", "trees/"];

/// A writer's session. No two sessions are equal: an epoch is claimed once, and the nonce
/// distinguishes the processes that try to claim it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    /// The number of this opening of the archive for writing.
    pub epoch: u64,
    /// A random number.
    pub nonce: u64,
}

/// The key of an object that stores a container. No key is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContainerKey {
    /// The container.
    pub container: Container,
    /// The session of the writer.
    pub session: Session,
    /// The number of this object in the session.
    pub number: u64,
}

impl ContainerKey {
    /// Returns the rank of an object among the objects of its container. The object with the lowest
    /// rank is valid. So a new object becomes valid when the earlier one is deleted, which happens
    /// only after the new one was proved: by a checksum, or by reading it back.
    pub fn rank(&self) -> (u64, u64, u64) {
        (self.session.epoch, self.number, self.session.nonce)
    }
}

/// Returns the common beginning of the keys of all objects that store a container.
pub fn begin_of((kind, id): Container) -> String {
    match kind {
        ContainerKind::Files => format!("{}{:02x}/{id}.", folder(kind), id.0[0]),
        ContainerKind::Tree => format!("{}{id}.", folder(kind)),
    }
}

/// Returns the common beginning of the keys of all containers of a kind.
pub fn folder(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Files => CONTAINERS[0],
        ContainerKind::Tree => CONTAINERS[1],
    }
}

impl fmt::Display for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}.{:016x}", self.epoch, self.nonce)
    }
}

impl FromStr for Session {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (epoch, nonce) = text.split_once('.').ok_or(())?;
        Ok(Self { epoch: number(epoch)?, nonce: number(nonce)? })
    }
}

impl fmt::Display for ContainerKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = begin_of(self.container);
        write!(formatter, "{begin}{}.{:016x}", self.session, self.number)
    }
}

impl FromStr for ContainerKey {
    type Err = ();

    /// Refuses any text that differs from the formatted key, because it is the name of another
    /// object.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, rest) = [ContainerKind::Files, ContainerKind::Tree]
            .into_iter()
            .find_map(|kind| Some((kind, text.strip_prefix(folder(kind))?)))
            .ok_or(())?;
        let name = rest.rsplit('/').next().ok_or(())?;
        let (id, rest) = name.split_once('.').ok_or(())?;
        let (session, last) = rest.rsplit_once('.').ok_or(())?;
        let container = (kind, id.parse::<Id>().map_err(|_no_id| ())?);
        let key = Self { container, session: session.parse()?, number: number(last)? };
        (key.to_string() == text).then_some(key).ok_or(())
    }
}

/// Returns the key of an epoch.
pub fn epoch_key(epoch: u64) -> String {
    format!("{EPOCHS}{epoch:016x}")
}

/// Returns the key of the object that marks an epoch as begun. The epoch's writer creates this
/// object after it has resolved all marks of earlier writers.
pub fn begun_key(epoch: u64) -> String {
    format!("{}.begun", epoch_key(epoch))
}

/// Returns the epoch of a key, and whether the key marks the epoch as begun.
pub fn epoch_of(key: &str) -> Option<(u64, bool)> {
    let name = key.strip_prefix(EPOCHS)?;
    let (digits, has_begun) = match name.strip_suffix(".begun") {
        Some(digits) => (digits, true),
        None => (name, false),
    };
    number(digits).ok().map(|epoch| (epoch, has_begun))
}

/// Returns the key of the mark of an object that a session is about to delete.
pub fn mark_key(session: Session, object: &ContainerKey) -> String {
    format!("{DELETED}{session}/{object}")
}

/// Returns the session and the object of a mark.
pub fn mark_of(key: &str) -> Option<(Session, ContainerKey)> {
    let (session, object) = key.strip_prefix(DELETED)?.split_once('/')?;
    Some((session.parse().ok()?, object.parse().ok()?))
}

/// Parses 16 hexadecimal digits in lower case.
fn number(digits: &str) -> Result<u64, ()> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_number = digits.len() == 16 && digits.bytes().all(is_digit);
    u64::from_str_radix(digits, 16).ok().filter(|_| is_number).ok_or(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_names_round_trip_and_invalid_ones_are_refused() {
        let session = Session { epoch: 7, nonce: u64::MAX };
        for kind in [ContainerKind::Files, ContainerKind::Tree] {
            let key = ContainerKey { container: (kind, Id([0xab; 16])), session, number: 3 };
            let text = key.to_string();
            assert!(text.starts_with(&begin_of(key.container)), "{text}");
            assert_eq!(text.parse(), Ok(key));
            assert_eq!(mark_of(&mark_key(session, &key)), Some((session, key)));
            for wrong in [
                text.to_uppercase(),
                format!("{text}0"),
                format!("x{text}"),
                text[..text.len() - 1].to_owned(),
                text.replace('.', "/"),
            ] {
                assert_eq!(wrong.parse::<ContainerKey>(), Err(()), "{wrong}");
            }
        }
        let id = "abababababababababababababababab";
        let rest = "0000000000000001.0000000000000002.0000000000000003";
        for (folder, is_right) in [("ab", true), ("cd", false)] {
            let key = format!("files/{folder}/{id}.{rest}").parse::<ContainerKey>();
            assert_eq!(key.is_ok(), is_right, "{folder}");
        }
        assert_eq!(epoch_of(&epoch_key(9)), Some((9, false)));
        assert_eq!(epoch_of(&begun_key(9)), Some((9, true)));
        for wrong in ["epochs/9", "epochs/", "epochs/+000000000000009", "files/0000000000000009"] {
            assert_eq!(epoch_of(wrong), None, "{wrong}");
        }
    }
}
