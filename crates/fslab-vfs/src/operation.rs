//! The operations of a file system as values, for whoever counts, records or selects them.

use std::fmt;
use std::str::FromStr;

macro_rules! operations {
    ($($variant:ident $name:literal),* $(,)?) => {
        /// An operation of [`crate::FileSystem`]; its name is that of the method.
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
    };
}

operations! {
    Lookup "lookup",
    Forget "forget",
    Getattr "getattr",
    Setattr "setattr",
    Readlink "readlink",
    Mknod "mknod",
    Mkdir "mkdir",
    Symlink "symlink",
    Unlink "unlink",
    Rmdir "rmdir",
    Rename "rename",
    Link "link",
    Open "open",
    Create "create",
    Tmpfile "tmpfile",
    Read "read",
    Write "write",
    Flush "flush",
    Release "release",
    Fsync "fsync",
    Opendir "opendir",
    Readdir "readdir",
    Releasedir "releasedir",
    Fsyncdir "fsyncdir",
    Syncfs "syncfs",
    Statfs "statfs",
    Getxattr "getxattr",
    Setxattr "setxattr",
    Listxattr "listxattr",
    Removexattr "removexattr",
    FileattrGet "fileattr_get",
    FileattrSet "fileattr_set",
    Fallocate "fallocate",
    Lseek "lseek",
    CopyFileRange "copy_file_range",
}

/// The first one, for a record that is still to be filled in.
impl Default for Operation {
    fn default() -> Self {
        Self::Lookup
    }
}

/// No operation has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no operation '{name}'; there are {}",
    Operation::ALL.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ")
)]
pub struct UnknownOperation {
    /// The name given.
    pub name: String,
}

impl FromStr for Operation {
    type Err = UnknownOperation;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().copied().find(|operation| operation.name() == name);
        found.ok_or_else(|| UnknownOperation { name: name.to_owned() })
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

    /// Trees are locked by the program that serves them, inodes held, files leased, blocks shared
    /// and hints given by layers; none of it is what a caller asks for.
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
    fn every_operation_is_a_method_of_the_trait_and_the_other_way_round() {
        let source = include_str!("file_system.rs");
        let (_, methods) = source.split_once("fn shutdown(").unwrap();
        let named: Vec<_> = methods
            .lines()
            .filter_map(|line| line.strip_prefix("    fn ")?.split_once('(').map(|(name, _)| name))
            .filter(|name| !OF_SERVERS.contains(name))
            .collect();
        let listed: Vec<_> = Operation::ALL.iter().map(|operation| operation.name()).collect();
        assert_eq!(named, listed);
        assert!(listed.iter().all(|name| name.parse::<Operation>().unwrap().name() == *name));
        assert!("chmod".parse::<Operation>().is_err());
    }
}
