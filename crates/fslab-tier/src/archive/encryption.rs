//! An archive whose containers are encrypted before they leave this machine.
//!
//! A container is sealed in chunks of 64 KiB by ChaCha20-Poly1305. The key of a container is
//! derived from the archive's key, the identities of archive and container, and a salt. The nonce
//! consists of the number of the chunk and a flag for the last chunk. No nonce is used twice with a
//! key, because each write of a container has its own key.
//!
//! So a successful read returns exactly the bytes that were written with this key at this offset of
//! this container. Chunks that were changed, moved, truncated or copied from elsewhere are refused.
//!
//! Reading a range reads the chunks that overlap it. A damaged byte makes its chunk unreadable.
//! Damage to the head, which contains the salt, makes the whole container unreadable; then only
//! another copy can be used.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Nonce, Tag};
use quick_cache::sync::Cache;
use zerocopy::{FromBytes, IntoBytes};

use super::{
    Archive, Container, ContainerKind, Deletion, Key, Meter, Proof, Retained, Staged, Traffic,
    Upload,
};
use crate::id::{Id, Identities};
use crate::stored::format::{
    CHUNK_BYTES, CHUNK_LOG2, SEAL_MAGIC, SealRecord, TAG_BYTES, VERSION, crc_of,
};

const HEAD_BYTES: u64 = size_of::<SealRecord>() as u64;
const SEALED_BYTES: u64 = CHUNK_BYTES + TAG_BYTES;

/// Number of containers whose keys and lengths are cached.
const OPENED: usize = 256;

/// An archive whose containers are encrypted.
pub struct EncryptedArchive {
    inner: Arc<dyn Archive>,
    key: Key,
    identities: Arc<dyn Identities>,
    opened: Cache<Container, Arc<Opened>>,
}

/// The cached state of a container.
struct Opened {
    cipher: ChaCha20Poly1305,
    length: u64,
}

impl EncryptedArchive {
    /// Returns an archive that encrypts containers before `inner` stores them, and decrypts them
    /// when they are read.
    #[must_use]
    pub fn new(inner: Arc<dyn Archive>, key: Key, identities: Arc<dyn Identities>) -> Self {
        Self { inner, key, identities, opened: Cache::new(OPENED) }
    }

    fn cipher(&self, container: Container, salt: &[u8; 32]) -> ChaCha20Poly1305 {
        let key = self.key.of_container(self.inner.id(), container, salt);
        ChaCha20Poly1305::new((&*key).into())
    }

    fn open(&self, container: Container) -> io::Result<Arc<Opened>> {
        // Concurrent readers of a container share one attempt, which saves requests.
        self.opened.get_or_insert_with(&container, || self.open_anew(container))
    }

    fn open_anew(&self, container: Container) -> io::Result<Arc<Opened>> {
        let length = plain_length(self.inner.length(container)?)?;
        let mut head = [0; HEAD_BYTES as usize];
        if self.inner.read(container, 0, &mut head)? != head.len() {
            return Err(wrong("the archive returned fewer bytes than the container has"));
        }
        let head = SealRecord::read_from_bytes(&head).ok().filter(is_head);
        let head =
            head.ok_or_else(|| wrong("the head of an encrypted container is missing or damaged"))?;
        Ok(Arc::new(Opened { cipher: self.cipher(container, &head.salt), length }))
    }

    fn read_opened(
        &self,
        container: Container,
        opened: &Opened,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let end = opened.length.min(offset.saturating_add(buffer.len() as u64));
        // Even an empty container has one chunk. Only an intact chunk proves that the container is
        // empty.
        let last_met = end.saturating_sub(1) / CHUNK_BYTES;
        let chunks = (offset / CHUNK_BYTES).min(last_met)..=last_met;
        let last = opened.length.saturating_sub(1) / CHUNK_BYTES;
        let sealed = self.sealed(container, &chunks, opened.length)?;
        for (number, chunk) in chunks.zip(sealed.chunks(SEALED_BYTES as usize)) {
            let plain = opened.unseal(number, number == last, chunk)?;
            let begin = number * CHUNK_BYTES;
            let (from, to) = (offset.max(begin), end.min(begin + plain.len() as u64));
            if from < to {
                let target = (from - offset) as usize..(to - offset) as usize;
                buffer[target]
                    .copy_from_slice(&plain[(from - begin) as usize..(to - begin) as usize]);
            }
        }
        Ok(end.saturating_sub(offset) as usize)
    }

