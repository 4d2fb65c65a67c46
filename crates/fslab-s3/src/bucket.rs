//! Requests for the objects under one prefix of a bucket.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use fslab_tier::archive::Meter;
use http::Method;
use http::header::{CONTENT_TYPE, ETAG, HeaderValue, IF_MATCH, IF_NONE_MATCH, RANGE};

use crate::answers::{BegunUpload, ListedUpload, ObjectsPage, UploadsPage, error, is, parse};
use crate::runtime::Pending;
use crate::transport::{Answer, Call, Cause, Counter, Failure, Range, Transport};

/// The maximum size in bytes of an object that is read completely in one request. Such objects, for
/// example the lease, are far smaller.
const WHOLE_BYTES_MAX: usize = 64 << 10;
/// The maximum size in bytes of a page of a list. Stores return at most 1000 entries.
const PAGE_BYTES_MAX: usize = 8 << 20;
/// The maximum size in bytes of any other answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// The number of entries requested for a page.
const PAGE_ENTRIES: usize = 1000;
/// The maximum number of pages, to detect an endless list.
const PAGES_MAX: u32 = 1_000_000;

pub type Result<T> = std::result::Result<T, Failure>;

/// The `ETag` of an object, which identifies one version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(HeaderValue);

/// The condition for writing an object.
#[derive(Clone, Copy, Debug)]
pub enum When<'a> {
    /// No condition, because the key is used only once.
    Always,
    /// No object has the key.
    Absent,
    /// The object has this tag.
    Matches(&'a Tag),
}

/// An object that was read completely.
#[derive(Debug)]
pub struct Object {
    pub bytes: Bytes,
    pub tag: Tag,
}

/// An uploaded part of an object.
#[derive(Debug)]
pub struct SentPart {
    number: u32,
    tag: Tag,
}

/// The objects under one prefix.
pub struct Bucket {
    transport: Arc<Transport>,
    bucket: String,
    prefix: String,
}

impl fmt::Display for Bucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "s3://{}/{}", self.bucket, self.prefix)
    }
}

impl Bucket {
    /// Creates a view of the objects under a prefix without a slash at the end.
    pub fn new(transport: Arc<Transport>, bucket: String, prefix: String) -> Self {
        Self { transport, bucket, prefix }
    }

    /// Returns whether the store answered the last request.
    pub fn answers(&self) -> bool {
        self.transport.answers()
    }

    /// Returns the meter of the requests.
    pub fn meter(&self) -> Arc<Meter> {
        Arc::clone(self.transport.meter())
    }

    fn call(&self, purpose: Counter, method: Method, key: &str) -> Call {
        Call {
            purpose,
            method,
            path: format!("/{}/{}/{key}", self.bucket, self.prefix),
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
            answer_max: ANSWER_BYTES_MAX,
            range: None,
        }
    }

    /// Reads a small object completely.
    ///
    /// # Errors
    /// Fails with [`Cause::NotFound`] if the object does not exist.
    pub fn get(&self, key: &str) -> Result<Object> {
        let call = self.call(Counter::Get, Method::GET, key);
        let answer = self.transport.send(Call { answer_max: WHOLE_BYTES_MAX, ..call })?;
        let tag = tag_of(&answer)?;
        Ok(Object { bytes: answer.body, tag })
    }

