//! The operations of a file system as values. An [`Operation`] has no arguments, and is used for
//! counting, recording and selecting. A [`Call`] has arguments, and is used by interceptors.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;

use crate::file_attr::{FileAttr, FileAttrForm};
use crate::types::{
    FallocateMode, Handle, Ino, Name, OpenMode, RenameMode, SeekTo, SetAttr, WriteOptions,
    XattrMode,
};

/// A path that an operation refers to.
#[derive(Clone, Copy, Debug)]
pub enum Named<'a> {
    /// The path of an inode.
    Inode(Ino),
    /// The path of a name in a directory.
    Entry(Ino, &'a OsStr),
}

/// Declares [`Operation`] and [`Call`] with one row for each operation. A row has the method's
/// name, its arguments, and the one or two paths it refers to.
macro_rules! operations {
    ($($variant:ident $name:literal { $($argument:ident: $type:ty),* }
        [$first:expr $(, $second:expr)?]),* $(,)?) => {
        /// An operation of [`FileSystem`](crate::FileSystem); its name is that of the method.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Operation {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Operation {
            /// Every operation, in the order of the trait.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The method's name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        /// An operation with its arguments.
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs, reason = "they are those of [`FileSystem`](crate::FileSystem)")]
        pub enum Call<'a> {
            $($variant { $($argument: $type),* },)*
        }

        impl<'a> Call<'a> {
            /// The operation.
            #[must_use]
            pub fn operation(&self) -> Operation {
                match self {
                    $(Self::$variant { .. } => Operation::$variant,)*
                }
            }

            /// The paths that the call refers to, one or two.
            #[must_use]
            #[allow(unused_variables, reason = "most arguments name no path")]
            pub fn named(&self) -> [Option<Named<'a>>; 2] {
                match *self {
                    $(Self::$variant { $($argument),* } => {
                        [Some($first), None$(.or(Some($second)))?]
                    })*
                }
            }
        }
    };
}

