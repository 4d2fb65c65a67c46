//! The only path to the store: signs requests, sends them, retries, and classifies the answers.
//!
//! Timeouts depend on progress: a request may take any time as long as bytes are transferred.
//! Redirects are not followed and no proxy is used, so signed requests reach only the given host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
/// The kind of a request, by which it is counted.
pub use fslab_tier::archive::RequestKind as Counter;
use fslab_tier::archive::{Meter, Traffic};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use object_store::aws::AwsAuthorizer;
use object_store::client::{HttpRequest, HttpRequestBody};
use reqwest::Url;

use crate::credentials::Access;
use crate::runtime;

mod failure;
mod pace;

pub use failure::{Cause, Failure};
use pace::Pace;

/// The maximum number of attempts of a request.
const ATTEMPTS: u32 = 5;
/// The time after the start of a request within which it may be retried.
const RETRY_FOR: Duration = Duration::from_secs(120);
/// The first pause between attempts. Each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause, even if the store asks for more.
const PAUSE_MAX: Duration = Duration::from_secs(20);
/// The time limit for connecting.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// The maximum number of bytes that are read of an error answer; the rest is ignored.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// The size of the pieces in which a request's body is sent.
const PIECE_BYTES: usize = 64 << 10;

#[derive(Clone, Debug)]
pub struct Call {
    /// The kind by which the request is counted.
    pub purpose: Counter,
    pub method: Method,
    /// The path, which begins with a slash and needs no escapes.
    pub path: String,
    pub query: Vec<(&'static str, String)>,
    /// The headers, without those that signing adds.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Bytes,
    /// The hashes of the body, unless it is empty.
    pub hashes: Option<Hashes>,
    /// The maximum size of the answer's body.
    pub answer_max: usize,
    /// The range that must be returned, if a part of an object is requested.
    pub range: Option<Range>,
}

/// A SHA-256 hash.
pub type Hash = [u8; 32];

/// The hashes of its body that a request contains.
#[derive(Clone, Copy, Debug)]
pub struct Hashes {
    /// The hash in the signature (`x-amz-content-sha256`).
    pub signed: Hash,
    /// The checksum (`x-amz-checksum-sha256`), if one is sent.
    pub checksum: Option<Hash>,
    /// Whether one of them is deliberately wrong. The store's refusal is then the expected answer,
    /// and not a reason for a retry.
    pub are_wrong: bool,
}

impl Hashes {
    /// Returns the checksum that the store's answer must have, if it has one.
    pub fn to_compare(self) -> Option<Hash> {
        self.checksum.filter(|_| !self.are_wrong)
    }
}

/// A part of an object of known length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The offset of the first byte.
    pub start: u64,
    /// The length in bytes, at least one.
    pub length: u64,
    /// The length of the object in bytes.
    pub whole: u64,
}

#[derive(Debug)]
pub struct Answer {
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The connection to a store.
pub struct Transport {
    client: reqwest::Client,
    access: Access,
    /// Counts every attempt of a request, and all bytes of bodies, also of failed attempts.
    meter: Arc<Meter>,
    /// The time after which a request without progress fails.
    stall: Duration,
    /// Whether the last request was answered.
    answers: AtomicBool,
}

impl Transport {
    /// Creates a connection to a store with these credentials.
    ///
    /// # Errors
    /// Fails if the TLS library finds no trusted certificates.
    pub fn new(access: Access, stall: Duration, meter: Arc<Meter>) -> Result<Self, Failure> {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only()
            .https_only(access.endpoint.scheme() == "https")
            .connect_timeout(CONNECT_LIMIT)
            .user_agent("fslab")
            .build()
            .map_err(|error| Failure::of_connection(&error, &access))?;
        Ok(Self { client, access, meter, stall, answers: AtomicBool::new(true) })
    }

    /// Sends a request, with retries, and waits for the answer.
    ///
    /// # Errors
    /// Fails with the error of the last attempt.
    pub fn send(self: &Arc<Self>, call: Call) -> Result<Answer, Failure> {
        self.begin(call)?.wait().unwrap_or_else(|error| Err(Failure::local(&error)))
    }

    /// Starts sending a request.
    ///
    /// # Errors
    /// Fails if the async runtime can't be created.
    pub fn begin(
        self: &Arc<Self>,
        call: Call,
    ) -> Result<runtime::Pending<Result<Answer, Failure>>, Failure> {
        let transport = Arc::clone(self);
        runtime::begin(async move { transport.attempts(&call).await })
            .map_err(|error| Failure::local(&error))
    }

