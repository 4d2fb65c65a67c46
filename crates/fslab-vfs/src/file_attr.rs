//! Inode flags as used by `lsattr` and `chattr`, in both of the kernel's forms.

pub use fslab_sys::fsxattr::Fsxattr as ExtendedAttr;
use zerocopy::{FromBytes, IntoBytes};

/// Selects the form of the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAttrForm {
    /// `FS_IOC_GETFLAGS`
    Flags,
    /// `FS_IOC_FSGETXATTR`
    Extended,
}

/// The flags of an inode. Setting one form preserves flags that only the other form can express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAttr {
    /// `FS_*_FL` bits.
    Flags(u32),
    /// `struct fsxattr`
    Extended(ExtendedAttr),
}

/// `FS_*_FL` bits and the equivalent `FS_XFLAG_*` bits: sync, immutable, append-only, no dump, no
/// access time, DAX, inherited project.
const EQUIVALENTS: [(u32, u32); 7] = [
    (0x8, 0x20),
    (FileAttr::IMMUTABLE, 0x8),
    (FileAttr::APPEND, 0x10),
    (0x40, 0x80),
    (0x80, 0x40),
    (0x200_0000, 0x8000),
    (0x2000_0000, 0x200),
];

impl FileAttr {
    /// `FS_IMMUTABLE_FL`: contents, names and attributes can't change.
    pub const IMMUTABLE: u32 = 0x10;
    /// `FS_APPEND_FL`: contents can only be appended.
    pub const APPEND: u32 = 0x20;

    /// Returns the flags as `FS_*_FL` bits. Flags of the extended form without an equivalent are
    /// dropped.
    #[must_use]
    pub fn flags(&self) -> u32 {
        match self {
            Self::Flags(flags) => *flags,
            Self::Extended(attributes) => {
                let set = EQUIVALENTS.iter().filter(|(_, xflag)| attributes.xflags & xflag != 0);
                set.fold(0, |flags, (flag, _)| flags | flag)
            }
        }
    }

    /// Converts `FS_*_FL` bits to the given form; bits without an equivalent are dropped.
    #[must_use]
    pub fn from_flags(flags: u32, form: FileAttrForm) -> Self {
        match form {
            FileAttrForm::Flags => Self::Flags(flags),
            FileAttrForm::Extended => {
                let set = EQUIVALENTS.iter().filter(|(flag, _)| flags & flag != 0);
                let xflags = set.fold(0, |xflags, (_, xflag)| xflags | xflag);
                Self::Extended(ExtendedAttr { xflags, ..ExtendedAttr::default() })
            }
        }
    }

    /// The form of these flags.
    #[must_use]
    pub fn form(&self) -> FileAttrForm {
        match self {
            Self::Flags(_) => FileAttrForm::Flags,
            Self::Extended(_) => FileAttrForm::Extended,
        }
    }

    /// The bytes that the ioctl of this form transfers: 4 or 28.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Flags(flags) => flags.to_ne_bytes().to_vec(),
            Self::Extended(attributes) => attributes.as_bytes().to_vec(),
        }
    }

    /// Parses the bytes made by [`to_bytes`](Self::to_bytes); `None` for any other length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if let Ok(flags) = u32::read_from_bytes(bytes) {
            return Some(Self::Flags(flags));
        }
        let attributes = ExtendedAttr::read_from_bytes(bytes).ok()?;
        Some(Self::Extended(ExtendedAttr { padding: [0; 8], ..attributes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_attribute_forms_round_trip_through_bytes() {
        let extended = ExtendedAttr {
            xflags: 0x8000_0018,
            extent_size: 1 << 16,
            extents: 3,
            project: 42,
            cow_extent_size: 1 << 17,
            ..ExtendedAttr::default()
        };
        for attr in [FileAttr::Flags(0x8008_0030), FileAttr::Extended(extended)] {
            assert_eq!(FileAttr::from_bytes(&attr.to_bytes()), Some(attr));
        }
        assert_eq!(FileAttr::from_bytes(&[0; 8]), None);
    }

    #[test]
    fn flags_are_converted_between_attribute_forms() {
        // Immutable, append-only, no dump, no access time; the index flag has no equivalent.
        let extended = FileAttr::from_flags(0x10f0, FileAttrForm::Extended);
        let FileAttr::Extended(attributes) = extended else { panic!("{extended:?}") };
        assert_eq!(attributes.xflags, 0xd8);
        assert_eq!(extended.flags(), 0xf0);
        assert_eq!(FileAttr::from_flags(0x10f0, FileAttrForm::Flags).flags(), 0x10f0);
    }
}
