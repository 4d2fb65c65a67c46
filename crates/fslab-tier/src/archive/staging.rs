//! Containers in cold storage, such as a store's archive class. They can be read only after the
//! archive has staged them, which may take hours.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};

/// The answer to a request to stage a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Staged {
    /// The container can be read now.
    Ready,
    /// The archive is staging the container.
    Later(Later),
}

/// The state of a container that is being staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    /// What the archive does, for users.
    pub reason: String,
    /// When the container can probably be read, in seconds since 1970; `None` if unknown.
    pub expected: Option<i64>,
}

impl fmt::Display for Later {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.reason)?;
        match self.expected.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok()) {
            Some(expected) => write!(formatter, ", expected until {expected}"),
            None => Ok(()),
        }
    }
}

/// The cause of a failed read of a container in cold storage.
#[derive(Debug)]
struct Cold(String);

impl fmt::Display for Cold {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for Cold {}

/// Returns the error of a read of a container in cold storage.
pub fn cold_error(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::ResourceBusy, Cold(what.into()))
}

/// Returns whether a read failed because its container is in cold storage.
#[must_use]
pub fn is_cold(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<Cold>())
}
