//! Decoded content of chunks.

use std::sync::Arc;

/// The content of a chunk, kept in memory.
#[derive(Clone, Debug)]
pub struct Hot {
    pub chunk: u64,
    pub content: Content,
}

/// The content of a chunk: bytes that start at an offset in the chunk, with zeros before and after
/// them.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub from: u32,
    pub bytes: Arc<Vec<u8>>,
}

impl Content {
    /// Returns the end of the bytes within the chunk.
    pub fn to(&self) -> u32 {
        self.from + self.bytes.len() as u32
    }

    /// Fills a buffer with the content from `start`, and with zeros where the content has no bytes.
    pub fn copy_to(&self, start: u32, buffer: &mut [u8]) {
        buffer.fill(0);
        self.overlay(start, buffer);
    }

    /// Copies the content from `start` into a buffer. Buffer bytes outside the content are left
    /// unchanged.
    pub fn overlay(&self, start: u32, buffer: &mut [u8]) {
        let end = start + buffer.len() as u32;
        let (from, to) = (self.from.max(start), self.to().min(end));
        if from < to {
            let source = &self.bytes[(from - self.from) as usize..(to - self.from) as usize];
            buffer[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
        }
    }

    /// Returns the content with zeros from `from` to `to`, which must lie within it. Returns `None`
    /// if nothing is left.
    pub fn without(&self, from: u32, to: u32) -> Option<Self> {
        let (start, end) = (self.from, self.to());
        let at = |place: u32| (place - start) as usize;
        let bytes = &self.bytes;
        let (begin, rest) = match (from == start, to == end) {
            (true, true) => return None,
            (true, false) => (to, bytes[at(to)..].to_vec()),
            (false, true) => (start, bytes[..at(from)].to_vec()),
            (false, false) => {
                let mut whole = bytes.to_vec();
                whole[at(from)..at(to)].fill(0);
                (start, whole)
            }
        };
        Some(Self { from: begin, bytes: Arc::new(rest) })
    }
}

/// Writes bytes into content, extending it as needed.
pub fn merge(content: &mut Content, start: u32, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    if content.bytes.is_empty() {
        *content = Content { from: start, bytes: Arc::new(data.to_vec()) };
        return;
    }
    let bytes = Arc::make_mut(&mut content.bytes);
    if start < content.from {
        let gap = (content.from - start) as usize;
        bytes.splice(0..0, std::iter::repeat_n(0, gap));
        content.from = start;
    }
    let at = (start - content.from) as usize;
    if bytes.len() < at + data.len() {
        bytes.resize(at + data.len(), 0);
    }
    bytes[at..at + data.len()].copy_from_slice(data);
}
