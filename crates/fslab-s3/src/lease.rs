//! The lease of an archive: the right to write to it.
//!
//! A writer claims the next *epoch* by creating an object that only one process can create. It then
//! writes the lease on the condition that the lease has not changed since it was read. From then on
//! every conditional write of the previous writer fails. A former writer must not report success.
//! So a writer renews the lease (`fence`) before it reports a result that depends on the lease. If
//! the renewal succeeds, no other writer had taken over before it.
//!
//! Clocks only decide how long a new writer waits for a writer that does not renew its lease. The
//! lease and all other objects with fixed keys are never deleted. So a delayed request can't delete
//! a newer object.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fslab_tier::archive::{FoundRecord, WriterRecord};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use crate::address::LEASE_SECONDS_MAX;
use crate::bucket::{Bucket, Tag, When};
use crate::keys::{EPOCHS, LEASE, Session, begun_key, epoch_key, epoch_of};
use crate::random::random;
use crate::transport::{Cause, Failure};

mod process;

const VERSION: u32 = 1;

/// The number of renewals within the duration of a lease.
const RENEWALS: u32 = 4;

/// The number of times that a waiting process reads a held lease within the lease's duration.
const LOOKS: u32 = 12;

/// The number of attempts to acquire the lease while other processes try to acquire it.
const ROUNDS: u32 = 5;

/// The contents of the lease object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseText {
    version: u32,
    epoch: u64,
    /// In hexadecimal, because TOML has no unsigned 64-bit numbers.
    nonce: String,
    /// The number of times that the holder has written the lease. It makes each write unique.
    renewal: u64,
    is_held: bool,
    lease_seconds: u64,
    /// The name of the holder, for messages.
    holder: String,
    /// The identifier of the holder's process. With it, other processes of the same machine can
    /// check whether the holder still runs.
    process: String,
    /// The record of the tree that writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    writer: Option<WriterRecord>,
}

/// The lease as read from the store.
pub enum FoundLease {
    /// No lease exists: no writer has begun yet, or the lease was lost.
    Nothing,
    /// The lease can't be parsed.
    Damaged(Tag),
    /// A valid lease.
    Text(Box<LeaseText>, Tag),
}

impl FoundLease {
    pub fn read(bucket: &Bucket) -> Result<Self, Failure> {
        let Some(found) = bucket.find(LEASE)? else { return Ok(Self::Nothing) };
        let text = std::str::from_utf8(&found.bytes).ok();
        let text = text.and_then(|text| toml::from_str::<LeaseText>(text).ok());
        Ok(match text.filter(|text| text.version == VERSION) {
            Some(text) => Self::Text(Box::new(text), found.tag),
            None => Self::Damaged(found.tag),
        })
    }

    /// Returns the record of the tree that writes. If the lease is missing or damaged, returns the
    /// record of the last writer that began.
    pub fn writer(&self, bucket: &Bucket) -> Result<FoundRecord, Failure> {
        if let Self::Text(text, _) = self {
            let writer = text.writer.clone();
            return Ok(writer.map_or(FoundRecord::Nothing, FoundRecord::Tree));
        }
        let begun = Epochs::read(bucket)?.begun;
        let Some(begun) = begun else { return Ok(FoundRecord::Nothing) };
        let Some(found) = bucket.find(&begun_key(begun))? else { return Ok(FoundRecord::Damaged) };
        let text = std::str::from_utf8(&found.bytes).ok();
        let text = text.and_then(|text| toml::from_str::<LeaseText>(text).ok());
        let Some(text) = text else { return Ok(FoundRecord::Damaged) };
        Ok(text.writer.map_or(FoundRecord::Nothing, FoundRecord::Tree))
    }

    fn tag(&self) -> Option<&Tag> {
        match self {
            Self::Nothing => None,
            Self::Damaged(tag) | Self::Text(_, tag) => Some(tag),
        }
    }
}

/// The epochs found in the bucket.
#[derive(Debug, Default)]
pub struct Epochs {
    /// The last claimed epoch, or 0.
    pub last: u64,
    /// The last epoch whose writer began.
    pub begun: Option<u64>,
    keys: Vec<String>,
}

