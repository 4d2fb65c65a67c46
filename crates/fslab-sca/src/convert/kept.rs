//! Keeps the original's fslab xattrs in the encoded file, so that decoding restores them.
//!
//! An original that looks like a stored file may have the size xattr of another tree. The encoded
//! file needs this xattr for itself. So the original's value is kept in another xattr, which the
//! mount hides.

use fslab_vfs::{Ino, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::scope::looks_stored;
use super::{Conversion, Direction, Kept, Why, contents};
use crate::format::{KEPT_NAME, KeptRecord, MARK_NAME, VERSION};
use crate::size_xattr::{self, Fingerprint, Mark};
use crate::superblock;

const HAS_MARK: u8 = 1;
const HAS_EARLIER: u8 = 2;

/// The fslab xattrs of an original.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnXattrs {
    original: Fingerprint,
    /// The size xattr.
    mark: Option<Vec<u8>>,
    /// The value of `KEPT_NAME`, which an original has if it was itself made by encoding.
    earlier: Option<Vec<u8>>,
}

impl OwnXattrs {
    fn encode(&self) -> Vec<u8> {
        let mark = self.mark.as_deref().unwrap_or_default();
        let flag = |is_given: bool, flag: u8| if is_given { flag } else { 0 };
        let flags = flag(self.mark.is_some(), HAS_MARK) | flag(self.earlier.is_some(), HAS_EARLIER);
        let mut record = KeptRecord {
            version: VERSION,
            flags,
            // An xattr has at most 64 KiB. So if the value is as long as `u16::MAX`, the record
            // does not fit into the other xattr, and setting that xattr fails.
            mark_length: u16::try_from(mark.len()).unwrap_or(u16::MAX).into(),
            crc: 0.into(),
            size: self.original.size.into(),
            beginning_crc: self.original.beginning_crc.into(),
            zero: 0.into(),
        };
        let rest = [mark, self.earlier.as_deref().unwrap_or_default()].concat();
        record.crc = crc32c::crc32c_append(crc32c::crc32c(record.as_bytes()), &rest).into();
        [record.as_bytes(), &rest].concat()
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let (mut record, rest) = KeptRecord::read_from_prefix(value).ok()?;
        let crc = std::mem::take(&mut record.crc).get();
        let found = crc32c::crc32c_append(crc32c::crc32c(record.as_bytes()), rest);
        if record.version != VERSION || crc != found {
            return None;
        }
        let (mark, earlier) = rest.split_at_checked(usize::from(record.mark_length.get()))?;
        let given = |flag, value: &[u8]| (record.flags & flag != 0).then(|| value.to_vec());
        let (size, beginning_crc) = (record.size.get(), record.beginning_crc.get());
        Some(Self {
            original: Fingerprint { size, beginning_crc },
            mark: given(HAS_MARK, mark),
            earlier: given(HAS_EARLIER, earlier),
        })
    }
}

impl Conversion {
    /// When encoding, keeps the original's fslab xattrs in the copy; when decoding, restores them.
    pub(super) fn keep_own_xattrs(&self, original: Ino, copy: Ino) -> Kept<()> {
        match self.direction {
            Direction::Encode => self.keep_for_decoding(original, copy),
            Direction::Decode => self.give_back_own(original, copy).map_err(Why::Nested),
        }
    }

    fn keep_for_decoding(&self, original: Ino, copy: Ino) -> Kept<()> {
        let [found, earlier] = self.own_xattrs(original)?;
        let mark = match found.as_deref().and_then(size_xattr::before_content) {
            Some((before, _)) => before,
            None => found,
        };
        let beginning = contents::beginning(&*self.lower, &self.request, original)?;
        if mark.is_none() && earlier.is_none() && !looks_stored(&beginning) {
            return Ok(());
        }
        let original = self.fingerprint(original, &beginning)?;
        let value = OwnXattrs { original, mark, earlier }.encode();
        self.set_on_copy(copy, KEPT_NAME.as_ref(), &value)
    }

    /// Restores the original's fslab xattrs on a decoded file. If the decoded file looks like a
    /// stored file, it is marked as foreign. The next run then does not decode it, and a mount
    /// shows it unchanged, until the whole tree is decoded.
    fn give_back_own(&self, original: Ino, copy: Ino) -> Result<()> {
        let (lower, request) = (&*self.lower, &self.request);
        let beginning = contents::beginning(lower, request, copy)?;
        let fingerprint = self.fingerprint(copy, &beginning)?;
        let kept = size_xattr::value(lower, request, original, KEPT_NAME)?;
        let kept = kept.and_then(|value| OwnXattrs::decode(&value));
        let Some(kept) = kept.filter(|kept| kept.original == fingerprint) else {
            // The file was written through a mount, so it may never have been a plain file in any
            // tree.
            return match superblock::identify(&beginning) {
                Some(_) => size_xattr::write(lower, request, copy, &Mark::Foreign),
                None => Ok(()),
            };
        };
        let found = kept.mark.as_deref().and_then(size_xattr::decode);
        let is_taken_for_stored = match found {
            Some(Mark::Foreign) => false,
            Some(Mark::Clean(_) | Mark::Dirty) => true,
            None => looks_stored(&beginning),
        };
        let value = match is_taken_for_stored {
            true => Some(size_xattr::content(kept.mark.as_deref(), fingerprint)),
            false => kept.mark,
        };
        for (name, value) in [(MARK_NAME, value), (KEPT_NAME, kept.earlier)] {
            if value.is_some() {
                size_xattr::set(lower, request, copy, (name, value.as_deref()))?;
            }
        }
        Ok(())
    }

    /// Returns values that show whether a file is still the same.
    pub(super) fn fingerprint(&self, ino: Ino, beginning: &[u8]) -> Result<Fingerprint> {
        let size = self.lower.getattr(&self.request, ino, None)?.size;
        Ok(Fingerprint { size, beginning_crc: crc32c::crc32c(beginning) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_xattrs_survive_encoding() {
        let original = Fingerprint { size: 12, beginning_crc: 5 };
        let values = [None, Some(Vec::new()), Some(vec![7; 40])];
        for mark in values.clone() {
            for earlier in values.clone() {
                let own = OwnXattrs { original, mark: mark.clone(), earlier };
                let value = own.encode();
                assert_eq!(OwnXattrs::decode(&value), Some(own));
                for index in 0..value.len() {
                    let mut damaged = value.clone();
                    damaged[index] ^= 1;
                    assert_eq!(OwnXattrs::decode(&damaged), None, "byte {index}");
                }
            }
        }
    }
}