    /// Reads chunks in encrypted form.
    fn sealed(
        &self,
        container: Container,
        chunks: &std::ops::RangeInclusive<u64>,
        length: u64,
    ) -> io::Result<Vec<u8>> {
        let start = chunks.start() * SEALED_BYTES;
        let end = ((chunks.end() + 1) * SEALED_BYTES).min(sealed_length(length) - HEAD_BYTES);
        let mut sealed = vec![0; (end - start) as usize];
        if self.inner.read(container, HEAD_BYTES + start, &mut sealed)? != sealed.len() {
            return Err(wrong("the archive returned fewer bytes than the container has"));
        }
        Ok(sealed)
    }
}

impl Opened {
    fn unseal(&self, number: u64, is_last: bool, chunk: &[u8]) -> io::Result<Vec<u8>> {
        let refused = || {
            wrong(
                "a chunk is damaged, belongs to another offset or container, or was written with \
                 another key",
            )
        };
        let (plain, tag) =
            chunk.split_last_chunk::<{ TAG_BYTES as usize }>().ok_or_else(refused)?;
        let mut plain = plain.to_vec();
        let tag = Tag::from(*tag);
        let unsealed = self.cipher.decrypt_inout_detached(
            &nonce(number, is_last),
            b"",
            (&mut plain[..]).into(),
            &tag,
        );
        unsealed.map(|()| plain).map_err(|_same| refused())
    }
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn nonce(number: u64, is_last: bool) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    nonce[8] = is_last.into();
    nonce.into()
}

fn is_head(head: &SealRecord) -> bool {
    head.magic == SEAL_MAGIC
        && (head.version, head.chunk_log2) == (VERSION, CHUNK_LOG2)
        && head.crc.get() == crc_of(head.as_bytes())
}

/// Returns the decrypted length of a container of `sealed` bytes.
fn plain_length(sealed: u64) -> io::Result<u64> {
    let chunks = sealed.saturating_sub(HEAD_BYTES).div_ceil(SEALED_BYTES);
    let plain = sealed.checked_sub(HEAD_BYTES + chunks * TAG_BYTES).filter(|_| chunks > 0);
    plain.ok_or_else(|| wrong("an encrypted container is truncated"))
}

/// Returns the encrypted length of a container of `plain` bytes.
fn sealed_length(plain: u64) -> u64 {
    HEAD_BYTES + plain + plain.div_ceil(CHUNK_BYTES).max(1) * TAG_BYTES
}

impl Archive for EncryptedArchive {
    fn id(&self) -> Id {
        self.inner.id()
    }

    fn label(&self) -> &str {
        self.inner.label()
    }

    fn limits_its_calls(&self) -> bool {
        self.inner.limits_its_calls()
    }

    fn refusal(&self) -> Option<String> {
        self.inner.refusal()
    }

    fn is_authentic(&self) -> bool {
        true
    }

    fn check(&self) -> io::Result<()> {
        self.inner.check()
    }