impl Epochs {
    pub fn read(bucket: &Bucket) -> Result<Self, Failure> {
        let mut epochs = Self::default();
        bucket.list(EPOCHS, &mut |key, _| {
            if let Some((epoch, has_begun)) = epoch_of(key) {
                epochs.last = epochs.last.max(epoch);
                epochs.begun = epochs.begun.max(has_begun.then_some(epoch));
                epochs.keys.push(key.to_owned());
            }
            true
        })?;
        Ok(epochs)
    }
}

/// A writer's request for the lease.
pub struct Wish<'a> {
    /// The duration of the lease.
    pub lease: Duration,
    /// Returns the new writer record from the previous one. The function is called again each time
    /// the lease is read, because another tree may have become the writer since the last read.
    pub record: &'a dyn Fn(FoundRecord) -> Result<Option<WriterRecord>, Refused>,
    /// Called between reading the lease and writing it on the condition that it has not changed. If
    /// that write succeeds, no writer renewed the lease in between. So this call has seen every
    /// mark whose writer renewed the lease after writing the mark.
    pub before_writing: &'a dyn Fn() -> Result<(), Failure>,
}

/// The reason for a refused lease.
pub enum Refused {
    /// Another process holds the lease. The text is a message for users.
    Held(String),
    /// Another tree is the writer. The text is a message for users.
    OtherTree(String),
    /// A request to the store failed.
    Failed(Failure),
    /// An error of the tier.
    Tree(fslab_tier::Error),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A held lease. Dropping it releases the lease.
pub struct Lease {
    bucket: Arc<Bucket>,
    session: Session,
    duration: Duration,
    /// The number of calls of [`Self::fence`].
    asked: AtomicU64,
    state: Mutex<State>,
    /// The reason for the loss of the lease. Reading it does not wait for a renewal.
    lost: OnceLock<String>,
    /// Signals the renewal thread to end.
    ended: Arc<(Mutex<bool>, Condvar)>,
}

struct State {
    text: LeaseText,
    tag: Tag,
    /// The number of [`Lease::fence`] calls that the last renewal covers: those made before it
    /// began.
    covered: u64,
    /// The number of [`Lease::fence`] calls that the last failed renewal covers, and the error of
    /// that renewal.
    failed: (u64, String),
}

impl Lease {
    /// Takes the lease. If the holder does not renew it, waits for the duration of the lease.
    ///
    /// # Errors
    /// Fails if another process holds the lease and renews it, if another tree is the writer, or if
    /// a request fails.
    pub fn take(bucket: &Arc<Bucket>, wish: &Wish<'_>) -> Result<Arc<Self>, Refused> {
        for _ in 0..ROUNDS {
            let found = wait_until_free(bucket)?;
            let before = match &found {
                FoundLease::Text(text, _) => text.epoch,
                FoundLease::Nothing | FoundLease::Damaged(_) => 0,
            };
            let writer = (wish.record)(found.writer(bucket)?)?;
            let last = Epochs::read(bucket)?.last.max(before);
            let Some(session) = claim(bucket, last)? else { continue };
            let text = LeaseText {
                version: VERSION,
                epoch: session.epoch,
                nonce: format!("{:016x}", session.nonce),
                renewal: 0,
                is_held: true,
                lease_seconds: wish.lease.as_secs(),
                holder: process::name(),
                process: process::mark(),
                writer,
            };
            (wish.before_writing)()?;
            let when = found.tag().map_or(When::Absent, When::Matches);
            let tag = match bucket.put(LEASE, body(&text)?, when) {
                Ok(tag) => tag,
                Err(failure) if failure.cause == Cause::Condition => {
                    match own_tag(bucket, &text)? {
                        Some(tag) => tag,
                        None => continue,
                    }
                }
                Err(failure) => return Err(failure.into()),
            };
            let lease = Self::begin(bucket, session, wish.lease, (text, tag));
            // If the list of epochs was outdated, the claimed epoch may be an old one whose object
            // had been deleted.
            if Epochs::read(bucket)?.last <= session.epoch {
                return Ok(lease);
            }
        }
        Err(Refused::Held(
            "its lease is being acquired by another process at this moment; try again".to_owned(),
        ))
    }

