//! A file system under watch: every operation, before and after, as a value.
//!
//! One place that knows all operations, so that an observer of everything is two functions.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use fslab_vfs::{
    Attr, DirectorySink, Entry, Errno, FallocateMode, FileAttr, FileAttrForm, FileSystem, Handle,
    Ino, Name, OpenMode, Opened, RenameMode, Request, Result, SeekTo, SetAttr, StatFs,
    WriteOptions, XattrMode,
};

use super::call::{Answer, Call, Outcome};

/// Sees every operation begin and end, from many threads at once.
pub(super) trait Watch: Send + Sync {
    /// What is remembered from the beginning to the end.
    type Begun;

    /// An operation begins.
    fn begin(&self, call: &Call<'_>) -> Self::Begun;

    /// It has ended. One that panicked ends with `EIO`, which is what its caller gets.
    fn end(
        &self,
        begun: Self::Begun,
        request: Option<&Request>,
        call: &Call<'_>,
        outcome: &Outcome<'_>,
    );

    /// May change how an opened file is used.
    fn opened(&self, opened: &mut Opened);

    /// Called once after the last operation.
    ///
    /// # Errors
    /// What the watch could not keep.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// A file system under watch.
pub(super) struct Watched<W> {
    pub inner: Arc<dyn FileSystem>,
    pub watch: W,
}

/// An operation under way; ends when dropped, so that a panic does not leave it open.
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

impl<W: Watch> Watched<W> {
    fn around<T>(
        &self,
        request: Option<&Request>,
        call: Call<'_>,
        perform: impl FnOnce(&dyn FileSystem) -> Result<T>,
        view: impl for<'b> FnOnce(&'b T) -> Answer<'b>,
    ) -> Result<T> {
        let begun = Some(self.watch.begin(&call));
        let under = Under { watch: &self.watch, request, call, begun };
        let answer = perform(&*self.inner);
        match &answer {
            Ok(value) => under.end(&Ok(view(value))),
            Err(error) => under.end(&Err(error.errno())),
        }
        answer
    }

    fn open_checked(&self, mut opened: Opened) -> Opened {
        self.watch.opened(&mut opened);
        opened
    }
}

/// Operations that are passed on with the arguments they came with: method, arguments, answer, the
/// call as a value, and how the answer is seen.
macro_rules! passed_on {
    ($(
        $method:ident($($argument:ident: $type:ty),*) -> $answer:ty = $call:ident, $view:expr;
    )*) => {$(
        fn $method(&self, request: &Request, $($argument: $type),*) -> Result<$answer> {
            let call = Call::$call { $($argument),* };
            self.around(
                Some(request),
                call,
                |inner| inner.$method(request, $($argument),*),
                $view,
            )
        }
    )*};
}

#[allow(clippy::too_many_arguments, reason = "the operations have the kernel's arguments")]
impl<W: Watch> FileSystem for Watched<W> {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn shutdown(&self) -> Result<()> {
        let inner = self.inner.shutdown();
        let watch = self.watch.finish();
        inner.and(watch)
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        let call = Call::Forget { ino, lookups };
        let begun = Some(self.watch.begin(&call));
        let under = Under { watch: &self.watch, request: None, call, begun };
        self.inner.forget(ino, lookups);
        under.end(&Ok(Answer::Done));
    }

