//! The payload of one reply, in a buffer that belongs to a thread.

use fslab_vfs::Ino;
use zerocopy::{Immutable, IntoBytes};

/// A reference that a reply gives to the kernel. It is released if the kernel does not receive the
/// reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandedOver {
    /// A lookup was counted.
    Lookup(Ino),
    /// A file was opened under this number.
    File(Ino, u64),
    /// A directory was opened under this number.
    Directory(Ino, u64),
}

/// A reply under construction. The buffer never shrinks, so that no byte is zeroed twice.
#[derive(Debug, Default)]
pub(crate) struct ReplyBuffer {
    buffer: Vec<u8>,
    used: usize,
    handed_over: Vec<HandedOver>,
}

impl ReplyBuffer {
    /// Begins a new reply.
    pub fn clear(&mut self) {
        self.used = 0;
        self.handed_over.clear();
    }

    /// The payload so far.
    pub fn payload(&self) -> &[u8] {
        &self.buffer[..self.used]
    }

    /// Appends a structure.
    pub fn put<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.put_bytes(value.as_bytes());
    }

    /// Appends bytes.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        let start = self.used;
        self.room(bytes.len()).copy_from_slice(bytes);
        self.used = start + bytes.len();
    }

    /// Space after the payload, with undefined content; [`Self::add_used`] appends it to the
    /// payload.
    pub fn room(&mut self, length: usize) -> &mut [u8] {
        let end = self.used + length;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        &mut self.buffer[self.used..end]
    }

    /// Appends the first bytes of the space returned by [`Self::room`] to the payload.
    pub fn add_used(&mut self, length: usize) {
        self.used = (self.used + length).min(self.buffer.len());
    }

    /// Records a reference given by the reply.
    pub fn hand_over(&mut self, what: HandedOver) {
        self.handed_over.push(what);
    }

    /// Removes and returns the references given by the reply, in reverse order.
    pub fn take_back(&mut self) -> impl Iterator<Item = HandedOver> {
        self.handed_over.drain(..).rev()
    }

    /// Size of the buffer in bytes.
    #[cfg(any(test, feature = "testing"))]
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleared_reply_holds_nothing_of_the_previous_one() {
        let mut output = ReplyBuffer::default();
        output.put_bytes(b"long before");
        output.hand_over(HandedOver::Lookup(Ino::ROOT));
        output.clear();
        output.put(&1_u32);
        output.room(100)[..2].copy_from_slice(b"ab");
        output.add_used(2);
        assert_eq!(output.payload(), b"\x01\0\0\0ab");
        assert_eq!(output.take_back().count(), 0);
    }
}
