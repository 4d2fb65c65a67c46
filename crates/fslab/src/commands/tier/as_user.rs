//! Executes commands on a mounted tree for a user who neither is root nor made the mount.
//!
//! This process works through the mount, by reading files and setting xattrs. So the kernel checks
//! the user's permissions, and a command can do only what the user could do anyway.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_sys::mounts::MountEntry;
use fslab_tier::command::{
    Command, Event, FileSummary, Grouping, PIN_NAME, QUEUE_NAME, Query, STATE_NAME, Sums,
};
use fslab_tier::policy::Facts;
use fslab_tier::rate_limit::RateLimit;
use fslab_tier::stored::BLOCK_BYTES;
use fslab_tier::{UserQueue, age, own_request, shown};
use fslab_vfs::Timestamp;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::exit::Code;
use crate::layers::around;
use crate::runtime;

/// The largest xattr of Linux, in bytes.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// Executes a command, and calls `told` for each event. Stops once `told` returns `false`.
///
/// # Errors
/// Fails if only root and the owner of the mount may run the command, or if the mount has no tier
/// layer.
pub fn execute(
    mount: &MountEntry,
    command: &Command,
    told: &mut dyn FnMut(Event) -> bool,
) -> Result<()> {
    let root = &mount.target;
    let device = root.symlink_metadata().with_context(|| root.display().to_string())?.dev();
    let mut session = Session { root, device, told, is_heard: true };
    session.expect_tier()?;
    match command {
        Command::State { paths, recursive } => session.states(paths, *recursive),
        Command::Find { paths, query } => session.find(paths, query)?,
        Command::Du { paths, query, by } => session.usage(paths, query, *by)?,
        Command::Recall { paths, range, rate } => session.recall(paths, *range, *rate),
        Command::Pin { paths, stays } => session.pin(paths, *stays),
        Command::Queue => session.queue()?,
        _ => bail_as!(
            BadInput,
            "{} was mounted by user {}; only that user and root may run this command (other users \
             may run state, find, du, recall, pin, unpin and queue)",
            root.display(),
            runtime::owner_of(mount)
        ),
    }
    told(Event::End { error: None, code: Code::Success as u8 });
    Ok(())
}

/// The execution of a command.
struct Session<'a> {
    root: &'a Path,
    /// The device number of the mount. Other file systems that are mounted in the tree are skipped.
    device: u64,
    told: &'a mut dyn FnMut(Event) -> bool,
    /// Whether the receiver still wants events.
    is_heard: bool,
}

/// A regular file.
struct Regular {
    /// The path from the root of the tree.
    inner: PathBuf,
    path: PathBuf,
    metadata: Metadata,
}

impl Regular {
    fn shown(&self) -> String {
        shown(self.inner.as_os_str().as_bytes())
    }

    fn summary(&self) -> io::Result<FileSummary> {
        let text = read_xattr(&self.path, STATE_NAME)?;
        let summary: FileSummary = serde_json::from_slice(&text)?;
        Ok(FileSummary { path: self.shown(), ..summary })
    }

    fn facts(&self, now: Timestamp) -> Facts {
        let age = |seconds| age(Timestamp { seconds, nanoseconds: 0 }, now);
        let (metadata, modified) = (&self.metadata, self.metadata.mtime());
        Facts {
            path: self.inner.as_os_str().as_bytes().to_vec(),
            size: metadata.len(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            unchanged: age(modified),
            unused: age(metadata.atime().max(modified)),
            ..Facts::default()
        }
    }
}

fn read_xattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut value = vec![0; XATTR_BYTES_MAX];
    let length = rustix::fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

impl Session<'_> {
    fn tell(&mut self, event: Event) {
        self.is_heard = self.is_heard && (self.told)(event);
    }

    /// Fails if the mount has no tier layer.
    fn expect_tier(&self) -> Result<()> {
        match read_xattr(self.root, QUEUE_NAME).map_err(|error| Errno::from_io_error(&error)) {
            Err(Some(Errno::NODATA)) => {
                bail_as!(
                    BadInput,
                    "{} is mounted without the layer tier, or by an fslab that answers only the \
                     user who mounted it",
                    self.root.display()
                )
            }
            // Any other error means that the layer exists but the value of this xattr can't be
            // read.
            _ => Ok(()),
        }
    }

    /// Calls `visit` for each regular file at or below some paths, down to a maximum depth. An
    /// error of one file is reported, and the others are still visited.
    fn each_file(
        &mut self,
        paths: &[Vec<u8>],
        depth_max: usize,
        visit: &mut dyn FnMut(&mut Self, &Regular) -> io::Result<()>,
    ) {
        let inner = |path: &Vec<u8>| PathBuf::from(OsStr::from_bytes(path));
        let mut pending: Vec<_> = paths.iter().rev().map(|path| (inner(path), 0)).collect();
        while let Some((inner, depth)) = pending.pop().filter(|_| self.is_heard) {
            let visited = self.visit(inner.clone(), depth < depth_max, visit);
            match visited {
                Ok(entries) => pending.extend(entries.into_iter().map(|path| (path, depth + 1))),
                Err(error) => {
                    let path = shown(inner.as_os_str().as_bytes());
                    self.tell(Event::Problem { what: format!("{path}: {error}") });
                }
            }
        }
    }

