//! Encodes a conversation, which is a sequence of requests, as bytes. A fuzzer changes such bytes,
//! and a property test makes them.
//!
//! The first byte selects the mount options. Each record after it is one request. It begins with
//! six bytes: flags, opcode, inode, length of the extensions in units of eight bytes, and length of
//! the rest (two bytes, low byte first). The rest is the request's body and extensions. It may be
//! shorter if the input ends early.

use zerocopy::IntoBytes;

use crate::protocol::request::InHeader;

/// Record flag: the rest is a complete request with its header.
pub const RAW: u8 = 1;
/// Record flag: the header contains a wrong length.
pub const WRONG_LENGTH: u8 = 2;
/// Record flag: the caller is root.
pub const BY_ROOT: u8 = 4;

/// Number of bytes before a record's rest.
const PREFIX_BYTES: usize = 6;

/// One request of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// A combination of [`RAW`], [`WRONG_LENGTH`] and [`BY_ROOT`].
    pub flags: u8,
    /// The kind of request.
    pub opcode: u8,
    /// The inode of the request.
    pub node: u8,
    /// Length of the extensions at the end of `rest`, in units of eight bytes.
    pub extensions: u8,
    /// Body and extensions, at most 65,535 bytes.
    pub rest: Vec<u8>,
}

impl Record {
    /// The request as the kernel would send it.
    pub(crate) fn to_request(&self) -> Vec<u8> {
        if self.flags & RAW != 0 {
            return self.rest.clone();
        }
        let length = size_of::<InHeader>() + self.rest.len();
        let excess = usize::from(self.flags & WRONG_LENGTH != 0);
        let id = if self.flags & BY_ROOT == 0 { 1000 } else { 0 };
        let header = InHeader {
            len: (length + excess) as u32,
            opcode: self.opcode.into(),
            unique: 2,
            nodeid: self.node.into(),
            uid: id,
            gid: id,
            pid: 0,
            total_extlen: self.extensions.into(),
            padding: 0,
        };
        [header.as_bytes(), &self.rest].concat()
    }
}

/// Encodes a conversation.
#[must_use]
pub fn encode(options: u8, records: &[Record]) -> Vec<u8> {
    let mut bytes = vec![options];
    for Record { flags, opcode, node, extensions, rest } in records {
        let length = rest.len().min(u16::MAX.into()) as u16;
        bytes.extend([*flags, *opcode, *node, *extensions]);
        bytes.extend(length.to_le_bytes());
        bytes.extend(&rest[..length.into()]);
    }
    bytes
}

/// Parses any bytes as options and records of a conversation.
pub(crate) fn decode(bytes: &[u8]) -> (u8, Vec<Record>) {
    let (options, mut left) =
        bytes.split_first().map_or((0, bytes), |(first, rest)| (*first, rest));
    let mut records = Vec::new();
    while let Some((prefix, rest)) = left.split_first_chunk::<PREFIX_BYTES>() {
        let [flags, opcode, node, extensions, low, high] = *prefix;
        let length = rest.len().min(u16::from_le_bytes([low, high]).into());
        let (rest, after) = rest.split_at(length);
        records.push(Record { flags, opcode, node, extensions, rest: rest.to_vec() });
        left = after;
    }
    (options, records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_survives_its_encoding() {
        let record =
            |rest: &[u8]| Record { flags: 4, opcode: 1, node: 2, extensions: 0, rest: rest.into() };
        let records = [record(b"name\0"), record(b"")];
        assert_eq!(decode(&encode(1, &records)), (1, records.to_vec()));
        assert_eq!(decode(b""), (0, vec![]));
        assert_eq!(decode(b"\x01\x04\x01\x02\0\xff\xffab").1, [record(b"ab")]);
    }
}
