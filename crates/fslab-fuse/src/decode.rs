//! Parses a FUSE request from untrusted bytes.
//!
//! All lengths are checked; an invalid one is reported as [`Malformed`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::protocol::request::InHeader;

/// The error for a request whose length does not fit its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the length of a FUSE request does not fit its operation")]
pub(crate) struct Malformed;

impl From<Malformed> for fslab_vfs::Error {
    fn from(_: Malformed) -> Self {
        Self::Errno(Errno::IO)
    }
}

/// The part of a request that is not parsed yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces<'a>(&'a [u8]);

impl<'a> Pieces<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// Parses a structure from the next bytes.
    pub fn take<T: FromBytes>(&mut self) -> Result<T, Malformed> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_short| Malformed)?;
        self.0 = rest;
        Ok(value)
    }

    /// Parses a structure of which older kernels send only the first fields. Missing fields are
    /// zero.
    pub fn take_padded<T: FromBytes + IntoBytes>(&mut self) -> T {
        let mut value = T::new_zeroed();
        let length = self.0.len().min(size_of::<T>());
        value.as_mut_bytes()[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        value
    }

    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Parses a string that ends with a NUL, and returns it without the NUL.
    pub fn take_name(&mut self) -> Result<&'a OsStr, Malformed> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
        let (name, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(OsStr::from_bytes(name))
    }

    pub fn take_bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// A parsed request: header, body and extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    pub header: InHeader,
    /// The body, whose layout depends on the operation.
    pub body: Pieces<'a>,
    /// The extensions after the body.
    pub extensions: &'a [u8],
}

impl<'a> Incoming<'a> {
    /// Splits a request into header, body and extensions.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) = InHeader::read_from_prefix(bytes).map_err(|_short| Malformed)?;
        let extensions = usize::from(header.total_extlen) * 8;
        let length = rest.len().checked_sub(extensions).ok_or(Malformed)?;
        if header.len as usize != bytes.len() {
            return Err(Malformed);
        }
        let (body, extensions) = rest.split_at(length);
        Ok(Self { header, body: Pieces(body), extensions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &[u8], total_extlen: u16) -> Vec<u8> {
        let header = InHeader {
            len: (40 + body.len()) as u32,
            opcode: 1,
            unique: 7,
            nodeid: 1,
            uid: 0,
            gid: 0,
            pid: 1,
            total_extlen,
            padding: 0,
        };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn request_body_is_taken_in_order_and_never_past_its_end() {
        let bytes = request(b"\x05\0\0\0one\0two\0rest", 0);
        let mut incoming = Incoming::parse(&bytes).unwrap();
        assert_eq!(incoming.body.take::<u32>(), Ok(5));
        assert_eq!(incoming.body.take_name(), Ok(OsStr::new("one")));
        assert_eq!(incoming.body.take_name(), Ok(OsStr::new("two")));
        assert_eq!(incoming.body.take_bytes(5), Err(Malformed));
        assert_eq!(incoming.body.take_bytes(4), Ok(&b"rest"[..]));
        assert_eq!(incoming.body.take::<u32>(), Err(Malformed));
        assert_eq!(incoming.body.take_name(), Err(Malformed));
        assert_eq!(incoming.body.take_padded::<u32>(), 0);
    }

    #[test]
    fn extensions_are_no_part_of_the_body() {
        let bytes = request(b"name\0\0\0\0extended", 1);
        let mut incoming = Incoming::parse(&bytes).unwrap();
        assert_eq!(incoming.body.take_name(), Ok(OsStr::new("name")));
        assert_eq!(incoming.body.take_bytes(4), Err(Malformed));
        assert_eq!(incoming.extensions, b"extended");
        assert_eq!(Incoming::parse(&request(b"1234567", 1)).unwrap_err(), Malformed);
    }

    #[test]
    fn a_wrong_length_is_malformed() {
        let mut bytes = request(b"name\0", 0);
        bytes.push(0);
        assert_eq!(Incoming::parse(&bytes).unwrap_err(), Malformed);
        assert_eq!(Incoming::parse(&bytes[..39]).unwrap_err(), Malformed);
    }
}