    /// If the path is a regular file, visits it. If it is a directory, returns the paths in it.
    fn visit(
        &mut self,
        inner: PathBuf,
        may_descend: bool,
        visit: &mut dyn FnMut(&mut Self, &Regular) -> io::Result<()>,
    ) -> io::Result<Vec<PathBuf>> {
        let path = self.root.join(&inner);
        let metadata = path.symlink_metadata()?;
        if metadata.is_file() && metadata.dev() == self.device {
            visit(self, &Regular { inner, path, metadata })?;
        } else if metadata.is_dir() && metadata.dev() == self.device && may_descend {
            let names = fs::read_dir(&path)?.map(|entry| Ok(inner.join(entry?.file_name())));
            return names.collect();
        }
        Ok(Vec::new())
    }

    fn states(&mut self, paths: &[Vec<u8>], is_recursive: bool) {
        let depth_max = if is_recursive { usize::MAX } else { 1 };
        self.each_file(paths, depth_max, &mut |session, file| {
            let summary = file.summary()?;
            session.tell(Event::State(summary));
            Ok(())
        });
    }

    fn find(&mut self, paths: &[Vec<u8>], query: &Query) -> Result<()> {
        self.each_selected(paths, query, &mut |session, _, _, summary| {
            session.tell(Event::State(summary));
        })
    }

    fn usage(&mut self, paths: &[Vec<u8>], query: &Query, by: Option<Grouping>) -> Result<()> {
        for mut sums in Sums::of(paths, by) {
            self.each_selected(sums.paths(), query, &mut |_, file, facts, summary| {
                sums.add((file.metadata.ino(), file.metadata.nlink()), facts, &summary);
            })?;
            sums.events().into_iter().for_each(|event| self.tell(event));
        }
        Ok(())
    }

    fn each_selected(
        &mut self,
        paths: &[Vec<u8>],
        query: &Query,
        work: &mut dyn FnMut(&mut Self, &Regular, &Facts, FileSummary),
    ) -> Result<()> {
        let now = around(&crate::stack_context::of_program()).calendar.now();
        let selector = query.selector()?;
        self.each_file(paths, usize::MAX, &mut |session, file| {
            let facts = file.facts(now);
            if let Some(summary) = selector.select(&facts, || file.summary())? {
                work(session, file, &facts, summary);
            }
            Ok(())
        });
        Ok(())
    }

    /// Recalls files by reading one byte of each of their blocks.
    fn recall(&mut self, paths: &[Vec<u8>], range: Option<(u64, u64)>, rate: u64) {
        let clock = around(&crate::stack_context::of_program()).clock;
        let limit = RateLimit::new(rate, &clock);
        self.each_file(paths, usize::MAX, &mut |session, file| {
            let before = file.summary()?;
            if before.resident_bytes == before.bytes {
                return Ok(());
            }
            let (start, length) = range.unwrap_or((0, before.bytes));
            let end = start.saturating_add(length).min(before.bytes);
            let opened = File::open(&file.path)?;
            let mut offset = start;
            while offset < end && session.is_heard {
                if let Some(limit) = &limit {
                    limit.pass(BLOCK_BYTES, &own_request()).map_err(io::Error::other)?;
                }
                opened.read_at(&mut [0], offset)?;
                offset = (offset / BLOCK_BYTES + 1) * BLOCK_BYTES;
            }
            let bytes = file.summary()?.resident_bytes.saturating_sub(before.resident_bytes);
            if bytes > 0 {
                let what = "recalled".to_owned();
                session.tell(Event::Done { what, path: file.shown(), bytes });
            }
            Ok(())
        });
    }

    fn pin(&mut self, paths: &[Vec<u8>], stays: bool) {
        let what = if stays { "pinned" } else { "unpinned" };
        self.each_file(paths, usize::MAX, &mut |session, file| {
            let set = match stays {
                true => rustix::fs::lsetxattr(&file.path, PIN_NAME, b"1", XattrFlags::empty()),
                false => rustix::fs::lremovexattr(&file.path, PIN_NAME),
            };
            match set {
                Err(Errno::NODATA) if !stays => {}
                done => done?,
            }
            let (what, bytes) = (what.to_owned(), file.metadata.len());
            session.tell(Event::Done { what, path: file.shown(), bytes });
            Ok(())
        });
    }

    fn queue(&mut self) -> Result<()> {
        let text = read_xattr(self.root, QUEUE_NAME)
            .with_context(|| format!("can't read the queue of {}", self.root.display()))?;
        let queue: UserQueue = serde_json::from_slice(&text)
            .context("this fslab does not understand the daemon's reply")?;
        queue.recalls.into_iter().for_each(|recall| self.tell(recall));
        if queue.omitted > 0 {
            self.tell(Event::Total { figures: vec![("omitted".to_owned(), queue.omitted)] });
        }
        Ok(())
    }
}
