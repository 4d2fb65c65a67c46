//! Writes a container: in one request if it is small, otherwise as a multipart upload with a few
//! parts in flight.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use bytes::Bytes;
use fslab_tier::archive::{Container, Proof, RequestKind, Traffic, Upload};
use sha2::{Digest, Sha256};

use crate::bucket::{Bucket, Result, Sending, SentPart, When};
use crate::keys::ContainerKey;
use crate::objects::{Objects, Place};
use crate::transport::{Failure, Range};

/// The sizes of parts in bytes, each with the number of the last part of that size. Stores accept
/// 10,000 parts, so an object has at most 828 GiB.
const PART_BYTES: [(u32, usize); 3] = [(2000, 8 << 20), (4000, 32 << 20), (10_000, 128 << 20)];

/// The maximum bytes of in-flight parts, in addition to one part being filled.
const SENDING_BYTES_MAX: usize = 32 << 20;

/// The size of a read when an object is read back.
const READ_BYTES: u64 = 8 << 20;

/// An upload of a container.
pub struct S3Upload {
    objects: Arc<Objects>,
    key: ContainerKey,
    /// The objects that the new object replaces.
    older: Vec<Place>,
    buffer: Vec<u8>,
    length: u64,
    /// The hash of all bytes so far, if the object replaces others.
    hash: Option<Sha256>,
    parts: Option<Parts>,
    /// Whether a part was lost, so that the upload can't be finished.
    has_failed: bool,
}

/// A multipart upload. Dropping it unfinished aborts it.
struct Parts {
    bucket: Arc<Bucket>,
    key: String,
    upload: String,
    sent: Vec<SentPart>,
    /// The parts that are being sent, each with its size in bytes.
    sending: VecDeque<(usize, Sending)>,
    is_finished: bool,
}

impl S3Upload {
    /// Starts a container.
    ///
    /// # Errors
    /// Fails if the archive is read-only here or a request fails.
    pub fn begin(objects: &Arc<Objects>, container: Container) -> io::Result<Self> {
        let key = objects.new_key(container)?;
        let older = objects.versions(container)?;
        let hash = (!older.is_empty()).then(Sha256::new);
        let (objects, buffer) = (Arc::clone(objects), Vec::new());
        Ok(Self { objects, key, older, buffer, length: 0, hash, parts: None, has_failed: false })
    }

    /// Fails if a part was lost, or if another writer has taken over.
    fn check(&self) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("a part of the container could not be sent"));
        }
        self.objects.lease().map(drop)
    }

    fn send_part(&mut self) -> Result<()> {
        let parts = match &mut self.parts {
            Some(parts) => parts,
            None => self.parts.insert(Parts::begin(&self.objects.bucket, self.key)?),
        };
        parts.send(std::mem::take(&mut self.buffer).into())
    }

    /// Sends the rest of the data, and creates the object. Returns the kind of proof.
    fn put(&mut self) -> Result<Proof> {
        if self.parts.is_some() && !self.buffer.is_empty() {
            self.send_part()?;
        }
        let is_joined_right = match &mut self.parts {
            Some(parts) => parts.finish()?,
            None => {
                let body = std::mem::take(&mut self.buffer).into();
                let key = self.key.to_string();
                self.objects.bucket.put(&key, body, When::Always)?;
                true
            }
        };
        Ok(if is_joined_right { self.objects.proof } else { Proof::ReadBack })
    }

    /// Replaces the older objects, after the new one was proved: by a checksum, or by reading it
    /// back here.
    fn replace(&mut self, proof: Proof) -> io::Result<()> {
        let Some(hash) = self.hash.take() else { return Ok(()) };
        let place = Place { key: self.key, length: self.length };
        let expected = hash.finalize().to_vec();
        let found = match proof {
            Proof::Checksum => Ok(expected.clone()),
            Proof::ReadBack => read_back(&self.objects.bucket, place),
        };
        match found {
            Ok(found) if found == expected => {
                // The older objects remain valid until they are marked for deletion.
                self.objects.mark(&self.older)?;
                if let Err(error) = self.objects.delete_marked(&self.older) {
                    let bucket = &self.objects.bucket;
                    tracing::warn!(
                        "{bucket}: can't delete the older version of {}; a later start tries \
                         again: {error}",
                        self.key
                    );
                }
                Ok(())
            }
            found => {
                if let Err(error) = self.objects.delete(&[place]) {
                    let bucket = &self.objects.bucket;
                    tracing::warn!(
                        "{bucket}: can't delete {}, which failed its verification: {error}",
                        self.key
                    );
                }
                let what = "the data that was read back differs from the data that was written";
                let differs = io::Error::new(ErrorKind::InvalidData, what);
                Err(found.map_or_else(Failure::into_io, |_| differs))
            }
        }
    }
}

/// Returns the hash of an object.
fn read_back(bucket: &Bucket, place: Place) -> Result<Vec<u8>> {
    let (mut hash, mut start) = (Sha256::new(), 0);
    while start < place.length {
        let length = READ_BYTES.min(place.length - start);
        let range = Range { start, length, whole: place.length };
        hash.update(bucket.read(&place.key.to_string(), range)?);
        start += length;
    }
    Ok(hash.finalize().to_vec())
}