    /// Reads a small object completely. Returns `None` if the object does not exist.
    ///
    /// # Errors
    /// Fails if the request fails for another reason.
    pub fn find(&self, key: &str) -> Result<Option<Object>> {
        match self.get(key) {
            Ok(object) => Ok(Some(object)),
            Err(failure) if failure.cause == Cause::NotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads a range of an object.
    ///
    /// # Errors
    /// Fails with [`Cause::NotFound`] if the object does not exist.
    pub fn read(&self, key: &str, range: Range) -> Result<Bytes> {
        let mut call = self.call(Counter::Get, Method::GET, key);
        let last = range.start + (range.length - 1);
        call.headers.push((RANGE, text(&format!("bytes={}-{last}", range.start))?));
        call.answer_max = usize::try_from(range.length).unwrap_or(usize::MAX);
        call.range = Some(range);
        Ok(self.transport.send(call)?.body)
    }

    /// Writes an object.
    ///
    /// # Errors
    /// Fails with [`Cause::Condition`] if the condition does not hold. The reason may be that an
    /// earlier attempt of the same request succeeded.
    pub fn put(&self, key: &str, body: Bytes, when: When<'_>) -> Result<Tag> {
        let mut call = self.call(Counter::Put, Method::PUT, key);
        match when {
            When::Always => {}
            When::Absent => call.headers.push((IF_NONE_MATCH, HeaderValue::from_static("*"))),
            When::Matches(tag) => call.headers.push((IF_MATCH, tag.0.clone())),
        }
        tag_of(&self.transport.send(Call { body, ..call })?)
    }

    /// Deletes an object. A missing object is not an error.
    ///
    /// # Errors
    /// Fails if the request fails. The store may still execute it later.
    pub fn delete(&self, key: &str) -> Result<()> {
        match self.transport.send(self.call(Counter::Delete, Method::DELETE, key)) {
            Err(failure) if failure.cause == Cause::NotFound => Ok(()),
            Err(failure) => Err(failure),
            Ok(answer) if error(&answer.body).is_some() => {
                Err(Failure::wrong("the store reports success and an error in the same reply"))
            }
            Ok(_) => Ok(()),
        }
    }

    /// Calls `visit` with the key and size of each object whose key begins with `begin`, until
    /// `visit` returns `false`.
    ///
    /// # Errors
    /// Fails if a request fails or the list does not end.
    pub fn list(&self, begin: &str, visit: &mut dyn FnMut(&str, u64) -> bool) -> Result<()> {
        let (whole, mut token) = (format!("{}/{begin}", self.prefix), None::<String>);
        for _ in 0..PAGES_MAX {
            let mut query =
                vec![("list-type", "2".to_owned()), ("max-keys", PAGE_ENTRIES.to_string())];
            query.push(("prefix", whole.clone()));
            query.extend(token.clone().map(|token| ("continuation-token", token)));
            let page: ObjectsPage = self.page(query, "ListBucketResult")?;
            for object in &page.contents {
                let Some(key) = self.below(&object.key, &whole) else { continue };
                if !visit(key, object.size) {
                    return Ok(());
                }
            }
            let next = page.next_continuation_token.filter(|_| page.is_truncated);
            match next {
                None if page.is_truncated => return Err(endless()),
                None => return Ok(()),
                Some(next) if Some(&next) == token.as_ref() => return Err(endless()),
                next => token = next,
            }
        }
        Err(endless())
    }

    /// Returns whether any object's key begins with `begin`.
    pub fn has_any(&self, begin: &str) -> Result<bool> {
        let mut found = false;
        self.list(begin, &mut |_, _| {
            found = true;
            false
        })?;
        Ok(found)
    }

    fn page<T: serde::de::DeserializeOwned>(
        &self,
        query: Vec<(&'static str, String)>,
        name: &str,
    ) -> Result<T> {
        let mut call = self.call(Counter::List, Method::GET, "");
        call.path = format!("/{}", self.bucket);
        let answer = self.transport.send(Call { query, answer_max: PAGE_BYTES_MAX, ..call });
        // A list always exists, so "not found" as the answer to a list request does not mean that
        // an object is missing.
        let answer = answer.map_err(|failure| match failure.cause {
            Cause::NotFound => Failure::wrong(failure.to_string()),
            _ => failure,
        })?;
        parse(&answer.body, name).ok_or_else(|| Failure::wrong("the store's reply is not a list"))
    }

    /// Returns the key of an object relative to the prefix, or `None` if its key does not begin
    /// with `whole`.
    fn below<'a>(&self, key: &'a str, whole: &str) -> Option<&'a str> {
        let key = key.starts_with(whole).then_some(key)?;
        key.strip_prefix(&self.prefix)?.strip_prefix('/')
    }

    /// Starts a multipart upload and returns its identifier.
    pub fn begin_parts(&self, key: &str) -> Result<String> {
        let mut call = self.call(Counter::Put, Method::POST, key);
        call.query.push(("uploads", String::new()));
        let answer = self.transport.send(call)?;
        let begun: Option<BegunUpload> = parse(&answer.body, "InitiateMultipartUploadResult");
        let begun = begun.filter(|begun| !begun.upload_id.is_empty());
        Ok(begun
            .ok_or_else(|| Failure::wrong("the store's reply contains no upload ID"))?
            .upload_id)
    }

    /// Starts sending a part. Parts are numbered from 1.
    ///
    /// # Errors
    /// Fails if the async runtime can't be created.
    pub fn send_part(
        &self,
        key: &str,
        upload: &str,
        (number, body): (u32, Bytes),
    ) -> Result<Pending<Result<Answer>>> {
        let mut call = self.call(Counter::Put, Method::PUT, key);
        call.query.push(("partNumber", number.to_string()));
        call.query.push(("uploadId", upload.to_owned()));
        self.transport.begin(Call { body, ..call })
    }

    /// Waits until a part is sent.
    pub fn sent_part(number: u32, sending: Pending<Result<Answer>>) -> Result<SentPart> {
        let sent = sending.wait().unwrap_or_else(|error| Err(Failure::local(&error)))?;
        Ok(SentPart { number, tag: tag_of(&sent)? })
    }

    /// Completes a multipart upload.
    ///
    /// # Errors
    /// Fails if the request fails. The object may exist nevertheless.
    pub fn end_parts(&self, key: &str, upload: &str, parts: &[SentPart]) -> Result<()> {
        let mut body = String::from("<CompleteMultipartUpload>");
        for SentPart { number, tag } in parts {
            let tag = escaped(tag.0.to_str().unwrap_or_default());
            body += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
        }
        body += "</CompleteMultipartUpload>";
        let mut call = self.call(Counter::Put, Method::POST, key);
        call.query.push(("uploadId", upload.to_owned()));
        call.headers.push((CONTENT_TYPE, HeaderValue::from_static("application/xml")));
        let answer = self.transport.send(Call { body: body.into(), ..call })?;
        // A store that needs a long time returns a success status at once, and the real result
        // later in the body.
        if is(&answer.body, "CompleteMultipartUploadResult") {
            return Ok(());
        }
        let told = error(&answer.body)
            .map_or_else(|| "no result in the reply".to_owned(), |told| told.code);
        let told: String = told.chars().take(80).collect();
        // The store may have completed the upload nevertheless.
        Err(Failure::wrong(format!("the store can't join the parts of an upload: {told}")).after(2))
    }

    /// Aborts a multipart upload.
    pub fn drop_parts(&self, key: &str, upload: &str) -> Result<()> {
        let mut call = self.call(Counter::Delete, Method::DELETE, key);
        call.query.push(("uploadId", upload.to_owned()));
        match self.transport.send(call) {
            Err(failure) if failure.cause != Cause::NotFound => Err(failure),
            _ => Ok(()),
        }
    }

    /// Returns the keys and identifiers of unfinished multipart uploads under the prefix.
    ///
    /// # Errors
    /// Fails with [`Cause::Unsupported`] if the store does not offer this list. Also fails if a
    /// request fails.
    pub fn begun_parts(&self) -> Result<Vec<(String, String)>> {
        let (whole, mut found) = (format!("{}/", self.prefix), Vec::new());
        let mut marker = None::<(String, String)>;
        for _ in 0..PAGES_MAX {
            let mut query = vec![("uploads", String::new()), ("prefix", whole.clone())];
            if let Some((key, upload)) = marker.clone() {
                query.extend([("key-marker", key), ("upload-id-marker", upload)]);
            }
            let page: UploadsPage = self.page(query, "ListMultipartUploadsResult")?;
            for ListedUpload { key, upload_id } in page.uploads {
                if let Some(key) = self.below(&key, &whole) {
                    found.push((key.to_owned(), upload_id));
                }
            }
            if !page.is_truncated {
                return Ok(found);
            }
            let next = page.next_key_marker.zip(page.next_upload_id_marker);
            if next.is_none() || next == marker {
                return Err(endless());
            }
            marker = next;
        }
        Err(endless())
    }
}

fn endless() -> Failure {
    Failure::wrong("the store returns an endless list")
}

fn tag_of(answer: &Answer) -> Result<Tag> {
    let tag = answer.headers.get(ETAG).filter(|tag| !tag.is_empty()).cloned();
    let tag = tag.filter(|tag| tag.to_str().is_ok());
    tag.map(Tag).ok_or_else(|| Failure::wrong("the store's reply contains no ETag"))
}

fn text(value: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(value).map_err(|error| Failure::wrong(error.to_string()))
}

/// Escapes a text for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
