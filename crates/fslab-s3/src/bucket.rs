//! Requests for the objects under one prefix of a bucket.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use fslab_tier::archive::Meter;
use http::Method;
use http::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, RANGE};
use sha2::{Digest, Sha256};

use crate::answers::{
    BegunUpload, DefaultRetention, EndedUpload, ListedUpload, ObjectLock, ObjectsPage, UploadsPage,
    Versioning, VersionsPage, error, parse, parse_any,
};
use crate::runtime::Pending;
use crate::transport::{
    Answer, CHECKSUM, Call, Cause, Counter, Failure, Hash, Hashes, Range, Transport, base64,
};

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

/// The hashes that a request claims for its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Its own hashes.
    True,
    /// A wrong checksum, to test whether the store compares it with the body.
    WrongChecksum,
    /// A wrong hash in the signature and no checksum, for the same test.
    WrongSignedHash,
}

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

/// The lock of an object.
#[derive(Debug, Default)]
pub struct Lock {
    /// The size of the object in bytes, if the store tells it.
    pub length: Option<u64>,
    /// The retention period or legal hold, for users.
    pub why: Option<String>,
}

/// Whether the storage class of an object permits reading the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColdState {
    Readable,
    /// The store is restoring the object.
    Restoring,
    /// The object must be restored first.
    Cold {
        /// The storage class, or the access tier within it.
        class: String,
        /// Whether a restored copy is kept for some days. An object in INTELLIGENT_TIERING moves
        /// to another access tier instead.
        has_days: bool,
    },
}

/// A request to restore an object.
#[derive(Clone, Copy, Debug)]
pub struct Restoring {
    /// How quickly the object is restored: `Expedited`, `Standard` or `Bulk`.
    pub retrieval: &'static str,
    /// For how many days the restored copy is kept; `None` if it is not a copy.
    pub days: Option<u32>,
}

/// An uploaded part of an object.
#[derive(Debug)]
pub struct SentPart {
    number: u32,
    tag: Tag,
    /// The checksum, if one was sent with the part.
    checksum: Option<Hash>,
}

/// A part that is being sent.
pub struct Sending {
    number: u32,
    checksum: Option<Hash>,
    pending: Pending<Result<Answer>>,
}

/// The objects under one prefix.
pub struct Bucket {
    transport: Arc<Transport>,
    bucket: String,
    prefix: String,
    /// Whether checksums are sent. Some stores refuse requests with a checksum.
    has_checksums: AtomicBool,
    /// Whether parts get checksums too. Some stores verify only whole objects, and refuse parts
    /// with a checksum.
    parts_have_checksums: AtomicBool,
}

impl fmt::Display for Bucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "s3://{}/{}", self.bucket, self.prefix)
    }
}

impl Bucket {
    /// Creates a view of the objects under a prefix without a slash at the end.
    pub fn new(transport: Arc<Transport>, bucket: String, prefix: String) -> Self {
        let [has_checksums, parts_have_checksums] = [true; 2].map(AtomicBool::new);
        Self { transport, bucket, prefix, has_checksums, parts_have_checksums }
    }

    /// Stops sending checksums, because the store refuses them.
    pub fn omit_checksums(&self) {
        self.has_checksums.store(false, Ordering::Relaxed);
        self.send_part_checksums(false);
    }

    /// Begins or stops sending checksums of parts. They are never sent without those of objects.
    pub fn send_part_checksums(&self, are_sent: bool) {
        let are_sent = are_sent && self.has_checksums.load(Ordering::Relaxed);
        self.parts_have_checksums.store(are_sent, Ordering::Relaxed);
    }

    /// Returns the hashes for a request with a body.
    fn hashes(&self, body: &[u8], claim: Claim) -> Hashes {
        let own: Hash = Sha256::digest(body).into();
        let other = own.map(|byte| !byte);
        let (signed, checksum) = match claim {
            Claim::True => (own, own),
            Claim::WrongChecksum => (own, other),
            Claim::WrongSignedHash => (other, own),
        };
        // A test of the signed hash must not depend on the checksum.
        let has_checksum =
            self.has_checksums.load(Ordering::Relaxed) && claim != Claim::WrongSignedHash;
        let checksum = has_checksum.then_some(checksum);
        Hashes { signed, checksum, are_wrong: claim != Claim::True }
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
            hashes: None,
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
        self.put_with(Claim::True, key, body, when)
    }