impl Upload for S3Upload {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        self.hash.iter_mut().for_each(|hash| hash.update(bytes));
        while !bytes.is_empty() {
            let number = self.parts.as_ref().map_or(1, Parts::next_number);
            let part = part_bytes(number).ok_or_else(too_long)?;
            let room = part.saturating_sub(self.buffer.len()).min(bytes.len());
            self.buffer.extend_from_slice(&bytes[..room]);
            self.length += room as u64;
            bytes = &bytes[room..];
            // A full part is sent only when more bytes follow; until then it may be the last part.
            if self.buffer.len() == part && !bytes.is_empty() {
                let sent = self.send_part();
                self.has_failed |= sent.is_err();
                sent.map_err(Failure::into_io)?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<Proof> {
        self.check()?;
        let proof = self.put().map_err(Failure::into_io)?;
        // The renewal fails if another writer has taken over. That writer may not have seen the new
        // object.
        self.objects.lease()?.fence()?;
        self.replace(proof)?;
        self.objects.remember(Place { key: self.key, length: self.length });
        Ok(proof)
    }
}

/// Returns the size of a part, or `None` beyond the last part number.
fn part_bytes(number: u32) -> Option<usize> {
    PART_BYTES.iter().find(|(last, _)| number <= *last).map(|(_, bytes)| *bytes)
}

/// The maximum size of the answer to a list of one container's objects. Answers of tested stores
/// have less than half of this.
const LIST_BYTES_MAX: u64 = 2 << 10;

/// The maximum size of the lease that is written with each container.
const LEASE_BYTES_MAX: u64 = 2 << 10;

/// The maximum size of the other answers to the requests of an upload, and of each part's entry in
/// the last request of a multipart upload.
const SMALL_BYTES_MAX: u64 = 1 << 10;

/// Returns the traffic of finding the object of a container. The bytes are an upper bound.
pub fn traffic_of_list() -> Traffic {
    Traffic { received_bytes: LIST_BYTES_MAX, ..Traffic::of(RequestKind::List) }
}

/// Returns the traffic of writing a new container: the list of its objects, its data, and the
/// renewal of the lease. The bytes are an upper bound.
pub fn traffic_of_upload(bytes: u64) -> Traffic {
    let parts = number_of_parts(bytes);
    // A multipart upload has two more requests: one begins it, and one ends it.
    let (puts, entries) = if parts <= 1 { (1, 0) } else { (parts + 2, parts + 1) };
    let data = Traffic {
        put_requests: puts,
        sent_bytes: bytes.saturating_add(entries * SMALL_BYTES_MAX),
        received_bytes: puts * SMALL_BYTES_MAX,
        ..Traffic::default()
    };
    let lease = Traffic { received_bytes: SMALL_BYTES_MAX, ..Traffic::put(LEASE_BYTES_MAX) };
    traffic_of_list() + data + lease
}

/// Returns the number of parts of an object with this many bytes.
fn number_of_parts(bytes: u64) -> u64 {
    let (mut parts, mut left, mut earlier) = (0, bytes, 0);
    for (last, part) in PART_BYTES {
        let (room, part) = (u64::from(last - earlier), part as u64);
        if left <= room * part {
            return parts + left.div_ceil(part);
        }
        (parts, left, earlier) = (parts + room, left - room * part, last);
    }
    // Longer objects are refused.
    parts
}

fn too_long() -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, "an object of an S3 archive can have at most 828 GiB")
}

impl Parts {
    fn begin(bucket: &Arc<Bucket>, key: ContainerKey) -> Result<Self> {
        let (bucket, key) = (Arc::clone(bucket), key.to_string());
        let upload = bucket.begin_parts(&key)?;
        let (sent, sending) = (Vec::new(), VecDeque::new());
        Ok(Self { bucket, key, upload, sent, sending, is_finished: false })
    }

    fn next_number(&self) -> u32 {
        // There are at most 10,000 parts.
        (self.sent.len() + self.sending.len()) as u32 + 1
    }

    fn send(&mut self, body: Bytes) -> Result<()> {
        let is_much = |parts: &Self| {
            let bytes: usize = parts.sending.iter().map(|(bytes, _)| bytes).sum();
            bytes.saturating_add(body.len()) > SENDING_BYTES_MAX
        };
        while !self.sending.is_empty() && is_much(self) {
            self.wait_for_one()?;
        }
        let (number, length) = (self.next_number(), body.len());
        let sending = self.bucket.send_part(&self.key, &self.upload, (number, body))?;
        self.sending.push_back((length, sending));
        Ok(())
    }

    fn wait_for_one(&mut self) -> Result<()> {
        if let Some((_, sending)) = self.sending.pop_front() {
            self.sent.push(Bucket::sent_part(sending)?);
        }
        Ok(())
    }

    /// Completes the upload. Returns whether the store showed that it joined exactly the sent
    /// parts.
    fn finish(&mut self) -> Result<bool> {
        while !self.sending.is_empty() {
            self.wait_for_one()?;
        }
        let ended = self.bucket.end_parts(&self.key, &self.upload, &self.sent);
        // An earlier attempt may have created the object, so check for the object itself.
        let is_joined_right = match ended {
            Err(failure) if failure.is_ambiguous && self.bucket.has_any(&self.key)? => false,
            ended => ended?,
        };
        self.is_finished = true;
        Ok(is_joined_right)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // Unmounting must not wait for a store that does not answer. The next start aborts the
        // upload.
        if !self.bucket.answers() {
            return;
        }
        // Waits for in-flight parts, because a part that arrives after the abort would remain in
        // the store.
        while !self.sending.is_empty() {
            if let Err(failure) = self.wait_for_one() {
                tracing::debug!("can't send a part of an unfinished container: {failure}");
            }
        }
        if let Err(failure) = self.bucket.drop_parts(&self.key, &self.upload) {
            tracing::warn!(
                "can't remove the parts of an unfinished container; the next start removes them: \
                 {failure}"
            );
        }
    }
}
