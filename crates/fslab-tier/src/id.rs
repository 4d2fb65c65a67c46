//! Identities of things that must never be confused: tiers, files, objects, archives.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A random number of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(pub [u8; 16]);

/// The error for a text that is not an [`Id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an identity is 32 hexadecimal digits, as shown by `fslab tier versions` and `archives`")]
pub struct NotAnId;

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for Id {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        // `from_str_radix` also accepts a leading sign.
        let is_id = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_id).ok_or(NotAnId)?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl TryFrom<String> for Id {
    type Error = NotAnId;

    fn try_from(text: String) -> Result<Self, NotAnId> {
        text.parse()
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.to_string()
    }
}

/// A source of unique identities.
pub trait Identities: Send + Sync {
    /// Returns a new identity.
    fn make(&self) -> Id;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_round_trips_through_text() {
        let id = Id([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 250, 251, 252, 253, 254, 255]);
        assert_eq!(id.to_string(), "00010203040506070809fafbfcfdfeff");
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "00", &"g".repeat(32), &"0".repeat(33)] {
            assert_eq!(wrong.parse::<Id>(), Err(NotAnId), "{wrong}");
        }
    }
}
