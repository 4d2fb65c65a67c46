//! Inode flags as `lsattr` and `chattr` know them, in both of the kernel's forms.

/// Which form of the flags is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAttrForm {
    /// `FS_IOC_GETFLAGS`
    Flags,
    /// `FS_IOC_FSGETXATTR`
    Extended,
}

/// The flags of an inode. Setting one form leaves alone what only the other form can express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAttr {
    /// `FS_*_FL` bits.
    Flags(u32),
    /// `struct fsxattr`
    Extended(ExtendedAttr),
}

/// The kernel's `struct fsxattr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtendedAttr {
    /// `FS_XFLAG_*` bits.
    pub xflags: u32,
    /// Extent size hint, in bytes.
    pub extent_size: u32,
    /// Number of extents; ignored when set.
    pub extents: u32,
    /// Project identifier.
    pub project: u32,
    /// Extent size hint for copy-on-write, in bytes.
    pub cow_extent_size: u32,
}

/// `FS_*_FL` bits and the `FS_XFLAG_*` bits of the same meaning: sync, immutable, append only, no
/// dump, no access time, DAX, inherited project.
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
    /// `FS_IMMUTABLE_FL`: neither bytes nor names nor attributes may change.
    pub const IMMUTABLE: u32 = 0x10;
    /// `FS_APPEND_FL`: bytes may only be added at the end.
    pub const APPEND: u32 = 0x20;

    /// Bytes of the shorter form.
    const FLAGS_BYTES: usize = 4;
    /// Bytes of the longer form, of which the last eight are zeros.
    const EXTENDED_BYTES: usize = 28;

    /// The flags that both forms have, as `FS_*_FL` bits.
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

    /// `FS_*_FL` bits in the form asked for; bits without an equivalent are left out.
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

    /// The form that this is.
    #[must_use]
    pub fn form(&self) -> FileAttrForm {
        match self {
            Self::Flags(_) => FileAttrForm::Flags,
            Self::Extended(_) => FileAttrForm::Extended,
        }
    }

    /// The bytes that the ioctl of this form reads or writes: 4 or 28.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Flags(flags) => flags.to_ne_bytes().to_vec(),
            Self::Extended(attributes) => {
                let ExtendedAttr { xflags, extent_size, extents, project, cow_extent_size } =
                    *attributes;
                let words = [xflags, extent_size, extents, project, cow_extent_size, 0, 0];
                words.iter().flat_map(|word| word.to_ne_bytes()).collect()
            }
        }
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote; `None` for any other number of bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes
            .chunks_exact(4)
            .map(|word| u32::from_ne_bytes(word.try_into().unwrap_or_default()));
        let mut next = || words.next().unwrap_or_default();
        match bytes.len() {
            Self::FLAGS_BYTES => Some(Self::Flags(next())),
            Self::EXTENDED_BYTES => Some(Self::Extended(ExtendedAttr {
                xflags: next(),
                extent_size: next(),
                extents: next(),
                project: next(),
                cow_extent_size: next(),
            })),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_survive_their_bytes() {
        let extended = ExtendedAttr {
            xflags: 0x8000_0018,
            extent_size: 1 << 16,
            extents: 3,
            project: 42,
            cow_extent_size: 1 << 17,
        };
        for attr in [FileAttr::Flags(0x8008_0030), FileAttr::Extended(extended)] {
            assert_eq!(FileAttr::from_bytes(&attr.to_bytes()), Some(attr));
        }
        assert_eq!(FileAttr::from_bytes(&[0; 8]), None);
    }

    #[test]
    fn flags_of_one_form_are_those_of_the_other() {
        // Immutable, append only, no dump, no access time; an index has no equivalent.
        let extended = FileAttr::from_flags(0x10f0, FileAttrForm::Extended);
        let FileAttr::Extended(attributes) = extended else { panic!("{extended:?}") };
        assert_eq!(attributes.xflags, 0xd8);
        assert_eq!(extended.flags(), 0xf0);
        assert_eq!(FileAttr::from_flags(0x10f0, FileAttrForm::Flags).flags(), 0x10f0);
    }
}
