//! The xattr that keeps the mode of a tree's root while the root is closed. It contains four octal
//! digits, so that `getfattr` and `chmod` are enough to restore the mode without fslab.

use std::ffi::OsStr;

use fslab_vfs::{FileSystem, Ino, Permissions, Request, Result};

use super::{Marks, get, set};
use crate::lower::own_request;
use crate::stored::format::MODE_NAMES;

/// The bits of a mode with four octal digits.
const MODE_MAX: u32 = 0o7777;

impl Marks {
    /// Returns the name of the xattr that keeps the mode of a closed root.
    #[must_use]
    pub fn mode_name(self) -> &'static str {
        self.choose(MODE_NAMES)
    }

    /// Returns the kept mode; `None` if there is no valid one, or the root belongs to another user.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn read_mode(self, fs: &dyn FileSystem) -> Result<Option<Permissions>> {
        let Some(value) = get(fs, Ino::ROOT, self.mode_name())? else { return Ok(None) };
        let is_believed = self.are_believed(&fs.getattr(&own_request(), Ino::ROOT, None)?);
        Ok(decode(&value).filter(|_| is_believed))
    }

    /// Records a mode. It is durable once the root is synced.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn write_mode(
        self,
        fs: &dyn FileSystem,
        request: &Request,
        mode: Permissions,
    ) -> Result<()> {
        set(fs, request, self.mode_name(), &encode(mode))
    }

    /// Removes the recorded mode.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn remove_mode(self, fs: &dyn FileSystem) -> Result<()> {
        fs.removexattr(&own_request(), Ino::ROOT, OsStr::new(self.mode_name()))
    }
}

fn encode(mode: Permissions) -> Vec<u8> {
    format!("{:04o}", mode.bits() & MODE_MAX).into_bytes()
}

fn decode(value: &[u8]) -> Option<Permissions> {
    let is_octal = value.len() == 4 && value.iter().all(|digit| (b'0'..=b'7').contains(digit));
    let bits = value.iter().fold(0, |bits, digit| bits << 3 | u32::from(digit & 7));
    is_octal.then(|| Permissions::new(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_mode_is_four_octal_digits() {
        assert_eq!(encode(Permissions::new(0o755)), b"0755");
        for mode in [0, 0o700, 0o755, 0o3771, 0o7777].map(Permissions::new) {
            assert_eq!(decode(&encode(mode)), Some(mode));
        }
        for wrong in [&b""[..], b"755", b"00755", b"0955", b"+755"] {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
    }
}