    /// Returns the meter of this connection's requests.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Returns whether the last request was answered. Sends no request.
    pub fn answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    async fn attempts(&self, call: &Call) -> Result<Answer, Failure> {
        let outcome = self.try_often(call).await;
        let is_silent = matches!(&outcome, Err(failure) if failure.cause == Cause::Unavailable);
        self.answers.store(!is_silent, Ordering::Relaxed);
        outcome
    }

    async fn try_often(&self, call: &Call) -> Result<Answer, Failure> {
        let (begun, mut attempt) = (Instant::now(), 1);
        loop {
            let failure = match self.attempt(call).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure.after(attempt),
            };
            let is_last = attempt >= ATTEMPTS || begun.elapsed() >= RETRY_FOR;
            let is_expected = failure.cause == Cause::Damaged
                && call.hashes.is_some_and(|hashes| hashes.are_wrong);
            if !failure.is_transient || is_last || is_expected {
                return Err(failure);
            }
            if failure.cause == Cause::Damaged {
                tracing::warn!("{failure}; sending it again");
            }
            tracing::debug!("{} {}: {failure}; retrying", call.method, call.path);
            self.meter.retried();
            let pause = failure.retry_after.unwrap_or_else(|| pause_after(attempt));
            tokio::time::sleep(pause.min(PAUSE_MAX)).await;
            attempt += 1;
        }
    }

    async fn attempt(&self, call: &Call) -> Result<Answer, Failure> {
        self.meter.count(Traffic::of(call.purpose));
        let pace = Arc::new(Pace::new(self.stall));
        let request = self.signed(call, &pace)?;
        let sending = self.client.execute(request);
        let response = tokio::select! {
            response = sending => response,
            () = pace.stalled() => return Err(Failure::stalled(&self.access, self.stall)),
        };
        let response = response.map_err(|error| Failure::of_connection(&error, &self.access))?;
        let (status, headers) = (response.status(), response.headers().clone());
        pace.moved(PIECE_BYTES);
        if !status.is_success() {
            // An error status without a readable body is still an error.
            let body = self.body(response, &pace, ERROR_BYTES_MAX, Excess::IsCut).await;
            let body = body.unwrap_or_default();
            return Err(Failure::of_status(status, &headers, &body, &self.access));
        }
        let body = self.body(response, &pace, call.answer_max, Excess::IsWrong).await?;
        if let Some(range) = call.range {
            self.check_range(range, status, &headers, &body)?;
        }
        Ok(Answer { headers, body })
    }

