//! A file system with an interceptor, which gets each operation and its result as values.
//!
//! This module wraps each operation once, for all interceptors. So an observer of all operations
//! needs only two functions.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use crate::call::{Outcome, Reply};
use crate::error::{Errno, Result};
use crate::file_attr::{FileAttr, FileAttrForm};
use crate::file_system::{DirectorySink, FileSystem};
use crate::operation::Call;
use crate::types::{
    Attr, Entry, FallocateMode, Handle, Ino, Name, OpenMode, Opened, RenameMode, Request, SeekTo,
    SetAttr, StatFs, WriteOptions, XattrMode,
};

/// Intercepts the calls of a file system, from many threads at once.
pub trait Interceptor: Send + Sync {
    /// Handles one call. Either calls `perform`, with the same or with changed arguments, or
    /// returns another result without performing the operation. Must not pass another operation to
    /// `perform`.
    ///
    /// # Errors
    /// Errors of `perform` or of the interceptor.
    fn around<T: Reply>(
        &self,
        inner: &dyn FileSystem,
        request: Option<&Request>,
        call: Call<'_>,
        perform: impl FnOnce(&Call<'_>) -> Result<T>,
    ) -> Result<T>;

    /// May change the properties of an opened file.
    fn opened(&self, opened: &mut Opened);

    /// Called once after the last operation.
    ///
    /// # Errors
    /// The interceptor could not save its data.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// Observes the beginning and end of every operation, from many threads at once.
pub trait Watch: Send + Sync {
    /// Data kept from the beginning to the end of an operation.
    type Begun;

    /// Called before an operation.
    fn begin(&self, call: &Call<'_>) -> Self::Begun;

    /// Called after an operation. If the operation panicked, the outcome is `EIO`, which the caller
    /// gets, too.
    fn end(
        &self,
        begun: Self::Begun,
        request: Option<&Request>,
        call: &Call<'_>,
        outcome: &Outcome<'_>,
    );

    /// See [`Interceptor::opened`].
    fn opened(&self, opened: &mut Opened);

    /// See [`Interceptor::finish`].
    ///
    /// # Errors
    /// The watch could not save its data.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// A running operation that is watched. Dropping this reports the end of the operation, even after
/// a panic.
struct Under<'a, W: Watch> {
    watch: &'a W,
    request: Option<&'a Request>,
    call: Call<'a>,
    begun: Option<W::Begun>,
}

impl<W: Watch> Under<'_, W> {
    fn end(mut self, outcome: &Outcome<'_>) {
        if let Some(begun) = self.begun.take() {
            self.watch.end(begun, self.request, &self.call, outcome);
        }
    }
}

impl<W: Watch> Drop for Under<'_, W> {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.watch.end(begun, self.request, &self.call, &Err(Errno::IO));
        }
    }
}

impl<W: Watch> Interceptor for W {
    fn around<T: Reply>(
        &self,
        _: &dyn FileSystem,
        request: Option<&Request>,
        call: Call<'_>,
        perform: impl FnOnce(&Call<'_>) -> Result<T>,
    ) -> Result<T> {
        let begun = Some(self.begin(&call));
        let under = Under { watch: self, request, call, begun };
        let answer = perform(&call);
        match &answer {
            Ok(value) => under.end(&Ok(value.seen(&call))),
            Err(error) => under.end(&Err(error.errno())),
        }
        answer
    }

    fn opened(&self, opened: &mut Opened) {
        Watch::opened(self, opened);
    }

    fn finish(&self) -> Result<()> {
        Watch::finish(self)
    }
}

/// A file system with an interceptor.
pub struct Intercepted<I> {
    /// The file system.
    pub inner: Arc<dyn FileSystem>,
    /// The interceptor.
    pub interceptor: I,
}

impl<I: Interceptor> Intercepted<I> {
    /// Lets the interceptor change the opened file in a result.
    fn checked<T: Reply>(&self, mut answer: T) -> T {
        answer.opened().into_iter().for_each(|opened| self.interceptor.opened(opened));
        answer
    }
}

/// Declares intercepted operations: method, arguments, result, and the call as a value.
macro_rules! passed_on {
    ($($method:ident($($argument:ident: $type:ty),*) -> $answer:ty = $call:ident;)*) => {$(
        fn $method(&self, request: &Request, $($argument: $type),*) -> Result<$answer> {
            let call = Call::$call { $($argument),* };
            self.interceptor.around(&*self.inner, Some(request), call, |call| match *call {
                Call::$call { $($argument),* } => {
                    self.inner.$method(request, $($argument),*).map(|answer| self.checked(answer))
                }
                // Interceptors must not change the operation.
                _ => Err(Errno::IO.into()),
            })
        }
    )*};
}

#[allow(clippy::too_many_arguments, reason = "the operations have the kernel's arguments")]
impl<I: Interceptor> FileSystem for Intercepted<I> {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn shutdown(&self) -> Result<()> {
        let inner = self.inner.shutdown();
        let interceptor = self.interceptor.finish();
        inner.and(interceptor)
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        let done =
            self.interceptor.around(&*self.inner, None, Call::Forget { ino, lookups }, |_| {
                self.inner.forget(ino, lookups);
                Ok(())
            });
        debug_assert!(done.is_ok(), "nobody is told of an error");
    }