    passed_on! {
        lookup(parent: Ino, name: Name<'_>) -> Entry = Lookup, |entry| Answer::Entry(entry);
        getattr(ino: Ino, handle: Option<Handle>) -> Attr = GetAttr, |attr| Answer::Attr(attr);
        setattr(ino: Ino, handle: Option<Handle>, changes: &SetAttr) -> Attr = SetAttr,
            |attr| Answer::Attr(attr);
        readlink(ino: Ino) -> OsString = ReadLink, |target| Answer::Target(target);
        mknod(parent: Ino, name: Name<'_>, mode: u32, device: u32) -> Entry = MkNod,
            |entry| Answer::Entry(entry);
        mkdir(parent: Ino, name: Name<'_>, mode: u32) -> Entry = MkDir,
            |entry| Answer::Entry(entry);
        symlink(parent: Ino, name: Name<'_>, target: &OsStr) -> Entry = Symlink,
            |entry| Answer::Entry(entry);
        unlink(parent: Ino, name: Name<'_>) -> () = Unlink, |()| Answer::Done;
        rmdir(parent: Ino, name: Name<'_>) -> () = RmDir, |()| Answer::Done;
        rename(
            parent: Ino, name: Name<'_>, new_parent: Ino, new_name: Name<'_>, mode: RenameMode
        ) -> () = Rename, |()| Answer::Done;
        link(ino: Ino, new_parent: Ino, new_name: Name<'_>) -> Entry = Link,
            |entry| Answer::Entry(entry);
        write(
            ino: Ino, handle: Handle, offset: u64, data: &[u8], options: WriteOptions
        ) -> usize = Write, |count| Answer::Moved(*count as u64);
        flush(ino: Ino, handle: Handle) -> () = Flush, |()| Answer::Done;
        release(ino: Ino, handle: Handle) -> () = Release, |()| Answer::Done;
        fsync(ino: Ino, handle: Handle, data_only: bool) -> () = Fsync, |()| Answer::Done;
        opendir(ino: Ino) -> Handle = OpenDir, |handle| Answer::Directory(*handle);
        releasedir(ino: Ino, handle: Handle) -> () = ReleaseDir, |()| Answer::Done;
        fsyncdir(ino: Ino, handle: Handle, data_only: bool) -> () = FsyncDir, |()| Answer::Done;
        syncfs(ino: Ino) -> () = SyncFs, |()| Answer::Done;
        statfs(ino: Ino) -> StatFs = StatFs, |_| Answer::Done;
        getxattr(ino: Ino, name: &OsStr) -> Vec<u8> = GetXattr,
            |value| Answer::Number(value.len() as u64);
        setxattr(ino: Ino, name: &OsStr, value: &[u8], mode: XattrMode) -> () = SetXattr,
            |()| Answer::Done;
        listxattr(ino: Ino) -> Vec<u8> = ListXattr, |names| Answer::Number(names.len() as u64);
        removexattr(ino: Ino, name: &OsStr) -> () = RemoveXattr, |()| Answer::Done;
        fileattr_get(ino: Ino, form: FileAttrForm) -> FileAttr = FileAttrGet,
            |attr| Answer::Number(attr.flags().into());
        fileattr_set(ino: Ino, attr: &FileAttr) -> () = FileAttrSet, |()| Answer::Done;
        fallocate(
            ino: Ino, handle: Handle, offset: u64, length: u64, mode: FallocateMode
        ) -> () = Fallocate, |()| Answer::Done;
        lseek(ino: Ino, handle: Handle, offset: u64, to: SeekTo) -> u64 = Lseek,
            |found| Answer::Number(*found);
        copy_file_range(
            source: (Ino, Handle, u64), target: (Ino, Handle, u64), length: u64
        ) -> u64 = CopyFileRange, |count| Answer::Moved(*count);
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        let perform =
            |inner: &dyn FileSystem| Ok(self.open_checked(inner.open(request, ino, mode)?));
        self.around(Some(request), Call::Open { ino, mode }, perform, |opened| {
            Answer::Opened(opened)
        })
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let call = Call::Create { parent, name, mode, flags };
        let perform = |inner: &dyn FileSystem| {
            let (entry, opened) = inner.create(request, parent, name, mode, flags)?;
            Ok((entry, self.open_checked(opened)))
        };
        self.around(Some(request), call, perform, |(entry, opened)| Answer::Created(entry, opened))
    }

    fn tmpfile(
        &self,
        request: &Request,
        parent: Ino,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let call = Call::TmpFile { parent, mode, flags };
        let perform = |inner: &dyn FileSystem| {
            let (entry, opened) = inner.tmpfile(request, parent, mode, flags)?;
            Ok((entry, self.open_checked(opened)))
        };
        self.around(Some(request), call, perform, |(entry, opened)| Answer::Created(entry, opened))
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
        let perform = |inner: &dyn FileSystem| inner.read(request, ino, handle, offset, buffer);
        self.around(Some(request), call, perform, |count| Answer::Moved(*count as u64))
    }

    fn readdir(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let perform = |inner: &dyn FileSystem| {
            let mut delivered = 0;
            inner.readdir(request, ino, handle, offset, &mut |entry| {
                let taken = sink(entry);
                delivered += u64::from(taken);
                taken
            })?;
            Ok(delivered)
        };
        let call = Call::ReadDir { ino, handle, offset };
        self.around(Some(request), call, perform, |count| Answer::Number(*count)).map(|_count| ())
    }
}
