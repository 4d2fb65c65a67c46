//! The encoding of the parts of stored records that have variable length: numbers and byte strings.

use fslab_vfs::Timestamp;

pub use crate::error::Corrupt;

/// The result of decoding a record.
pub type Result<T> = std::result::Result<T, Corrupt>;

const CUT_SHORT: Corrupt = Corrupt("a record is cut short");

/// Decodes numbers and byte strings from the front of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    /// Returns the next `length` bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(CUT_SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().or(Err(CUT_SHORT))
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads a number of four bytes.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads a number of eight bytes.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads an identity of sixteen bytes.
    pub fn id(&mut self) -> Result<crate::Id> {
        Ok(crate::Id(self.array()?))
    }

    /// Reads a hash of thirty-two bytes.
    pub fn hash(&mut self) -> Result<[u8; 32]> {
        self.array()
    }

    /// Reads a time.
    pub fn time(&mut self) -> Result<Timestamp> {
        let seconds = i64::from_le_bytes(self.array()?);
        let nanoseconds = self.u32()?;
        if nanoseconds >= 1_000_000_000 {
            return Err(Corrupt("a time has too many nanoseconds"));
        }
        Ok(Timestamp { seconds, nanoseconds })
    }

    /// Reads a byte string that follows its length.
    pub fn string(&mut self) -> Result<Vec<u8>> {
        let length = self.u32()? as usize;
        Ok(self.take(length)?.to_vec())
    }

    /// Reads a number in LEB128: groups of seven bits, the low ones first.
    pub fn packed(&mut self) -> Result<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Corrupt("a number is too large"))
    }

    /// Checks that the buffer is empty.
    ///
    /// # Errors
    /// If bytes are left.
    pub fn end(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Corrupt("a record is too long")) }
    }
}

/// Appends a byte string after its length.
pub fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    out.extend((string.len() as u32).to_le_bytes());
    out.extend(string);
}

/// Appends a time.
pub fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    out.extend(time.seconds.to_le_bytes());
    out.extend(time.nanoseconds.to_le_bytes());
}

/// Appends a number in LEB128: groups of seven bits, the low ones first.
pub fn put_packed(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_numbers_round_trip_and_malformed_ones_are_refused() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_packed(&mut out, number);
            assert_eq!(Cursor(&out).packed(), Ok(number));
        }
        assert!(Cursor(&[0xff; 10]).packed().is_err());
        assert!(Cursor(&[0x80; 3]).packed().is_err());
    }
}