    passed_on! {
        lookup(parent: Ino, name: Name<'_>) -> Entry = Lookup;
        getattr(ino: Ino, handle: Option<Handle>) -> Attr = Getattr;
        setattr(ino: Ino, handle: Option<Handle>, changes: &SetAttr) -> Attr = Setattr;
        readlink(ino: Ino) -> OsString = Readlink;
        mknod(parent: Ino, name: Name<'_>, mode: u32, device: u32) -> Entry = Mknod;
        mkdir(parent: Ino, name: Name<'_>, mode: u32) -> Entry = Mkdir;
        symlink(parent: Ino, name: Name<'_>, target: &OsStr) -> Entry = Symlink;
        unlink(parent: Ino, name: Name<'_>) -> () = Unlink;
        rmdir(parent: Ino, name: Name<'_>) -> () = Rmdir;
        rename(
            parent: Ino, name: Name<'_>, new_parent: Ino, new_name: Name<'_>, mode: RenameMode
        ) -> () = Rename;
        link(ino: Ino, new_parent: Ino, new_name: Name<'_>) -> Entry = Link;
        open(ino: Ino, mode: OpenMode) -> Opened = Open;
        create(
            parent: Ino, name: Name<'_>, mode: u32, flags: OpenMode
        ) -> (Entry, Opened) = Create;
        tmpfile(parent: Ino, mode: u32, flags: OpenMode) -> (Entry, Opened) = Tmpfile;
        write(
            ino: Ino, handle: Handle, offset: u64, data: &[u8], options: WriteOptions
        ) -> usize = Write;
        flush(ino: Ino, handle: Handle) -> () = Flush;
        release(ino: Ino, handle: Handle) -> () = Release;
        fsync(ino: Ino, handle: Handle, data_only: bool) -> () = Fsync;
        opendir(ino: Ino) -> Handle = Opendir;
        releasedir(ino: Ino, handle: Handle) -> () = Releasedir;
        fsyncdir(ino: Ino, handle: Handle, data_only: bool) -> () = Fsyncdir;
        syncfs(ino: Ino) -> () = Syncfs;
        statfs(ino: Ino) -> StatFs = Statfs;
        getxattr(ino: Ino, name: &OsStr) -> Vec<u8> = Getxattr;
        setxattr(ino: Ino, name: &OsStr, value: &[u8], mode: XattrMode) -> () = Setxattr;
        listxattr(ino: Ino) -> Vec<u8> = Listxattr;
        removexattr(ino: Ino, name: &OsStr) -> () = Removexattr;
        fileattr_get(ino: Ino, form: FileAttrForm) -> FileAttr = FileattrGet;
        fileattr_set(ino: Ino, attr: &FileAttr) -> () = FileattrSet;
        fallocate(
            ino: Ino, handle: Handle, offset: u64, length: u64, mode: FallocateMode
        ) -> () = Fallocate;
        lseek(ino: Ino, handle: Handle, offset: u64, to: SeekTo) -> u64 = Lseek;
        copy_file_range(
            source: (Ino, Handle, u64), target: (Ino, Handle, u64), length: u64
        ) -> u64 = CopyFileRange;
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let call = Call::Read { ino, handle, offset, size: buffer.len() };
        let done = self.interceptor.around(&*self.inner, Some(request), call, |call| {
            let size = if let Call::Read { size, .. } = call { *size } else { 0 };
            let count = self.inner.read(request, ino, handle, offset, &mut buffer[..size])?;
            Ok(&mut buffer[..count])
        });
        done.map(|bytes| bytes.len())
    }

    fn readdir(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let perform = |_: &Call<'_>| {
            let mut delivered: u64 = 0;
            self.inner.readdir(request, ino, handle, offset, &mut |entry| {
                let taken = sink(entry);
                delivered += u64::from(taken);
                taken
            })?;
            Ok(delivered)
        };
        let call = Call::Readdir { ino, handle, offset };
        self.interceptor.around(&*self.inner, Some(request), call, perform).map(|_count| ())
    }
}