    /// Builds and signs a request. Its body reports progress as it is sent.
    fn signed(&self, call: &Call, pace: &Arc<Pace>) -> Result<reqwest::Request, Failure> {
        let mut url: Url = self.access.endpoint.clone();
        url.set_path(&call.path);
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&call.query);
        }
        let mut request = HttpRequest::new(HttpRequestBody::from(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() =
            url.as_str().parse().map_err(|error| Failure::wrong(format!("{url}: {error}")))?;
        request.headers_mut().extend(call.headers.iter().cloned());
        if let Some(checksum) = call.hashes.and_then(|hashes| hashes.checksum) {
            request.headers_mut().extend(checksum_headers(&checksum)?);
        }
        let signed = call.hashes.map(|hashes| hashes.signed);
        AwsAuthorizer::new(&self.access.credential, "s3", &self.access.region)
            .authorize(&mut request, signed.as_ref().map(<[u8; 32]>::as_slice));
        let mut headers = std::mem::take(request.headers_mut());
        for secret in [AUTHORIZATION, HeaderName::from_static("x-amz-security-token")] {
            headers.get_mut(secret).into_iter().for_each(|value| value.set_sensitive(true));
        }
        let mut sent = reqwest::Request::new(call.method.clone(), url);
        if !call.body.is_empty() || call.method == Method::PUT {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(call.body.len()));
            *sent.body_mut() = Some(paced(call.body.clone(), pace, &self.meter));
        }
        *sent.headers_mut() = headers;
        Ok(sent)
    }

    async fn body(
        &self,
        mut response: reqwest::Response,
        pace: &Pace,
        max: usize,
        excess: Excess,
    ) -> Result<Bytes, Failure> {
        let mut body = Vec::new();
        loop {
            let piece = tokio::select! {
                piece = response.chunk() => piece,
                () = pace.stalled() => return Err(Failure::stalled(&self.access, self.stall)),
            };
            let piece = piece.map_err(|error| Failure::of_connection(&error, &self.access))?;
            let Some(piece) = piece else { return Ok(body.into()) };
            pace.moved(piece.len());
            self.meter.received(piece.len() as u64);
            let room = max.saturating_sub(body.len());
            if piece.len() > room && excess == Excess::IsWrong {
                let what = format!("the store returned more than {max} bytes");
                return Err(Failure::wrong(what).transient());
            }
            body.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                return Ok(body.into());
            }
        }
    }

    /// Checks that an answer is the requested part of the object.
    fn check_range(
        &self,
        range: Range,
        status: StatusCode,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<(), Failure> {
        let Range { start, length, whole } = range;
        let wrong = |what: String| Err(Failure::wrong(what).transient());
        if body.len() as u64 != length {
            return wrong(format!("the store returned {} of {length} bytes", body.len()));
        }
        if status != StatusCode::PARTIAL_CONTENT {
            let is_whole = start == 0 && length == whole;
            return if is_whole {
                Ok(())
            } else {
                wrong("the store ignores the requested range".to_owned())
            };
        }
        let answered = headers.get(http::header::CONTENT_RANGE);
        let answered = answered.and_then(|value| value.to_str().ok()).unwrap_or_default();
        // The sum can't overflow, because the part lies in an object of `whole` bytes.
        let wanted = format!("bytes {start}-{}/{whole}", start + (length - 1));
        if answered == wanted {
            return Ok(());
        }
        let answered: String = answered.chars().take(80).collect();
        wrong(format!("the store returned the range '{answered}' instead of '{wanted}'"))
    }
}

/// How bytes beyond the limit are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excess {
    IsWrong,
    IsCut,
}

/// The header with the checksum of a body, in requests and answers.
pub const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-checksum-sha256");

/// Returns the headers for a checksum. Some stores accept objects with a retention period only with
/// the second header.
fn checksum_headers(hash: &Hash) -> Result<[(HeaderName, HeaderValue); 2], Failure> {
    let value = HeaderValue::from_str(&base64(hash));
    let value = value.map_err(|error| Failure::wrong(error.to_string()))?;
    let algorithm = HeaderName::from_static("x-amz-sdk-checksum-algorithm");
    Ok([(CHECKSUM, value), (algorithm, HeaderValue::from_static("SHA256"))])
}

/// Returns a hash in base 64, as in checksums.
pub fn base64(hash: &Hash) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = hash.chunks(3).flat_map(|chunk| {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        [18, 12, 6, 0].into_iter().enumerate().map(move |(number, shift)| {
            let is_padding = number > chunk.len();
            if is_padding { '=' } else { char::from(DIGITS[(bits >> shift) as usize & 63]) }
        })
    });
    digits.collect()
}

/// Returns a body that reports each piece that the connection accepts.
fn paced(body: Bytes, pace: &Arc<Pace>, meter: &Arc<Meter>) -> reqwest::Body {
    let (pace, meter) = (Arc::clone(pace), Arc::clone(meter));
    let pieces = (0..body.len().div_ceil(PIECE_BYTES)).map(move |number| {
        let start = number * PIECE_BYTES;
        let end = (start + PIECE_BYTES).min(body.len());
        pace.moved(end - start);
        meter.sent((end - start) as u64);
        Ok::<_, std::io::Error>(body.slice(start..end))
    });
    reqwest::Body::wrap_stream(futures_util::stream::iter(pieces))
}

/// Returns the pause after an attempt: a random time from the upper half of an exponential
/// back-off, so that clients do not collide again.
fn pause_after(attempt: u32) -> Duration {
    let whole = FIRST_PAUSE * 2_u32.saturating_pow(attempt - 1).min(1 << 8);
    let share = crate::random::random() % 1024;
    whole / 2 + whole.mul_f64(share as f64 / 2048.0)
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn checksums_are_encoded_in_base_64() {
        let hash: Hash = Sha256::digest(b"hello world").into();
        assert_eq!(base64(&hash), "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=");
        let hash: Hash = Sha256::digest(b"").into();
        assert_eq!(base64(&hash), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}
