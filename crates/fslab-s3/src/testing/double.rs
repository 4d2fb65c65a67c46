//! An in-memory store on loopback, for tests that inject faults. It checks no signatures.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::http::Message;
use super::server::BUCKET;
use crate::transport::{CHECKSUM, Hash, base64};

/// The number of entries in a page of a list, small so that lists have several pages.
const PAGE_ENTRIES: usize = 7;

/// What a store does with hashes of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashing {
    /// Whether it refuses an object with a wrong checksum.
    pub verifies_objects: bool,
    /// Whether it refuses a part with a wrong checksum.
    pub verifies_parts: bool,
    /// Whether it stores the data of a refused request.
    pub keeps_refused: bool,
    /// Whether it reports the checksum of joined parts.
    pub reports_joined: bool,
    /// Whether it refuses every request with a checksum.
    pub refuses_checksums: bool,
    /// Whether it refuses only parts with a checksum.
    pub refuses_part_checksums: bool,
    /// Whether it compares the hash in the signature with the body.
    pub verifies_signed: bool,
    /// The error code for a wrong checksum.
    pub code: &'static str,
}

impl Default for Hashing {
    /// Verifies everything, as AWS does.
    fn default() -> Self {
        Self {
            verifies_objects: true,
            verifies_parts: true,
            keeps_refused: false,
            reports_joined: true,
            refuses_checksums: false,
            refuses_part_checksums: false,
            verifies_signed: true,
            code: "BadDigest",
        }
    }
}

impl Hashing {
    /// Verifies nothing.
    pub const NONE: Self = Self {
        verifies_objects: false,
        verifies_parts: false,
        keeps_refused: false,
        reports_joined: false,
        refuses_checksums: false,
        refuses_part_checksums: false,
        verifies_signed: false,
        code: "BadDigest",
    };
}

#[derive(Default)]
struct Objects {
    objects: BTreeMap<String, Vec<u8>>,
    uploads: BTreeMap<String, (String, BTreeMap<u32, Vec<u8>>)>,
    begun: u64,
    hashing: Hashing,
    /// Whether the bucket has versioning.
    has_versions: bool,
    /// The sizes of old versions of deleted objects, by key.
    old_versions: Vec<(String, usize)>,
    /// Why objects can't be deleted, if a lock covers containers of files.
    lock: Option<&'static str>,
    cold: Cold,
}

/// The cold storage of containers of files.
#[derive(Default)]
struct Cold {
    /// The headers that report the storage class; empty if the containers are not in cold storage.
    headers: &'static [(&'static str, &'static str)],
    /// The bodies of the requests to restore objects that are still running, by key.
    restoring: BTreeMap<String, String>,
    restored: BTreeSet<String>,
    /// Whether the restored copies were deleted, although the store still reports them.
    expired: bool,
    /// The status and code with which the store refuses to restore objects, and the retrieval that
    /// it refuses; an empty text for all.
    refusal: Option<(u16, &'static str, &'static str)>,
}

impl Cold {
    fn is_cold(&self, key: &str) -> bool {
        let is_container = key.contains("/files/") && !key.contains("/deleted/");
        let is_restored = self.restored.contains(key) && !self.expired;
        !self.headers.is_empty() && is_container && !is_restored
    }

    fn restore(&mut self, key: &str, request: &Message) -> Message {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        if let Some((status, code, retrieval)) = self.refusal
            && body.contains(retrieval)
        {
            return refused(status, code);
        }
        if !self.is_cold(key) {
            return refused(403, "InvalidObjectState");
        }
        if self.restoring.contains_key(key) {
            return refused(409, "RestoreAlreadyInProgress");
        }
        self.restoring.insert(key.to_owned(), body);
        Message::answer(202, &[], "")
    }
}