    /// Writes an object, with true or wrong hashes.
    ///
    /// # Errors
    /// Fails as [`Self::put`] does, and with [`Cause::Damaged`] if the store refuses a hash.
    pub fn put_with(&self, claim: Claim, key: &str, body: Bytes, when: When<'_>) -> Result<Tag> {
        let mut call = self.call(Counter::Put, Method::PUT, key);
        match when {
            When::Always => {}
            When::Absent => call.headers.push((IF_NONE_MATCH, HeaderValue::from_static("*"))),
            When::Matches(tag) => call.headers.push((IF_MATCH, tag.0.clone())),
        }
        let hashes = self.hashes(&body, claim);
        let answer = self.transport.send(Call { body, hashes: Some(hashes), ..call })?;
        check_checksum(&answer, hashes.to_compare())?;
        tag_of(&answer)
    }

    /// Deletes an object. A missing object is not an error. Returns whether the store only added a
    /// delete marker, so that the object may remain as an old version.
    ///
    /// # Errors
    /// Fails if the request fails. The store may still execute it later.
    pub fn delete(&self, key: &str) -> Result<bool> {
        match self.transport.send(self.call(Counter::Delete, Method::DELETE, key)) {
            Err(failure) if failure.cause == Cause::NotFound => Ok(false),
            Err(failure) => Err(failure),
            Ok(answer) if error(&answer.body).is_some() => {
                Err(Failure::wrong("the store reports success and an error in the same reply"))
            }
            Ok(answer) => {
                Ok(answer.headers.get("x-amz-delete-marker").is_some_and(|is| is == "true"))
            }
        }
    }

    /// Returns the lock of an object.
    ///
    /// # Errors
    /// Fails if the request fails, for example because reading the lock is not permitted.
    pub fn lock_of(&self, key: &str) -> Result<Lock> {
        let headers = self.transport.send(self.call(Counter::Get, Method::HEAD, key))?.headers;
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let length = header("content-length").and_then(|length| length.parse().ok());
        let (hold, until) =
            (header("x-amz-object-lock-legal-hold"), header("x-amz-object-lock-retain-until-date"));
        let why = match (hold, until) {
            (Some("ON"), _) => Some("the object has a legal hold".to_owned()),
            (_, Some(until)) => {
                let mode = header("x-amz-object-lock-mode").unwrap_or("unknown mode");
                Some(shown(&format!("the object is retained until {until} ({mode})")))
            }
            _ => None,
        };
        Ok(Lock { length, why })
    }

    /// Returns whether an object can be read, or must be restored first.
    ///
    /// # Errors
    /// Fails if the request fails.
    pub fn cold_state(&self, key: &str) -> Result<ColdState> {
        let headers = self.transport.send(self.call(Counter::Get, Method::HEAD, key))?.headers;
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        // The store sends no such header if the object was never restored.
        let restore = header("x-amz-restore").unwrap_or_default();
        if restore.contains("ongoing-request=\"true\"") {
            return Ok(ColdState::Restoring);
        }
        let cold = |class: &str, has_days| ColdState::Cold { class: shown(class), has_days };
        let is_restored = restore.contains("ongoing-request=\"false\"");
        Ok(match (header("x-amz-archive-status"), header("x-amz-storage-class")) {
            // The status is removed when the object was moved to another access tier.
            (Some(tier), _) => cold(tier, false),
            (None, Some(class @ ("GLACIER" | "DEEP_ARCHIVE"))) if !is_restored => cold(class, true),
            _ => ColdState::Readable,
        })
    }

    /// Asks the store to restore an object from a cold storage class.
    ///
    /// # Errors
    /// Fails with [`Cause::Restoring`] if it is already being restored.
    pub fn restore(&self, key: &str, wish: &Restoring) -> Result<()> {
        let days = wish.days.map(|days| format!("<Days>{days}</Days>")).unwrap_or_default();
        let body = format!(
            "<RestoreRequest xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{days}\
             <GlacierJobParameters><Tier>{}</Tier></GlacierJobParameters></RestoreRequest>",
            wish.retrieval
        );
        let body = Bytes::from(body);
        let mut call = self.call(Counter::Put, Method::POST, key);
        call.query.push(("restore", String::new()));
        let hashes = Some(self.hashes(&body, Claim::True));
        self.transport.send(Call { body, hashes, ..call }).map(drop)
    }