    fn begin(
        bucket: &Arc<Bucket>,
        session: Session,
        duration: Duration,
        (text, tag): (LeaseText, Tag),
    ) -> Arc<Self> {
        let (state, lost) = (
            Mutex::new(State { text, tag, covered: 0, failed: Default::default() }),
            OnceLock::new(),
        );
        let (asked, ended) = (AtomicU64::new(0), Arc::default());
        let bucket = Arc::clone(bucket);
        let lease = Arc::new(Self { bucket, session, duration, asked, state, lost, ended });
        process::SESSIONS.lock().insert(session.nonce);
        let (weak, ended) = (Arc::downgrade(&lease), Arc::clone(&lease.ended));
        let thread = std::thread::Builder::new().name("fslab-s3-lease".to_owned());
        if let Err(error) = thread.spawn(move || keep_renewing(&weak, &ended, duration)) {
            tracing::warn!(
                %error,
                "can't start the thread that renews the lease of {}, so only writes renew it",
                lease.bucket
            );
        }
        lease
    }

    pub fn session(&self) -> Session {
        self.session
    }

    /// Records that the marks and unfinished uploads of all earlier writers are resolved. From then
    /// on, their marks and epochs are ignored.
    pub fn note_begun(&self) -> Result<(), Failure> {
        let text = self.state.lock().text.clone();
        let key = begun_key(self.session.epoch);
        match self.bucket.put(&key, body(&text)?, When::Absent) {
            Ok(_) => {}
            Err(failure) if failure.cause == Cause::Condition && failure.is_ambiguous => {}
            Err(failure) => return Err(failure),
        }
        let epochs = Epochs::read(&self.bucket)?;
        let is_earlier =
            |key: &&String| epoch_of(key).is_some_and(|(epoch, _)| epoch < self.session.epoch);
        for key in epochs.keys.iter().filter(is_earlier) {
            if let Err(failure) = self.bucket.delete(key) {
                tracing::debug!("can't delete {key} for now: {failure}");
            }
        }
        Ok(())
    }

    /// Returns the reason for the loss of the lease, if it is lost. Sends no request.
    pub fn why_lost(&self) -> Option<String> {
        self.lost.get().cloned()
    }

    /// Renews the lease, to check that no other writer had taken over at the time of the call.
    /// Concurrent callers share one renewal, which begins after all of their calls.
    ///
    /// # Errors
    /// Fails with `NotConnected` if the lease is lost or can't be renewed.
    pub fn fence(&self) -> io::Result<()> {
        let own = self.asked.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state.lock();
        if let Some(why) = self.lost.get() {
            return Err(lost(why));
        }
        if own < state.covered {
            return Ok(());
        }
        // A renewal can take minutes if the store does not answer. So callers that waited for a
        // failed renewal return its error instead of starting another renewal.
        if own < state.failed.0 {
            return Err(lost(&state.failed.1));
        }
        let covers = self.asked.load(Ordering::SeqCst);
        if let Err(error) = self.renew(&mut state, true) {
            state.failed = (covers, error.to_string());
            return Err(error);
        }
        state.covered = covers;
        Ok(())
    }