/// An in-memory store that runs until it is dropped.
pub struct MemoryStore {
    port: u16,
    objects: Arc<Mutex<Objects>>,
    is_ended: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl MemoryStore {
    /// Starts a store.
    ///
    /// # Errors
    /// Fails if the system can't provide a socket.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let (objects, is_ended) = (Arc::<Mutex<Objects>>::default(), Arc::<AtomicBool>::default());
        let (own, end) = (Arc::clone(&objects), Arc::clone(&is_ended));
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let objects = Arc::clone(&own);
                let serve = move |stream| serve(&objects, stream);
                std::thread::spawn(move || stream.and_then(serve).unwrap_or_default());
            }
        });
        Ok(Self { port, objects, is_ended, acceptor: Some(acceptor) })
    }

    /// Returns the port of the store.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes what the store does with hashes.
    pub fn set_hashing(&self, hashing: Hashing) {
        self.objects.lock().hashing = hashing;
    }

    /// Turns versioning on or off.
    pub fn set_versions(&self, has_versions: bool) {
        self.objects.lock().has_versions = has_versions;
    }

    /// Locks all containers of files with this legal hold or retention date, or unlocks them.
    pub fn set_lock(&self, lock: Option<&'static str>) {
        self.objects.lock().lock = lock;
    }

    /// Moves all containers of files to the storage class that these headers report, as a lifecycle
    /// rule does.
    pub fn set_cold(&self, headers: &'static [(&'static str, &'static str)]) {
        self.objects.lock().cold = Cold { headers, ..Cold::default() };
    }

    /// Refuses to restore objects with a status and a code, if the request contains a text; or
    /// restores them again.
    pub fn refuse_restores(&self, refusal: Option<(u16, &'static str, &'static str)>) {
        self.objects.lock().cold.refusal = refusal;
    }

    /// Deletes the restored copies, as a store does after some days. It then still reports them.
    pub fn expire_restored(&self) {
        self.objects.lock().cold.expired = true;
    }

    /// Returns the bodies of the running requests to restore objects.
    #[must_use]
    pub fn restores(&self) -> Vec<String> {
        self.objects.lock().cold.restoring.values().cloned().collect()
    }

    /// Ends all running restores.
    pub fn end_restores(&self) {
        let cold = &mut self.objects.lock().cold;
        let ended: Vec<_> = std::mem::take(&mut cold.restoring).into_keys().collect();
        cold.restored.extend(ended);
        cold.expired = false;
    }

    /// Deletes old versions, as a lifecycle rule does.
    pub fn drop_old_versions(&self) {
        self.objects.lock().old_versions.clear();
    }

    /// Returns the keys that contain a text.
    #[must_use]
    pub fn keys(&self, part: &str) -> Vec<String> {
        let objects = self.objects.lock();
        objects.objects.keys().filter(|key| key.contains(part)).cloned().collect()
    }

    /// Returns the keys of unfinished multipart uploads.
    #[must_use]
    pub fn uploads(&self) -> Vec<String> {
        self.objects.lock().uploads.values().map(|(key, _)| key.clone()).collect()
    }

    /// Starts a multipart upload, as another program would.
    pub fn begin_upload(&self, key: &str) {
        self.objects.lock().begin(key.to_owned());
    }

    /// Removes an object, as another program would.
    pub fn remove(&self, key: &str) {
        self.objects.lock().objects.remove(key);
    }

    /// Writes an object, as another program would.
    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        self.objects.lock().objects.insert(key.to_owned(), bytes);
    }

    /// Returns the contents of an object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.objects.lock().objects.get(key).cloned()
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::SeqCst);
        let woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
        let acceptor = self.acceptor.take().filter(|_| woken);
        acceptor.map_or(Ok(()), JoinHandle::join).unwrap_or_default();
    }
}

fn serve(objects: &Mutex<Objects>, stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let Some(request) = Message::read(&mut reader, true)? else { return Ok(()) };
    let answer = objects.lock().answer(&request);
    let mut stream = stream;
    stream.write_all(&answer.bytes_for(&request))
}