    /// Returns whether the bucket has versioning now.
    ///
    /// # Errors
    /// Fails if the request fails, or if the store does not know versioning.
    pub fn has_versions(&self) -> Result<bool> {
        let answer = self.of_bucket("versioning")?;
        let names = ["VersioningConfiguration", "GetBucketVersioningResponse"];
        let read: Option<Versioning> = parse_any(&answer.body, &names);
        let read = read.ok_or_else(|| Failure::wrong("the store's reply is no versioning"))?;
        Ok(read.status.as_deref() == Some("Enabled"))
    }

    /// Returns the object lock of the bucket, for users; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the request fails, or if the store does not know object lock.
    pub fn object_lock(&self) -> Result<Option<String>> {
        let answer = match self.of_bucket("object-lock") {
            Err(failure) if failure.cause == Cause::NotFound => return Ok(None),
            answer => answer?,
        };
        let read: Option<ObjectLock> = parse(&answer.body, "ObjectLockConfiguration");
        let read = read.ok_or_else(|| Failure::wrong("the store's reply is no object lock"))?;
        if read.object_lock_enabled.as_deref() != Some("Enabled") {
            return Ok(None);
        }
        let retention = read.rule.and_then(|rule| rule.default_retention);
        Ok(Some(match retention {
            None => "object lock".to_owned(),
            Some(DefaultRetention { mode, days, years }) => {
                let mode = mode.unwrap_or_default();
                let (count, unit) = if years > 0 { (years, "years") } else { (days, "days") };
                shown(&format!("object lock (new objects: {mode}, {count} {unit})"))
            }
        }))
    }

    /// Requests a property of the bucket.
    fn of_bucket(&self, property: &'static str) -> Result<Answer> {
        let mut call = self.call(Counter::Get, Method::GET, "");
        call.path = format!("/{}", self.bucket);
        call.query.push((property, String::new()));
        self.transport.send(Call { answer_max: PAGE_BYTES_MAX, ..call })
    }

    /// Moves an object to a storage class, by copying the object onto itself.
    ///
    /// # Errors
    /// Fails if the request fails.
    #[cfg(feature = "testing")]
    pub fn set_class(&self, key: &str, class: &'static str) -> Result<()> {
        let mut call = self.call(Counter::Put, Method::PUT, key);
        let class = HeaderValue::from_static(class);
        call.headers = vec![
            (HeaderName::from_static("x-amz-copy-source"), text(&call.path)?),
            (HeaderName::from_static("x-amz-storage-class"), class),
        ];
        self.transport.send(call).map(drop)
    }

    /// Creates the bucket, or changes a property of it.
    ///
    /// # Errors
    /// Fails if the request fails.
    #[cfg(feature = "testing")]
    pub fn configure(
        &self,
        property: Option<&'static str>,
        header: Option<(&'static str, &'static str)>,
        body: &'static str,
    ) -> Result<()> {
        let mut call = self.call(Counter::Put, Method::PUT, "");
        call.path = format!("/{}", self.bucket);
        call.query.extend(property.map(|property| (property, String::new())));
        let header = header
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        call.headers.extend(header);
        let body = Bytes::from_static(body.as_bytes());
        let hashes = Some(self.hashes(&body, Claim::True)).filter(|_| !body.is_empty());
        self.transport.send(Call { body, hashes, ..call }).map(drop)
    }

    /// Calls `visit` with the key and size of each version whose key begins with `begin`, and
    /// whether it is the latest one. Returns whether all versions were visited, which takes at most
    /// `pages` requests.
    ///
    /// # Errors
    /// Fails if a request fails or the list does not end.
    pub fn list_versions(
        &self,
        begin: &str,
        pages: u32,
        visit: &mut dyn FnMut(&str, u64, bool),
    ) -> Result<bool> {
        let whole = format!("{}/{begin}", self.prefix);
        let mut marker = None::<(String, String)>;
        for _ in 0..pages.min(PAGES_MAX) {
            let mut query = vec![("versions", String::new()), ("prefix", whole.clone())];
            query.push(("max-keys", PAGE_ENTRIES.to_string()));
            if let Some((key, version)) = marker.clone() {
                query.extend([("key-marker", key), ("version-id-marker", version)]);
            }
            let page: VersionsPage = self.page(query, "ListVersionsResult")?;
            for version in &page.versions {
                if let Some(key) = self.below(&version.key, &whole) {
                    visit(key, version.size, version.is_latest);
                }
            }
            if !page.is_truncated {
                return Ok(true);
            }
            let next = page.next_key_marker.zip(page.next_version_id_marker);
            if next.is_none() || next == marker {
                return Err(endless());
            }
            marker = next;
        }
        if pages < PAGES_MAX { Ok(false) } else { Err(endless()) }
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
        if self.parts_have_checksums.load(Ordering::Relaxed) {
            let algorithm = HeaderName::from_static("x-amz-checksum-algorithm");
            call.headers.push((algorithm, HeaderValue::from_static("SHA256")));
        }
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
    ) -> Result<Sending> {
        self.send_part_with(Claim::True, key, upload, (number, body))
    }