fn entry(parent: Ino, name: Name<'_>) -> Named<'_> {
    Named::Entry(parent, name.as_os_str())
}

operations! {
    Lookup "lookup" { parent: Ino, name: Name<'a> } [entry(parent, name)],
    Forget "forget" { ino: Ino, lookups: u64 } [Named::Inode(ino)],
    Getattr "getattr" { ino: Ino, handle: Option<Handle> } [Named::Inode(ino)],
    Setattr "setattr" { ino: Ino, handle: Option<Handle>, changes: &'a SetAttr }
        [Named::Inode(ino)],
    Readlink "readlink" { ino: Ino } [Named::Inode(ino)],
    Mknod "mknod" { parent: Ino, name: Name<'a>, mode: u32, device: u32 } [entry(parent, name)],
    Mkdir "mkdir" { parent: Ino, name: Name<'a>, mode: u32 } [entry(parent, name)],
    Symlink "symlink" { parent: Ino, name: Name<'a>, target: &'a OsStr } [entry(parent, name)],
    Unlink "unlink" { parent: Ino, name: Name<'a> } [entry(parent, name)],
    Rmdir "rmdir" { parent: Ino, name: Name<'a> } [entry(parent, name)],
    Rename "rename" {
        parent: Ino, name: Name<'a>, new_parent: Ino, new_name: Name<'a>, mode: RenameMode
    } [entry(parent, name), entry(new_parent, new_name)],
    Link "link" { ino: Ino, new_parent: Ino, new_name: Name<'a> }
        [Named::Inode(ino), entry(new_parent, new_name)],
    Open "open" { ino: Ino, mode: OpenMode } [Named::Inode(ino)],
    Create "create" { parent: Ino, name: Name<'a>, mode: u32, flags: OpenMode }
        [entry(parent, name)],
    Tmpfile "tmpfile" { parent: Ino, mode: u32, flags: OpenMode } [Named::Inode(parent)],
    Read "read" { ino: Ino, handle: Handle, offset: u64, size: usize } [Named::Inode(ino)],
    Write "write" { ino: Ino, handle: Handle, offset: u64, data: &'a [u8], options: WriteOptions }
        [Named::Inode(ino)],
    Flush "flush" { ino: Ino, handle: Handle } [Named::Inode(ino)],
    Release "release" { ino: Ino, handle: Handle } [Named::Inode(ino)],
    Fsync "fsync" { ino: Ino, handle: Handle, data_only: bool } [Named::Inode(ino)],
    Opendir "opendir" { ino: Ino } [Named::Inode(ino)],
    Readdir "readdir" { ino: Ino, handle: Handle, offset: u64 } [Named::Inode(ino)],
    Releasedir "releasedir" { ino: Ino, handle: Handle } [Named::Inode(ino)],
    Fsyncdir "fsyncdir" { ino: Ino, handle: Handle, data_only: bool } [Named::Inode(ino)],
    Syncfs "syncfs" { ino: Ino } [Named::Inode(ino)],
    Statfs "statfs" { ino: Ino } [Named::Inode(ino)],
    Getxattr "getxattr" { ino: Ino, name: &'a OsStr } [Named::Inode(ino)],
    Setxattr "setxattr" { ino: Ino, name: &'a OsStr, value: &'a [u8], mode: XattrMode }
        [Named::Inode(ino)],
    Listxattr "listxattr" { ino: Ino } [Named::Inode(ino)],
    Removexattr "removexattr" { ino: Ino, name: &'a OsStr } [Named::Inode(ino)],
    FileattrGet "fileattr_get" { ino: Ino, form: FileAttrForm } [Named::Inode(ino)],
    FileattrSet "fileattr_set" { ino: Ino, attr: &'a FileAttr } [Named::Inode(ino)],
    Fallocate "fallocate" {
        ino: Ino, handle: Handle, offset: u64, length: u64, mode: FallocateMode
    } [Named::Inode(ino)],
    Lseek "lseek" { ino: Ino, handle: Handle, offset: u64, to: SeekTo } [Named::Inode(ino)],
    CopyFileRange "copy_file_range" {
        source: (Ino, Handle, u64), target: (Ino, Handle, u64), length: u64
    } [Named::Inode(source.0), Named::Inode(target.0)],
}

impl Operation {
    /// Whether the operation changes the file system.
    #[must_use]
    pub fn changes(self) -> bool {
        use Operation as Op;
        match self {
            Op::Lookup | Op::Forget | Op::Getattr | Op::Readlink | Op::Open | Op::Read => false,
            Op::Flush | Op::Release | Op::Fsync | Op::Opendir | Op::Readdir => false,
            Op::Releasedir | Op::Fsyncdir | Op::Syncfs | Op::Statfs | Op::Getxattr => false,
            Op::Listxattr | Op::FileattrGet | Op::Lseek => false,
            Op::Setattr | Op::Mknod | Op::Mkdir | Op::Symlink | Op::Unlink | Op::Rmdir => true,
            Op::Rename | Op::Link | Op::Create | Op::Tmpfile | Op::Write | Op::Setxattr => true,
            Op::Removexattr | Op::FileattrSet | Op::Fallocate | Op::CopyFileRange => true,
        }
    }
}

/// The default is the first operation, as a placeholder in new records.
impl Default for Operation {
    fn default() -> Self {
        Self::Lookup
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|operation| operation.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|operation| operation.name()).collect();
            format!("unknown operation '{name}'; the operations are {}", names.join(", "))
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Methods that programs and layers call on their own, and not on behalf of a system call. They
    /// lock trees, hold inodes, lease files, share blocks and give hints.
    const OF_SERVERS: [&str; 8] = [
        "fallback",
        "lock_tree",
        "take_lease",
        "end_lease",
        "clone_range",
        "drop_pages",
        "hold",
        "let_go",
    ];

    #[test]
    fn operations_and_trait_methods_correspond() {
        let source = include_str!("file_system.rs");
        let (_, methods) = source.split_once("fn shutdown(").unwrap();
        let named: Vec<_> = methods
            .lines()
            .filter_map(|line| line.strip_prefix("    fn ").or(line.strip_prefix("        ")))
            .filter_map(|line| line.split_once('(').map(|(name, _)| name))
            .filter(|name| name.chars().all(|one| one.is_ascii_lowercase() || one == '_'))
            .filter(|name| !OF_SERVERS.contains(name))
            .collect();
        let listed: Vec<_> = Operation::ALL.iter().map(|operation| operation.name()).collect();
        assert_eq!(named, listed);
        assert!(listed.iter().all(|name| name.parse::<Operation>().unwrap().name() == *name));
        assert!("chmod".parse::<Operation>().is_err());
    }
}
