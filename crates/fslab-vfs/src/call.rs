//! Results of operations, as values.

use std::ffi::{OsStr, OsString};

use crate::error::Errno;
use crate::file_attr::FileAttr;
use crate::file_system::FileSystem;
use crate::operation::Call;
use crate::types::{Attr, Entry, Handle, Opened, Request, StatFs};

/// The result of a successful operation.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// Success without a value.
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
    /// The number of bytes read, written or copied.
    Moved(u64),
    /// Another number: the number of listed entries, the offset found, or the length of an
    /// attribute.
    Number(u64),
    /// The target of a symbolic link.
    Target(&'a OsStr),
}

impl Answer<'_> {
    /// Releases a result that the caller will not get: forgets lookups and closes handles. Errors
    /// are ignored, because the caller gets an error already.
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

/// The result of an operation, or its error.
pub type Outcome<'a> = Result<Answer<'a>, Errno>;

/// A type that an operation returns.
pub trait Reply: Sized {
    /// Returns this result as the value that observers get.
    fn seen(&self, call: &Call<'_>) -> Answer<'_>;

    /// The result of success, for an operation that is skipped. `None` if it can't be constructed.
    fn skipped(_: &Call<'_>) -> Option<Self> {
        None
    }

    /// The bytes of a file or an xattr in the result.
    fn bytes(&mut self) -> &mut [u8] {
        &mut []
    }

    /// The file that was opened, if one was.
    fn opened(&mut self) -> Option<&mut Opened> {
        None
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

/// Implements [`Reply`] for types, each with the value that observers get. Some types also contain
/// an opened file.
macro_rules! replies {
    ($($answer:ty: |$value:ident| $seen:expr $(, $opened:expr)?;)*) => {$(
        impl Reply for $answer {
            fn seen(&self, _: &Call<'_>) -> Answer<'_> {
                let $value = self;
                $seen
            }

            $(fn opened(&mut self) -> Option<&mut Opened> {
                let $value = self;
                Some($opened)
            })?
        }
    )*};
}

replies! {
    Attr: |attr| Answer::Attr(attr);
    Entry: |entry| Answer::Entry(entry);
    Opened: |opened| Answer::Opened(opened), opened;
    (Entry, Opened): |created| Answer::Created(&created.0, &created.1), &mut created.1;
    Handle: |handle| Answer::Directory(*handle);
    StatFs: |_stat| Answer::Done;
    FileAttr: |attr| Answer::Number(attr.flags().into());
    OsString: |target| Answer::Target(target);
}