    /// Starts sending a part, with true or wrong hashes.
    ///
    /// # Errors
    /// Fails if the async runtime can't be created.
    pub fn send_part_with(
        &self,
        claim: Claim,
        key: &str,
        upload: &str,
        (number, body): (u32, Bytes),
    ) -> Result<Sending> {
        let mut call = self.call(Counter::Put, Method::PUT, key);
        call.query.push(("partNumber", number.to_string()));
        call.query.push(("uploadId", upload.to_owned()));
        let mut hashes = self.hashes(&body, claim);
        if !self.parts_have_checksums.load(Ordering::Relaxed) {
            hashes.checksum = None;
        }
        let pending = self.transport.begin(Call { body, hashes: Some(hashes), ..call })?;
        Ok(Sending { number, checksum: hashes.to_compare(), pending })
    }

    /// Waits until a part is sent.
    pub fn sent_part(sending: Sending) -> Result<SentPart> {
        let Sending { number, checksum, pending } = sending;
        let sent = pending.wait().unwrap_or_else(|error| Err(Failure::local(&error)))?;
        check_checksum(&sent, checksum)?;
        Ok(SentPart { number, tag: tag_of(&sent)?, checksum })
    }

    /// Completes a multipart upload. Returns whether the store reported the checksum of the parts'
    /// checksums, which shows that it joined exactly these parts.
    ///
    /// # Errors
    /// Fails if the request fails, or with [`Cause::Damaged`] if the store reports another
    /// checksum. The object may exist nevertheless.
    pub fn end_parts(&self, key: &str, upload: &str, parts: &[SentPart]) -> Result<bool> {
        let mut body = String::from("<CompleteMultipartUpload>");
        for SentPart { number, tag, checksum } in parts {
            let tag = escaped(tag.0.to_str().unwrap_or_default());
            body += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag>");
            if let Some(checksum) = checksum {
                body += &format!("<ChecksumSHA256>{}</ChecksumSHA256>", base64(checksum));
            }
            body += "</Part>";
        }
        body += "</CompleteMultipartUpload>";
        let mut call = self.call(Counter::Put, Method::POST, key);
        call.query.push(("uploadId", upload.to_owned()));
        call.headers.push((CONTENT_TYPE, HeaderValue::from_static("application/xml")));
        let answer = self.transport.send(Call { body: body.into(), ..call })?;
        // A store that needs a long time returns a success status at once, and the real result
        // later in the body.
        let ended: Option<EndedUpload> = parse(&answer.body, "CompleteMultipartUploadResult");
        if let Some(ended) = ended {
            return match (joined_checksum(parts), ended.checksum) {
                (Some(own), Some(reported)) if own == reported => Ok(true),
                (Some(_), Some(_)) => Err(other_checksum()),
                _ => Ok(false),
            };
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

/// Shortens a text from a store for a one-line message.
fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(200).collect()
}

fn endless() -> Failure {
    Failure::wrong("the store returns an endless list")
}

/// Returns the checksum of an object that was joined from parts, as stores report it: the hash of
/// the parts' hashes, and the number of parts.
fn joined_checksum(parts: &[SentPart]) -> Option<String> {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.checksum?);
    }
    Some(format!("{}-{}", base64(&hash.finalize().into()), parts.len()))
}

/// Fails if an answer reports another checksum than was sent.
fn check_checksum(answer: &Answer, own: Option<Hash>) -> Result<()> {
    let reported = answer.headers.get(CHECKSUM);
    match own.zip(reported) {
        Some((own, reported)) if *reported != *base64(&own) => Err(other_checksum()),
        _ => Ok(()),
    }
}

fn other_checksum() -> Failure {
    Failure::damaged("the store reports another checksum than that of the data that was sent")
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
