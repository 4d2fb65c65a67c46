//! Failures of requests: their cause, and whether a retry may succeed.

use std::fmt;
use std::io::{self, ErrorKind};
use std::time::Duration;

use fslab_tier::archive::cold_error;
use http::StatusCode;
use http::header::{HeaderMap, RETRY_AFTER};
use rustix::io::Errno;

use crate::answers;
use crate::credentials::Access;

/// The maximum number of characters shown of a store's message.
const SHOWN_CHARS: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The store can't be reached or used now. Its contents are unknown.
    Unavailable,
    /// The bucket does not exist.
    NoBucket,
    /// The store denies this request with these credentials.
    Denied,
    /// The store keeps the object, because of a retention period or a legal hold.
    Locked,
    /// The object does not exist.
    NotFound,
    /// The object is in a cold storage class, and must be restored before it can be read.
    Cold,
    /// The object is already being restored.
    Restoring,
    /// A condition does not hold: another process wrote the object.
    Condition,
    /// The store is full.
    Full,
    /// The store does not support this request.
    Unsupported,
    /// The store received other bytes than were sent, according to a checksum.
    Damaged,
    /// The answer does not match the request.
    Wrong,
}

/// A failed request, described in one line without secrets.
#[derive(Clone, Debug)]
pub struct Failure {
    pub cause: Cause,
    /// Whether the same request may succeed if it is soon repeated.
    pub is_transient: bool,
    /// The delay that the store requested.
    pub retry_after: Option<Duration>,
    /// Whether an earlier attempt may have succeeded.
    pub is_ambiguous: bool,
    text: String,
}

impl Failure {
    fn new(cause: Cause, text: String) -> Self {
        let (is_transient, retry_after, is_ambiguous) = (false, None, false);
        Self { cause, is_transient, retry_after, is_ambiguous, text }
    }

    /// Returns the failure for an invalid answer.
    pub fn wrong(text: impl Into<String>) -> Self {
        Self::new(Cause::Wrong, text.into())
    }

    /// Returns the failure for data that the store received with other bytes.
    pub fn damaged(text: impl Into<String>) -> Self {
        Self::new(Cause::Damaged, text.into())
    }

    /// Returns the failure for an error on this machine.
    pub fn local(error: &io::Error) -> Self {
        Self::new(Cause::Unavailable, error.to_string())
    }

    /// Marks the failure as worth a retry.
    pub fn transient(mut self) -> Self {
        self.is_transient = true;
        self
    }

    /// Records, given the number of the failed attempt, whether an earlier attempt may have
    /// succeeded.
    pub fn after(mut self, attempt: u32) -> Self {
        self.is_ambiguous = attempt > 1 || self.cause == Cause::Unavailable;
        self
    }

    /// Returns the failure for a connection without progress.
    pub fn stalled(access: &Access, limit: Duration) -> Self {
        let (host, limit) = (access.host(), limit.as_secs());
        let text = format!("the store at {host} does not answer within {limit} s");
        Self::new(Cause::Unavailable, text).transient()
    }

    /// Returns the failure for a connection that can't be made or that ended early.
    pub fn of_connection(error: &reqwest::Error, access: &Access) -> Self {
        // Only the innermost cause is shown: it is the most specific one, and the outer ones repeat
        // the address.
        let mut cause: &dyn std::error::Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let what = if error.is_connect() { "can't be reached" } else { "breaks the connection" };
        let why = shown(&access.scrubbed(&cause.to_string()));
        let text = format!("the store at {} {what}: {why}", access.host());
        Self::new(Cause::Unavailable, text).transient()
    }

    /// Returns the failure for an error status.
    pub fn of_status(
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
        access: &Access,
    ) -> Self {
        let told = answers::error(body);
        let code = told.as_ref().map_or("", |told| told.code.as_str());
        let message = told.as_ref().map_or("", |told| told.message.as_str());
        let (cause, is_transient) = match meaning(status, code) {
            (Cause::Denied, _) if is_lock(message) => (Cause::Locked, false),
            meaning => meaning,
        };
        let number = status.as_u16();
        let words = match (code, message) {
            ("", _) => format!("HTTP status {number}"),
            (code, "") => format!("{code} (HTTP status {number})"),
            (code, message) => format!("{code}: {message} (HTTP status {number})"),
        };
        let hint = match code {
            "InvalidObjectState" => {
                "; the object is in a cold storage class: recalls of a file restore it; for other \
                 commands, restore it with the store's own tools"
            }
            _ if cause == Cause::Damaged => {
                "; the data was damaged on the way to the store: check the network and the memory \
                 of this machine"
            }
            _ if status.is_redirection() => {
                "; redirects are not followed: set AWS_REGION and AWS_ENDPOINT_URL for this bucket"
            }
            _ => "",
        };
        // Keys are removed before the text is truncated, because even a part of a key is secret.
        let words = shown(&access.scrubbed(&words));
        let text = format!("the store at {} returned {words}{hint}", access.host());
        let mut failure = Self::new(cause, text);
        failure.is_transient = is_transient;
        failure.retry_after = retry_after(headers);
        failure
    }

