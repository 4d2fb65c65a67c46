//! The operations of a file system by name, for layers that speak about them.

use std::fmt;
use std::str::FromStr;

/// Declares the operations: a variant and its name, which is the method's.
macro_rules! operations {
    ($($variant:ident $name:ident,)+) => {
        /// An operation of [`fslab_vfs::FileSystem`] that a caller waits for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "they are the trait's methods")]
        pub enum Operation {
            $($variant,)+
        }

        impl Operation {
            /// All of them, in the order of the trait.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The method's name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)+
                }
            }
        }
    };
}

operations! {
    Lookup lookup,
    Getattr getattr,
    Setattr setattr,
    Readlink readlink,
    Mknod mknod,
    Mkdir mkdir,
    Symlink symlink,
    Unlink unlink,
    Rmdir rmdir,
    Rename rename,
    Link link,
    Open open,
    Create create,
    Tmpfile tmpfile,
    Read read,
    Write write,
    Flush flush,
    Release release,
    Fsync fsync,
    Opendir opendir,
    Readdir readdir,
    Releasedir releasedir,
    Fsyncdir fsyncdir,
    Syncfs syncfs,
    Statfs statfs,
    Getxattr getxattr,
    Setxattr setxattr,
    Listxattr listxattr,
    Removexattr removexattr,
    Fallocate fallocate,
    Lseek lseek,
    CopyFileRange copy_file_range,
}

/// No operation has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOperation;

impl FromStr for Operation {
    type Err = UnknownOperation;

    fn from_str(text: &str) -> Result<Self, UnknownOperation> {
        Self::ALL.iter().copied().find(|one| one.name() == text).ok_or(UnknownOperation)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A set of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations(u64);

impl Operations {
    /// Every operation.
    #[must_use]
    pub fn all() -> Self {
        Operation::ALL.iter().copied().collect()
    }

    /// Whether an operation is in the set.
    #[must_use]
    pub fn contains(self, operation: Operation) -> bool {
        self.0 & (1 << operation as u32) != 0
    }

    /// What is in either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members, in the order of the trait.
    pub fn iter(self) -> impl Iterator<Item = Operation> {
        Operation::ALL.iter().copied().filter(move |operation| self.contains(*operation))
    }
}

impl FromIterator<Operation> for Operations {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        Self(operations.into_iter().fold(0, |bits, operation| bits | 1 << operation as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_fit_a_set() {
        for operation in Operation::ALL {
            assert_eq!(operation.to_string().parse(), Ok(*operation));
        }
        assert!(Operation::ALL.len() <= 64);
        let set: Operations = [Operation::Read, Operation::CopyFileRange].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Operation::Read, Operation::CopyFileRange]);
        assert_eq!("reed".parse::<Operation>(), Err(UnknownOperation));
    }
}
