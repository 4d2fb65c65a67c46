//! Operations as values: what was asked, and what was answered.

use std::ffi::{OsStr, OsString};

use crate::error::Errno;
use crate::file_attr::{FileAttr, FileAttrForm};
use crate::file_system::FileSystem;
use crate::operation::Operation;
use crate::types::{
    Attr, Entry, FallocateMode, Handle, Ino, Name, OpenMode, Opened, RenameMode, Request, SeekTo,
    SetAttr, StatFs, WriteOptions, XattrMode,
};

/// Declares [`Call`], whose variants have the names of operations.
macro_rules! calls {
    ($($name:ident { $($arguments:tt)* }),* $(,)?) => {
        /// An operation with its arguments.
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs, reason = "they are those of [`FileSystem`]")]
        pub enum Call<'a> {
            $($name { $($arguments)* },)*
        }

        impl Call<'_> {
            /// The operation.
            #[must_use]
            pub fn operation(&self) -> Operation {
                match self {
                    $(Self::$name { .. } => Operation::$name,)*
                }
            }
        }
    };
}

calls! {
    Lookup { parent: Ino, name: Name<'a> },
    Forget { ino: Ino, lookups: u64 },
    Getattr { ino: Ino, handle: Option<Handle> },
    Setattr { ino: Ino, handle: Option<Handle>, changes: &'a SetAttr },
    Readlink { ino: Ino },
    Mknod { parent: Ino, name: Name<'a>, mode: u32, device: u32 },
    Mkdir { parent: Ino, name: Name<'a>, mode: u32 },
    Symlink { parent: Ino, name: Name<'a>, target: &'a OsStr },
    Unlink { parent: Ino, name: Name<'a> },
    Rmdir { parent: Ino, name: Name<'a> },
    Rename { parent: Ino, name: Name<'a>, new_parent: Ino, new_name: Name<'a>, mode: RenameMode },
    Link { ino: Ino, new_parent: Ino, new_name: Name<'a> },
    Open { ino: Ino, mode: OpenMode },
    Create { parent: Ino, name: Name<'a>, mode: u32, flags: OpenMode },
    Tmpfile { parent: Ino, mode: u32, flags: OpenMode },
    Read { ino: Ino, handle: Handle, offset: u64, size: usize },
    Write { ino: Ino, handle: Handle, offset: u64, data: &'a [u8], options: WriteOptions },
    Flush { ino: Ino, handle: Handle },
    Release { ino: Ino, handle: Handle },
    Fsync { ino: Ino, handle: Handle, data_only: bool },
    Opendir { ino: Ino },
    Readdir { ino: Ino, handle: Handle, offset: u64 },
    Releasedir { ino: Ino, handle: Handle },
    Fsyncdir { ino: Ino, handle: Handle, data_only: bool },
    Syncfs { ino: Ino },
    Statfs { ino: Ino },
    Getxattr { ino: Ino, name: &'a OsStr },
    Setxattr { ino: Ino, name: &'a OsStr, value: &'a [u8], mode: XattrMode },
    Listxattr { ino: Ino },
    Removexattr { ino: Ino, name: &'a OsStr },
    FileattrGet { ino: Ino, form: FileAttrForm },
    FileattrSet { ino: Ino, attr: &'a FileAttr },
    Fallocate { ino: Ino, handle: Handle, offset: u64, length: u64, mode: FallocateMode },
    Lseek { ino: Ino, handle: Handle, offset: u64, to: SeekTo },
    CopyFileRange { source: (Ino, Handle, u64), target: (Ino, Handle, u64), length: u64 },
}

/// What an operation answered.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// Nothing more than that it is done.
    Done,
    /// Attributes.
    Attr(&'a Attr),
    /// An inode, counted as a lookup.
    Entry(&'a Entry),
    /// An open file.
    Opened(&'a Opened),
    /// A new file, open.
    Created(&'a Entry, &'a Opened),
    /// An open directory.
    Directory(Handle),
    /// So many bytes were read, written or copied.
    Moved(u64),
    /// Another number: entries listed, the offset found, the length of an attribute.
    Number(u64),
    /// The target of a symbolic link.
    Target(&'a OsStr),
}

impl Answer<'_> {
    /// Takes back what a caller will not get: lookups are forgotten and handles closed. The caller
    /// is told of an error; a second one would not help.
    pub fn take_back(&self, inner: &dyn FileSystem, request: &Request, call: &Call<'_>) {
        if let (Call::Open { ino, .. }, Self::Opened(opened)) = (call, self) {
            inner.release(request, *ino, opened.handle).ok();
        }
        if let (Call::Opendir { ino }, Self::Directory(handle)) = (call, self) {
            inner.releasedir(request, *ino, *handle).ok();
        }
        if let Self::Created(entry, opened) = self {
            inner.release(request, entry.attr.ino, opened.handle).ok();
        }
        if let Self::Created(entry, _) | Self::Entry(entry) = self {
            inner.forget(entry.attr.ino, 1);
        }
    }
}

/// How an operation ended.
pub type Outcome<'a> = Result<Answer<'a>, Errno>;

/// A path that an operation names.
#[derive(Clone, Copy, Debug)]
pub enum Named<'a> {
    /// That of an inode.
    Inode(Ino),
    /// That of a name in a directory.
    Entry(Ino, &'a OsStr),
}

impl<'a> Call<'a> {
    /// The paths that it names, one or two.
    #[must_use]
    pub fn named(&self) -> [Option<Named<'a>>; 2] {
        let entry = |parent, name: Name<'a>| Some(Named::Entry(parent, name.as_os_str()));
        let first = match *self {
            Self::Lookup { parent, name }
            | Self::Mknod { parent, name, .. }
            | Self::Mkdir { parent, name, .. }
            | Self::Symlink { parent, name, .. }
            | Self::Unlink { parent, name }
            | Self::Rmdir { parent, name }
            | Self::Create { parent, name, .. } => entry(parent, name),
            Self::Rename { parent, name, new_parent, new_name, .. } => {
                return [entry(parent, name), entry(new_parent, new_name)];
            }
            Self::Link { ino, new_parent, new_name } => {
                return [Some(Named::Inode(ino)), entry(new_parent, new_name)];
            }
            Self::CopyFileRange { source, target, .. } => {
                return [source.0, target.0].map(|ino| Some(Named::Inode(ino)));
            }
            Self::Tmpfile { parent: ino, .. }
            | Self::Forget { ino, .. }
            | Self::Getattr { ino, .. }
            | Self::Setattr { ino, .. }
            | Self::Readlink { ino }
            | Self::Open { ino, .. }
            | Self::Read { ino, .. }
            | Self::Write { ino, .. }
            | Self::Flush { ino, .. }
            | Self::Release { ino, .. }
            | Self::Fsync { ino, .. }
            | Self::Opendir { ino }
            | Self::Readdir { ino, .. }
            | Self::Releasedir { ino, .. }
            | Self::Fsyncdir { ino, .. }
            | Self::Syncfs { ino }
            | Self::Statfs { ino }
            | Self::Getxattr { ino, .. }
            | Self::Setxattr { ino, .. }
            | Self::Listxattr { ino }
            | Self::Removexattr { ino, .. }
            | Self::FileattrGet { ino, .. }
            | Self::FileattrSet { ino, .. }
            | Self::Fallocate { ino, .. }
            | Self::Lseek { ino, .. } => Some(Named::Inode(ino)),
        };
        [first, None]
    }
}

/// A value that an operation answers.
pub trait Reply: Sized {
    /// The value as an observer sees it.
    fn seen(&self, call: &Call<'_>) -> Answer<'_>;

    /// The answer to an operation that is not done; `None` where it can't be made up.
    fn skipped(_: &Call<'_>) -> Option<Self> {
        None
    }

    /// Bytes of a file or an xattr in it.
    fn bytes(&mut self) -> &mut [u8] {
        &mut []
    }
}

impl Reply for () {
    fn seen(&self, _: &Call<'_>) -> Answer<'_> {
        Answer::Done
    }

    fn skipped(_: &Call<'_>) -> Option<Self> {
        Some(())
    }
}

/// Bytes written.
impl Reply for usize {
    fn seen(&self, _: &Call<'_>) -> Answer<'_> {
        Answer::Moved(*self as u64)
    }

    fn skipped(call: &Call<'_>) -> Option<Self> {
        if let Call::Write { data, .. } = call { Some(data.len()) } else { None }
    }
}

/// Bytes read.
impl Reply for &mut [u8] {
    fn seen(&self, _: &Call<'_>) -> Answer<'_> {
        Answer::Moved(self.len() as u64)
    }

    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

/// The value of an xattr, or a list of names.
impl Reply for Vec<u8> {
    fn seen(&self, _: &Call<'_>) -> Answer<'_> {
        Answer::Number(self.len() as u64)
    }

    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

impl Reply for u64 {
    fn seen(&self, call: &Call<'_>) -> Answer<'_> {
        match call {
            Call::CopyFileRange { .. } => Answer::Moved(*self),
            _ => Answer::Number(*self),
        }
    }
}

/// Replies that an observer sees in one way.
macro_rules! replies {
    ($($answer:ty: |$value:ident| $seen:expr;)*) => {$(
        impl Reply for $answer {
            fn seen(&self, _: &Call<'_>) -> Answer<'_> {
                let $value = self;
                $seen
            }
        }
    )*};
}

replies! {
    Attr: |attr| Answer::Attr(attr);
    Entry: |entry| Answer::Entry(entry);
    Opened: |opened| Answer::Opened(opened);
    (Entry, Opened): |created| Answer::Created(&created.0, &created.1);
    Handle: |handle| Answer::Directory(*handle);
    StatFs: |_stat| Answer::Done;
    FileAttr: |attr| Answer::Number(attr.flags().into());
    OsString: |target| Answer::Target(target);
}
