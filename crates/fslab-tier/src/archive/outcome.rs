//! The outcomes of writing and deleting a container.

use serde::{Deserialize, Serialize};

/// How a finished container is proved to have the bytes that were written. A proof concerns the
/// transfer only: later damage is found when the container is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// It is not proved yet: the caller must read the container back.
    #[default]
    ReadBack,
    /// The store compared the bytes that it received with a checksum of the bytes that were sent.
    Checksum,
}

impl Proof {
    /// Returns the word that `fslab tier archives` prints.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadBack => "read-back",
            Self::Checksum => "checksum",
        }
    }
}

/// The outcome of deleting a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The container was deleted, or did not exist.
    Done,
    /// The store keeps the bytes of the container, so no space was freed. The container is no
    /// longer listed and can't be read. [`super::Archive::retained`] counts it.
    Retained,
}

/// Deleted containers whose bytes a store keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retained {
    /// The number of objects that the store keeps.
    pub objects: u64,
    /// The bytes of these objects.
    pub bytes: u64,
    /// Whether both numbers are lower bounds, because not all objects were counted yet.
    #[serde(default)]
    pub is_partial: bool,
    /// The reason why the store keeps deleted objects, for users.
    pub reason: String,
}
