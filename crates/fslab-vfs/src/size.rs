//! Sizes in text form.

use std::fmt;
use std::str::FromStr;

use bytesize::ByteSize;

/// A number of bytes, written `4096`, `4K`, `4KiB`, or `4KB` for 4000. A letter without `B` means a
/// power of 1024, as in `mkfs`, `dd`, `truncate` and `fio`. Displayed as `4.0 KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// A size of this many bytes.
    #[must_use]
    pub const fn of(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A size of this many mebibytes. Saturates.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 20))
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = String;

    /// # Errors
    /// A message for users.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_binary =
            text.trim_end().ends_with(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T', 'p', 'P']);
        let parsed = if is_binary {
            format!("{}iB", text.trim_end()).parse::<ByteSize>()
        } else {
            text.parse::<ByteSize>()
        };
        let size = parsed.map_err(|_its_own_words| {
            format!("'{text}' is not a size such as 4096, 64K or 1.5GiB")
        })?;
        Ok(Self(size.as_u64()))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ByteSize::b(self.0).display().iec().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[track_caller]
    fn check(text: &str, bytes: Option<u64>) {
        assert_eq!(text.parse::<Size>().ok().map(Size::bytes), bytes, "{text}");
    }

    #[test]
    fn single_letter_size_units_are_powers_of_1024() {
        check("4096", Some(4096));
        check("4K", Some(4096));
        check("4k", Some(4096));
        check("1.5 M", Some(3 << 19));
        check("4KiB", Some(4096));
        check("4 KB", Some(4000));
        check("4B", Some(4));
        check("2G", Some(2 << 30));
        check("2T", Some(2 << 40));
        for wrong in ["", "K", "4X", "4KiBK", "-4K", "4KK"] {
            check(wrong, None);
        }
    }

    #[test]
    fn printed_sizes_can_be_parsed() {
        assert_eq!(Size::of(4096).to_string(), "4.0 KiB");
        assert_eq!(Size::mib(1).to_string().parse(), Ok(Size::mib(1)));
    }
}