    fn renew(&self, state: &mut State, is_held: bool) -> io::Result<()> {
        for _ in 0..ROUNDS {
            state.text.renewal += 1;
            state.text.is_held = is_held;
            let text = body(&state.text).map_err(Failure::into_io)?;
            let written = self.bucket.put(LEASE, text, When::Matches(&state.tag));
            let failure = match written {
                Ok(tag) => {
                    state.tag = tag;
                    return Ok(());
                }
                Err(failure) => failure,
            };
            if !matches!(failure.cause, Cause::Condition | Cause::NotFound) {
                return Err(failure.into_io());
            }
            // An earlier attempt of this write may have succeeded.
            let found = FoundLease::read(&self.bucket).map_err(Failure::into_io)?;
            match found {
                FoundLease::Text(found, tag) if is_of(&found, &state.text) => state.tag = tag,
                found => {
                    let why = match found {
                        FoundLease::Text(text, _) => {
                            format!("its lease was taken over by {}", text.holder)
                        }
                        FoundLease::Damaged(_) => "its lease was overwritten".to_owned(),
                        FoundLease::Nothing => "its lease was deleted".to_owned(),
                    };
                    return Err(lost(self.lost.get_or_init(|| why)));
                }
            }
        }
        Err(io::Error::new(ErrorKind::NotConnected, "its lease can't be renewed"))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        *self.ended.0.lock() = true;
        self.ended.1.notify_all();
        process::SESSIONS.lock().remove(&self.session.nonce);
        let mut state = self.state.lock();
        // Dropping must not wait for a store that does not answer.
        if self.lost.get().is_some() || !self.bucket.answers() {
            return;
        }
        if let Err(error) = self.renew(&mut state, false) {
            let seconds = self.duration.as_secs();
            tracing::warn!(
                "can't release the lease of {}; it expires in {seconds} s: {error}",
                self.bucket
            );
        }
    }
}

fn lost(why: &str) -> io::Error {
    io::Error::new(ErrorKind::NotConnected, why.to_owned())
}

fn keep_renewing(lease: &Weak<Lease>, ended: &(Mutex<bool>, Condvar), duration: Duration) {
    let pause = duration / RENEWALS;
    loop {
        let mut has_ended = ended.0.lock();
        let until = Instant::now() + pause;
        while !*has_ended && !ended.1.wait_until(&mut has_ended, until).timed_out() {}
        if *has_ended {
            return;
        }
        drop(has_ended);
        let Some(lease) = lease.upgrade() else { return };
        if let Err(error) = lease.fence() {
            tracing::warn!("can't renew the lease of {}: {error}", lease.bucket);
            if lease.why_lost().is_some() {
                return;
            }
        }
    }
}

/// Waits until the lease is free. Fails as soon as the holder renews it.
fn wait_until_free(bucket: &Bucket) -> Result<FoundLease, Refused> {
    let mut found = FoundLease::read(bucket)?;
    let Some(first) = holder(&found) else { return Ok(found) };
    if process::is_gone(&first.process, &first.nonce) {
        return Ok(found);
    }
    let lease = Duration::from_secs(first.lease_seconds.clamp(1, LEASE_SECONDS_MAX));
    let begun = Instant::now();
    tracing::warn!(
        "the lease of {bucket} is held by {}; waiting up to {} s to see whether the holder still \
         renews it",
        first.holder,
        lease.as_secs()
    );
    while begun.elapsed() < lease {
        std::thread::sleep((lease / LOOKS).min(lease.saturating_sub(begun.elapsed())));
        found = FoundLease::read(bucket)?;
        match holder(&found) {
            None => return Ok(found),
            Some(now) if now != first => {
                return Err(Refused::Held(format!(
                    "is being written by another fslab: {}",
                    now.holder
                )));
            }
            Some(_) => {}
        }
    }
    Ok(found)
}

/// Returns the holder of the lease. A damaged lease is treated as free, because conditional writes
/// protect the data of its holder.
fn holder(found: &FoundLease) -> Option<LeaseText> {
    match found {
        FoundLease::Text(text, _) if text.is_held => Some((**text).clone()),
        _ => None,
    }
}

/// Claims the epoch after the last one. Returns `None` if another process claimed it.
fn claim(bucket: &Bucket, last: u64) -> Result<Option<Session>, Refused> {
    let epoch = last.checked_add(1);
    let epoch = epoch.ok_or_else(|| Failure::wrong("the archive's last epoch is too large"))?;
    let session = Session { epoch, nonce: random() };
    let text = format!("{session} {}\n", process::name());
    match bucket.put(&epoch_key(epoch), text.clone().into(), When::Absent) {
        Ok(_) => Ok(Some(session)),
        Err(failure) if failure.cause == Cause::Condition => {
            // An earlier attempt of this write may have succeeded.
            let found = bucket.find(&epoch_key(epoch))?;
            Ok(found.filter(|found| found.bytes == text.as_bytes()).map(|_| session))
        }
        Err(failure) => Err(failure.into()),
    }
}

/// Returns the tag of the lease if the lease belongs to the same session.
fn own_tag(bucket: &Bucket, own: &LeaseText) -> Result<Option<Tag>, Failure> {
    Ok(match FoundLease::read(bucket)? {
        FoundLease::Text(found, tag) if is_of(&found, own) => Some(tag),
        _ => None,
    })
}

fn is_of(found: &LeaseText, own: &LeaseText) -> bool {
    found.epoch == own.epoch && found.nonce == own.nonce
}

fn body(text: &LeaseText) -> Result<Bytes, Failure> {
    toml::to_string(text).map(Bytes::from).map_err(|error| Failure::wrong(error.to_string()))
}
