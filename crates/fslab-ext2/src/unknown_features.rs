//! Features of ext3 and ext4 that this crate does not support: their names and consequences.

use std::fmt;

use crate::format::{RawSuperblock, compat, incompat, ro_compat};

/// The unknown features of a file system, as bits of the three sets in the superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForeignFeatures {
    /// Bits of `s_feature_compat`.
    pub compat: u32,
    /// Bits of `s_feature_incompat`.
    pub incompat: u32,
    /// Bits of `s_feature_ro_compat`.
    pub ro_compat: u32,
}

/// Names of features in e2fsprogs.
const COMPAT: &[(u32, &str)] = &[
    (0x2, "imagic_inodes"),
    (compat::HAS_JOURNAL, "has_journal"),
    (0x80, "snapshot_bitmap"),
    (compat::SPARSE_SUPER2, "sparse_super2"),
    (0x400, "fast_commit"),
    (0x800, "stable_inodes"),
    (0x1000, "orphan_file"),
];
const INCOMPAT: &[(u32, &str)] = &[
    (0x1, "compression"),
    (incompat::RECOVER, "needs_recovery"),
    (0x8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x40, "extent"),
    (0x80, "64bit"),
    (0x100, "mmp"),
    (0x200, "flex_bg"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (0x8000, "inline_data"),
    (0x1_0000, "encrypt"),
    (0x2_0000, "casefold"),
];
const RO_COMPAT: &[(u32, &str)] = &[
    (0x8, "huge_file"),
    (0x10, "uninit_bg"),
    (0x20, "dir_nlink"),
    (0x40, "extra_isize"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x400, "metadata_csum"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
    (0x1_0000, "orphan_present"),
];

impl ForeignFeatures {
    /// Returns the unknown features of a superblock.
    pub(crate) fn of(raw: &RawSuperblock) -> Self {
        let known_compat =
            compat::DIR_PREALLOC | compat::EXT_ATTR | compat::RESIZE_INODE | compat::DIR_INDEX;
        let known_incompat = incompat::FILETYPE | incompat::LARGE_DIR;
        let known_ro_compat =
            ro_compat::SPARSE_SUPER | ro_compat::LARGE_FILE | ro_compat::BTREE_DIR;
        Self {
            compat: raw.s_feature_compat.get() & !known_compat,
            incompat: raw.s_feature_incompat.get() & !known_incompat,
            ro_compat: raw.s_feature_ro_compat.get() & !known_ro_compat,
        }
    }

    /// Returns the features that forbid reading the file system.
    pub(crate) fn forbidding_reads(self) -> Self {
        Self { incompat: self.incompat, ..Self::default() }
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    fn names(&self) -> Vec<String> {
        let sets = [
            (self.compat, 'C', COMPAT),
            (self.incompat, 'I', INCOMPAT),
            (self.ro_compat, 'R', RO_COMPAT),
        ];
        let mut names = Vec::new();
        for (bits, letter, known) in sets {
            for number in (0..u32::BITS).filter(|number| bits >> number & 1 == 1) {
                let name = known.iter().find(|(bit, _)| *bit == 1 << number);
                // A feature without a name is printed in the same form as by e2fsprogs.
                names.push(name.map_or_else(
                    || format!("FEATURE_{letter}{number}"),
                    |(_, name)| (*name).to_owned(),
                ));
            }
        }
        names
    }

    fn advice(&self) -> &'static str {
        match *self {
            Self { incompat: incompat::RECOVER, .. } => {
                "run e2fsck first, because its journal was not replayed"
            }
            Self { incompat: 1.., .. } => "mount it with the kernel's driver",
            Self { compat: compat::HAS_JOURNAL, ro_compat: 0, .. } => {
                "fslab can only read it; use e2fsck, tune2fs and resize2fs, or remove the journal \
                 with 'tune2fs -O ^has_journal'"
            }
            _ => "fslab can only read it; use e2fsck, tune2fs and resize2fs",
        }
    }
}

impl fmt::Display for ForeignFeatures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names();
        let plural = if names.len() == 1 { "" } else { "s" };
        write!(
            formatter,
            "the file system has the unsupported feature{plural} {}; {}",
            names.join(", "),
            self.advice()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_feature_errors_name_the_features_and_a_remedy() {
        let told = |compat, incompat, ro_compat| {
            ForeignFeatures { compat, incompat, ro_compat }.to_string()
        };
        assert_eq!(
            told(4, 0, 0),
            "the file system has the unsupported feature has_journal; fslab can only read it; use \
             e2fsck, tune2fs and resize2fs, or remove the journal with 'tune2fs -O ^has_journal'"
        );
        assert_eq!(
            told(0x4000_0204, 0, 0x408),
            "the file system has the unsupported features has_journal, sparse_super2, FEATURE_C30, \
             huge_file, metadata_csum; fslab can only read it; use e2fsck, tune2fs and resize2fs"
        );
        assert!(told(0, 4, 0).contains("; run e2fsck first, because"));
        assert!(told(0, 0x44, 0).ends_with("mount it with the kernel's driver"));
    }
}