    /// Converts the failure into an I/O error, from whose kind the tier engine infers the cause.
    pub fn into_io(self) -> io::Error {
        let kind = match self.cause {
            Cause::Unavailable | Cause::NoBucket => ErrorKind::NotConnected,
            Cause::Denied | Cause::Locked => ErrorKind::PermissionDenied,
            Cause::NotFound => ErrorKind::NotFound,
            Cause::Cold => return cold_error(self.text),
            Cause::Full => return full(self),
            Cause::Unsupported => ErrorKind::Unsupported,
            // `InvalidData` would mean that the object is damaged, but these causes do not show
            // that.
            Cause::Condition | Cause::Restoring | Cause::Damaged | Cause::Wrong => ErrorKind::Other,
        };
        io::Error::new(kind, self.text)
    }
}

/// Returns `ENOSPC`, by which the tier engine recognises a full archive.
fn full(failure: Failure) -> io::Error {
    tracing::warn!("{failure}");
    io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error())
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

/// Returns the cause for a status and error code, and whether the request is worth a retry.
fn meaning(status: StatusCode, code: &str) -> (Cause, bool) {
    match (status.as_u16(), code) {
        (_, "NoSuchBucket" | "InvalidBucketName") => (Cause::NoBucket, false),
        (_, "ExpiredToken" | "TokenRefreshRequired" | "InvalidToken") => {
            (Cause::Unavailable, false)
        }
        (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "RequestTimeTooSkewed") => {
            (Cause::Unavailable, false)
        }
        (_, "QuotaExceeded" | "XMinioStorageFull" | "InsufficientStorage") | (507, _) => {
            (Cause::Full, false)
        }
        (400, "BadDigest" | "XAmzContentSHA256Mismatch" | "XAmzContentChecksumMismatch") => {
            (Cause::Damaged, true)
        }
        (_, "NotImplemented") | (405 | 501, _) => (Cause::Unsupported, false),
        (_, "SlowDown" | "ServiceUnavailable" | "RequestTimeout" | "InternalError") => {
            (Cause::Unavailable, true)
        }
        (_, "ObjectLocked" | "FileImmutable" | "RetentionPolicyNotMet") => (Cause::Locked, false),
        (_, "ObjectUnderActiveHold" | "ObjectLockedByBucketPolicy") => (Cause::Locked, false),
        (403, "InvalidObjectState") => (Cause::Cold, false),
        (409, "RestoreAlreadyInProgress") => (Cause::Restoring, false),
        (503, "GlacierExpeditedRetrievalNotAvailable") => (Cause::Unsupported, false),
        (412, _) => (Cause::Condition, false),
        // Two conditional writes collided, and possibly both failed.
        (409, _) => (Cause::Condition, true),
        (404, "NoSuchKey" | "NoSuchUpload" | "ObjectLockConfigurationNotFoundError") => {
            (Cause::NotFound, false)
        }
        // This does not prove that the object is missing, because the answer may come from a proxy.
        (404, _) => (Cause::Unavailable, true),
        (401 | 407, _) => (Cause::Unavailable, false),
        (403, _) => (Cause::Denied, false),
        (408 | 425 | 429, _) | (500..=599, _) => (Cause::Unavailable, true),
        (300..=399, _) => (Cause::Unavailable, false),
        _ => (Cause::Wrong, false),
    }
}

/// Returns whether the message of a refusal names a lock. Most stores have no code of their own for
/// this refusal.
fn is_lock(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let words = ["object lock", "retention", "legal hold", "legal-hold", "worm ", "immutable"];
    words.iter().any(|word| message.contains(word))
}

/// Parses the header `Retry-After` as seconds. A date is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse::<u32>().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

/// Prepares text from a store for a one-line message.
fn shown(text: &str) -> String {
    let line = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    line.take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_code_determine_cause_and_retry() {
        for (status, code, cause, is_transient) in [
            (500, "", Cause::Unavailable, true),
            (503, "SlowDown", Cause::Unavailable, true),
            (429, "", Cause::Unavailable, true),
            (404, "NoSuchKey", Cause::NotFound, false),
            (404, "", Cause::Unavailable, true),
            (404, "NoSuchBucket", Cause::NoBucket, false),
            (403, "AccessDenied", Cause::Denied, false),
            (403, "ExpiredToken", Cause::Unavailable, false),
            (400, "ExpiredToken", Cause::Unavailable, false),
            (400, "RequestTimeout", Cause::Unavailable, true),
            (403, "InvalidObjectState", Cause::Cold, false),
            (409, "RestoreAlreadyInProgress", Cause::Restoring, false),
            (503, "GlacierExpeditedRetrievalNotAvailable", Cause::Unsupported, false),
            (412, "PreconditionFailed", Cause::Condition, false),
            (409, "ConditionalRequestConflict", Cause::Condition, true),
            (301, "PermanentRedirect", Cause::Unavailable, false),
            (507, "", Cause::Full, false),
            (501, "NotImplemented", Cause::Unsupported, false),
            (400, "MalformedXML", Cause::Wrong, false),
            (400, "BadDigest", Cause::Damaged, true),
            (400, "XAmzContentSHA256Mismatch", Cause::Damaged, true),
            (403, "BadDigest", Cause::Denied, false),
            (403, "RetentionPolicyNotMet", Cause::Locked, false),
            (409, "FileImmutable", Cause::Locked, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(meaning(status, code), (cause, is_transient), "{status} {code}");
        }
    }
}