    fn begin(&self, container: Container) -> io::Result<Box<dyn Upload>> {
        let mut salt = [0; 32];
        salt[..16].copy_from_slice(&self.identities.make().0);
        salt[16..].copy_from_slice(&self.identities.make().0);
        let cipher = self.cipher(container, &salt);
        let mut head = SealRecord {
            magic: SEAL_MAGIC,
            version: VERSION,
            chunk_log2: CHUNK_LOG2,
            zero: [0; 10],
            salt,
            crc: 0.into(),
        };
        head.crc = crc_of(head.as_bytes()).into();
        let mut inner = self.inner.begin(container)?;
        inner.write(head.as_bytes())?;
        Ok(Box::new(SealingUpload { inner, cipher, pending: Vec::new(), chunks: 0 }))
    }

    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let opened = self.open(container)?;
        let read = self.read_opened(container, &opened, offset, buffer);
        if read.as_ref().is_ok() {
            return read;
        }
        // The container may have been written again since its key was cached, with another salt.
        self.opened.remove(&container);
        let opened = self.open(container)?;
        self.read_opened(container, &opened, offset, buffer)
    }

    fn stage(&self, container: Container) -> io::Result<Staged> {
        self.inner.stage(container)
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        plain_length(self.inner.length(container)?)
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        // A truncated container is still listed; reading it fails.
        self.inner.list(kind, &mut |id, length| visit(id, plain_length(length).unwrap_or(0)))
    }

    fn forget(&self, container: Container) {
        self.opened.remove(&container);
        self.inner.forget(container);
    }

    fn delete(&self, container: Container) -> io::Result<Deletion> {
        self.opened.remove(&container);
        self.inner.delete(container)
    }

    fn retained(&self) -> Option<Retained> {
        self.inner.retained()
    }

    fn retry_deletions(&self) -> io::Result<()> {
        self.inner.retry_deletions()
    }

    fn proof(&self) -> Proof {
        self.inner.proof()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }

    fn position(&self, container: Id, offset: u64) -> (u64, u64) {
        let chunk = offset / CHUNK_BYTES;
        self.inner.position(container, HEAD_BYTES + chunk * SEALED_BYTES + offset % CHUNK_BYTES)
    }

    fn meter(&self) -> Option<Arc<Meter>> {
        self.inner.meter()
    }

    fn is_located(&self, container: Container) -> bool {
        self.opened.contains_key(&container)
    }

    fn traffic_of_writing(&self, bytes: u64) -> Traffic {
        self.inner.traffic_of_writing(sealed_length(bytes))
    }

    /// Whole chunks are read. If the container is not located, its head is read first.
    fn traffic_of_reading(&self, range: Range<u64>, length: u64, is_located: bool) -> Traffic {
        let sealed = sealed_length(length);
        let head = match is_located {
            true => Traffic::default(),
            false => self.inner.traffic_of_reading(0..HEAD_BYTES, sealed, false),
        };
        let end = range.end.min(length).saturating_sub(1) / CHUNK_BYTES + 1;
        let start = HEAD_BYTES + range.start / CHUNK_BYTES * SEALED_BYTES;
        let chunks = start..(HEAD_BYTES + end * SEALED_BYTES).min(sealed);
        head + self.inner.traffic_of_reading(chunks, sealed, true)
    }
}

/// A container that is encrypted while it is written.
struct SealingUpload {
    inner: Box<dyn Upload>,
    cipher: ChaCha20Poly1305,
    /// Bytes that are not encrypted yet: less than a chunk, or a full chunk that may be the last
    /// one.
    pending: Vec<u8>,
    chunks: u64,
}

impl SealingUpload {
    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        let nonce = nonce(self.chunks, is_last);
        let sealed =
            self.cipher.encrypt_inout_detached(&nonce, b"", (&mut self.pending[..]).into());
        let tag = sealed.map_err(|_same| wrong("a chunk is too long to be encrypted"))?;
        self.inner.write(&self.pending)?;
        self.inner.write(&tag)?;
        self.pending.clear();
        self.chunks += 1;
        Ok(())
    }
}

impl Upload for SealingUpload {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.pending.len() as u64 == CHUNK_BYTES {
                self.seal(false)?;
            }
            let room = CHUNK_BYTES as usize - self.pending.len();
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.pending.extend(now);
            bytes = rest;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<Proof> {
        self.seal(true)?;
        self.inner.finish()
    }
}

#[cfg(test)]
mod tests;