fn refused(status: u16, code: &str) -> Message {
    let body =
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>");
    Message::answer(status, &[], body)
}

/// Returns whether the hash of a body equals the signed hash.
fn is_as_signed(request: &Message) -> bool {
    let own = Sha256::digest(&request.body);
    let own: String = own.iter().map(|byte| format!("{byte:02x}")).collect();
    request.header("x-amz-content-sha256").is_none_or(|signed| signed == own)
}

fn has_true_checksum(request: &Message) -> bool {
    let own = base64(&Sha256::digest(&request.body).into());
    request.header(CHECKSUM.as_str()).is_none_or(|checksum| checksum == own)
}

/// Returns the checksum of an object that was joined from parts, if the request names the parts'
/// checksums.
fn joined_checksum(parts: &BTreeMap<u32, Vec<u8>>, request: &Message) -> Result<String, Message> {
    let body = String::from_utf8_lossy(&request.body);
    let mut all = Sha256::new();
    for part in parts.values() {
        let own: Hash = Sha256::digest(part).into();
        if !body.contains(&base64(&own)) {
            return Err(refused(400, "BadDigest"));
        }
        all.update(own);
    }
    Ok(format!("{}-{}", base64(&all.finalize().into()), parts.len()))
}

fn tag(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let digits: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [byte, after @ ..] = rest {
        rest = after;
        match (byte, rest) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).unwrap_or("0");
                bytes.push(u8::from_str_radix(digits, 16).unwrap_or(0));
                rest = after;
            }
            _ => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Objects {
    fn begin(&mut self, key: String) -> String {
        self.begun += 1;
        let upload = format!("upload+{}", self.begun);
        self.uploads.insert(upload.clone(), (key, BTreeMap::new()));
        upload
    }

    fn answer(&mut self, request: &Message) -> Message {
        let (method, target) = request.target();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let query: BTreeMap<String, String> = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (name.to_owned(), decoded(value)))
            .collect();
        let path = decoded(path.trim_start_matches('/'));
        let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
        if bucket != BUCKET {
            return refused(404, "NoSuchBucket");
        }
        if self.hashing.verifies_signed && !is_as_signed(request) {
            return refused(400, "XAmzContentSHA256Mismatch");
        }
        if self.hashing.refuses_checksums && request.header(CHECKSUM.as_str()).is_some() {
            return refused(400, "InvalidArgument");
        }
        let upload = query.get("uploadId");
        match (method, upload) {
            ("GET", None) if key.is_empty() && query.contains_key("uploads") => self.list_uploads(),
            ("GET", None) if key.is_empty() && query.contains_key("versioning") => {
                let status = if self.has_versions { "<Status>Enabled</Status>" } else { "" };
                let name = "VersioningConfiguration";
                Message::answer(200, &[], format!("<{name}>{status}</{name}>"))
            }
            ("GET", None) if key.is_empty() && query.contains_key("object-lock") => {
                refused(404, "ObjectLockConfigurationNotFoundError")
            }
            ("GET", None) if key.is_empty() && query.contains_key("versions") => {
                self.list_versions(&query)
            }
            ("GET", None) if key.is_empty() => self.list(&query),
            ("GET", None) if self.cold.is_cold(key) => refused(403, "InvalidObjectState"),
            ("GET", None) => self.get(key, request.header("range")),
            ("HEAD", None) => self.head(key),
            ("PUT", None) => self.put(key, request),
            ("DELETE", None) => self.delete(key),
            ("POST", None) if query.contains_key("restore") => self.cold.restore(key, request),
            ("POST", None) => {
                let upload = self.begin(key.to_owned());
                let name = "InitiateMultipartUploadResult";
                let body = format!("<{name}><UploadId>{upload}</UploadId></{name}>");
                Message::answer(200, &[], body)
            }
            (method, Some(upload)) => self.part(method, key, upload, &query, request),
            _ => refused(405, "MethodNotAllowed"),
        }
    }

    fn delete(&mut self, key: &str) -> Message {
        if self.lock.is_some() && key.contains("/files/") && !key.contains("/deleted/") {
            return refused(403, "AccessDenied");
        }
        let deleted = self.objects.remove(key);
        if !self.has_versions {
            return Message::answer(204, &[], "");
        }
        self.old_versions.extend(deleted.map(|bytes| (key.to_owned(), bytes.len())));
        Message::answer(204, &[("x-amz-delete-marker", "true")], "")
    }

    fn head(&self, key: &str) -> Message {
        let Some(bytes) = self.objects.get(key) else {
            return Message::answer(404, &[], "");
        };
        let length = bytes.len().to_string();
        let mut headers = vec![("content-length", length.as_str())];
        match self.lock.filter(|_| key.contains("/files/")) {
            Some("ON") => headers.push(("x-amz-object-lock-legal-hold", "ON")),
            Some(until) => {
                headers.push(("x-amz-object-lock-retain-until-date", until));
                headers.push(("x-amz-object-lock-mode", "COMPLIANCE"));
            }
            None => {}
        }
        if key.contains("/files/") {
            let is_status = |(name, _): &&(&str, &str)| *name == "x-amz-archive-status";
            let is_moved = self.cold.restored.contains(key);
            headers.extend(self.cold.headers.iter().filter(|one| !is_moved || !is_status(one)));
        }
        if self.cold.restoring.contains_key(key) {
            headers.push(("x-amz-restore", "ongoing-request=\"true\""));
        } else if self.cold.restored.contains(key) {
            let ended = "ongoing-request=\"false\", expiry-date=\"Fri, 21 Dec 2029 00:00:00 GMT\"";
            headers.push(("x-amz-restore", ended));
        }
        Message::answer(200, &headers, "")
    }

    fn list_versions(&self, query: &BTreeMap<String, String>) -> Message {
        let prefix = query.get("prefix").map_or("", String::as_str);
        let after = query.get("version-id-marker").and_then(|after| after.parse().ok());
        let found = self.old_versions.iter().filter(|(key, _)| key.starts_with(prefix));
        let found: Vec<_> = found.enumerate().skip(after.unwrap_or(0)).collect();
        let page = &found[..found.len().min(PAGE_ENTRIES)];
        let mut body = String::from("<ListVersionsResult>");
        for (_, (key, size)) in page {
            let marker = "<IsLatest>true</IsLatest></DeleteMarker>";
            body += &format!("<DeleteMarker><Key>{key}</Key>{marker}<Version><Key>{key}</Key>");
            body += &format!("<Size>{size}</Size><IsLatest>false</IsLatest></Version>");
        }
        let is_truncated = found.len() > page.len();
        body += &format!("<IsTruncated>{is_truncated}</IsTruncated>");
        if let Some((number, (key, _))) = page.last().filter(|_| is_truncated) {
            body += &format!("<NextKeyMarker>{key}</NextKeyMarker><NextVersionIdMarker>");
            body += &format!("{}</NextVersionIdMarker>", number + 1);
        }
        Message::answer(200, &[], body + "</ListVersionsResult>")
    }

    fn get(&self, key: &str, range: Option<&str>) -> Message {
        let Some(bytes) = self.objects.get(key) else { return refused(404, "NoSuchKey") };
        let tag = tag(bytes);
        let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let range = range.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        let Some((first, last)): Option<(usize, usize)> = range else {
            return Message::answer(200, &[("etag", &tag)], bytes.clone());
        };
        if first >= bytes.len() {
            return refused(416, "InvalidRange");
        }
        let last = last.min(bytes.len() - 1);
        let range = format!("bytes {first}-{last}/{}", bytes.len());
        let headers = [("etag", tag.as_str()), ("content-range", &range)];
        Message::answer(206, &headers, &bytes[first..=last])
    }

    fn put(&mut self, key: &str, request: &Message) -> Message {
        let known = self.objects.get(key).map(|bytes| tag(bytes));
        let is_met = request.header("if-none-match").is_none_or(|_| known.is_none())
            && request.header("if-match").is_none_or(|wanted| known.as_deref() == Some(wanted));
        if !is_met {
            return refused(412, "PreconditionFailed");
        }
        let is_refused = self.hashing.verifies_objects && !has_true_checksum(request);
        if !is_refused || self.hashing.keeps_refused {
            self.objects.insert(key.to_owned(), request.body.clone());
        }
        if is_refused {
            return refused(400, self.hashing.code);
        }
        Message::answer(200, &[("etag", &tag(&request.body))], "")
    }

    fn part(
        &mut self,
        method: &str,
        key: &str,
        upload: &str,
        query: &BTreeMap<String, String>,
        request: &Message,
    ) -> Message {
        let number = query.get("partNumber").and_then(|number| number.parse().ok());
        let hashing = self.hashing;
        let Some((of, parts)) = self.uploads.get_mut(upload).filter(|(of, _)| of == key) else {
            return refused(404, "NoSuchUpload");
        };
        match (method, number) {
            ("PUT", Some(_))
                if hashing.refuses_part_checksums
                    && request.header(CHECKSUM.as_str()).is_some() =>
            {
                refused(501, "NotImplemented")
            }
            ("PUT", Some(_)) if hashing.verifies_parts && !has_true_checksum(request) => {
                refused(400, hashing.code)
            }
            ("PUT", Some(number)) => {
                parts.insert(number, request.body.clone());
                Message::answer(200, &[("etag", &tag(&request.body))], "")
            }
            ("POST", _) => {
                let mut told = String::new();
                let body = String::from_utf8_lossy(&request.body);
                let has_checksums = body.contains("<ChecksumSHA256>");
                if hashing.reports_joined && !hashing.refuses_checksums && has_checksums {
                    match joined_checksum(parts, request) {
                        Ok(checksum) => {
                            told = format!("<ChecksumSHA256>{checksum}</ChecksumSHA256>");
                        }
                        Err(refused) => return refused,
                    }
                }
                let (key, bytes) = (of.clone(), parts.values().flatten().copied().collect());
                self.objects.insert(key, bytes);
                self.uploads.remove(upload);
                let name = "CompleteMultipartUploadResult";
                Message::answer(200, &[], format!("<{name}>{told}</{name}>"))
            }
            ("DELETE", _) => {
                self.uploads.remove(upload);
                Message::answer(204, &[], "")
            }
            _ => refused(405, "MethodNotAllowed"),
        }
    }

    fn list(&self, query: &BTreeMap<String, String>) -> Message {
        let prefix = query.get("prefix").map_or("", String::as_str);
        let after = query.get("continuation-token").map_or("", String::as_str);
        let fits = |key: &&String| key.starts_with(prefix) && key.as_str() > after;
        let found: Vec<_> = self.objects.keys().filter(fits).take(PAGE_ENTRIES + 1).collect();
        let page = &found[..found.len().min(PAGE_ENTRIES)];
        let mut body = String::from("<ListBucketResult>");
        for key in page {
            let size = self.objects[*key].len();
            body += &format!("<Contents><Key>{key}</Key><Size>{size}</Size></Contents>");
        }
        let is_truncated = found.len() > page.len();
        body += &format!("<IsTruncated>{is_truncated}</IsTruncated>");
        if let Some(last) = page.last().filter(|_| is_truncated) {
            body += &format!("<NextContinuationToken>{last}</NextContinuationToken>");
        }
        Message::answer(200, &[], body + "</ListBucketResult>")
    }

    fn list_uploads(&self) -> Message {
        let mut body = String::from("<ListMultipartUploadsResult>");
        for (upload, (key, _)) in &self.uploads {
            body += &format!("<Upload><Key>{key}</Key><UploadId>{upload}</UploadId></Upload>");
        }
        body += "<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>";
        Message::answer(200, &[], body)
    }
}
