//! Applies each operation to the subject and the model, and compares the results.
//!
//! Invariant: `nodes` pairs inodes that were looked up on both sides and must be the same file. An
//! inode of the subject is in at most one pair. Inode numbers are compared through these pairs.

use std::collections::BTreeSet;

use fslab_vfs::{Attr, FileKind, Ino, OpenMode, SetAttr, SetTime, Timestamp, WriteOptions};
use fslab_vfs::{Errno, Result};

use super::compare::{Answer, Seen, SeenAttr, same, seen};
use super::operation::{Choice, Creator, Operation, Place, Span};
use crate::client::{Client, File};

/// The directory in which all operations take place.
const TOP: &str = "model-test";

/// Maximum number of open files; the oldest is closed before another is opened.
const FILES_MAX: usize = 6;

type Difference = std::result::Result<(), String>;

/// The subject and the model.
pub(super) struct Pair<'c> {
    subject: &'c Client<'c>,
    model: &'c Client<'c>,
    nodes: Vec<NodePair>,
    files: Vec<(File<'c>, File<'c>)>,
    nameless: bool,
}

#[derive(Clone, Copy)]
struct NodePair {
    subject: Ino,
    model: Ino,
    kind: FileKind,
}

/// A side of a node pair.
#[derive(Clone, Copy)]
enum Side {
    Subject,
    Model,
}

impl NodePair {
    fn ino(self, side: Side) -> Ino {
        match side {
            Side::Subject => self.subject,
            Side::Model => self.model,
        }
    }
}

impl<'c> Pair<'c> {
    pub fn new(
        subject: &'c Client<'c>,
        model: &'c Client<'c>,
        nameless: bool,
    ) -> std::result::Result<Self, String> {
        clean(subject)?;
        let make = |client: &Client<'_>| {
            client.mkdir(Ino::ROOT, TOP).map_err(|error| format!("can't make {TOP}: {error}"))
        };
        let (in_subject, in_model) = (make(subject)?, make(model)?);
        let top = NodePair { subject: in_subject, model: in_model, kind: FileKind::Directory };
        Ok(Self { subject, model, nodes: vec![top], files: Vec::new(), nameless })
    }

    /// Compares the trees and removes the subject's tree.
    pub fn finish(mut self) -> Difference {
        self.files.clear();
        let top = self.nodes[0];
        self.compare_directory(top, ".")?;
        for client in [self.subject, self.model] {
            if let Some(problem) = client.problems().first() {
                return Err(problem.clone());
            }
        }
        clean(self.subject)
    }

    fn client(&self, side: Side) -> &'c Client<'c> {
        match side {
            Side::Subject => self.subject,
            Side::Model => self.model,
        }
    }

    /// Performs an operation on both sides and compares the results.
    fn both(&self, ask: impl Fn(&'c Client<'c>, Side) -> Answer) -> Difference {
        let [subject, model] =
            [Side::Subject, Side::Model].map(|side| ask(self.client(side), side));
        same(&subject, &model)
    }

    /// Performs an operation that returns an inode, like [`both`](Self::both), and records the
    /// pair.
    fn both_enter(&mut self, ask: impl Fn(&'c Client<'c>, Side) -> Result<Attr>) -> Difference {
        let [subject, model] =
            [Side::Subject, Side::Model].map(|side| ask(self.client(side), side));
        if let (Ok(subject), Ok(model)) = (&subject, &model) {
            self.enter(subject, model)?;
        }
        same(&attr(subject), &attr(model))
    }

    fn enter(&mut self, subject: &Attr, model: &Attr) -> Difference {
        let known = self
            .nodes
            .iter()
            .find(|pair| pair.subject == subject.ino || pair.model == model.ino)
            .copied();
        match known {
            Some(pair) if (pair.subject, pair.model) == (subject.ino, model.ino) => Ok(()),
            Some(pair) => Err(format!(
                "inode {} of the subject pairs with {} of the model, but {} paired with {} before",
                subject.ino.0, model.ino.0, pair.subject.0, pair.model.0
            )),
            None => {
                let (subject, kind, model) = (subject.ino, model.kind, model.ino);
                self.nodes.push(NodePair { subject, model, kind });
                Ok(())
            }
        }
    }

    /// Chooses a pair that satisfies a condition. The top directory always exists.
    fn choose(&self, choice: Choice, is_wanted: impl Fn(&NodePair) -> bool) -> Option<NodePair> {
        let wanted: Vec<&NodePair> = self.nodes.iter().filter(|pair| is_wanted(pair)).collect();
        let index = usize::from(choice).checked_rem(wanted.len())?;
        let pair = *wanted[index];
        (self.nameless || self.is_reachable(pair)).then_some(pair)
    }

    /// Whether a node has a name or is open.
    fn is_reachable(&self, pair: NodePair) -> bool {
        let has_name = self.model.attr(pair.model).is_ok_and(|attr| attr.links > 0);
        has_name || self.files.iter().any(|(_, file)| file.ino == pair.model)
    }

    fn node(&self, choice: Choice) -> Option<NodePair> {
        self.choose(choice, |_| true)
    }

    fn directory(&self, choice: Choice) -> Option<NodePair> {
        self.choose(choice, |pair| pair.kind == FileKind::Directory)
    }

    fn file_node(&self, choice: Choice) -> Option<NodePair> {
        self.choose(choice, |pair| pair.kind == FileKind::Regular)
    }

    fn file(&self, choice: Choice) -> Option<&(File<'c>, File<'c>)> {
        let index = usize::from(choice).checked_rem(self.files.len())?;
        self.files.get(index)
    }

    /// Applies an operation to both sides. Operations on nodes that do not exist are skipped.
    pub fn apply(&mut self, operation: &Operation) -> Difference {
        self.apply_naming(operation)
            .or_else(|| self.apply_creating(operation))
            .or_else(|| self.apply_data(operation))
            .or_else(|| self.apply_attributes(operation))
            .unwrap_or(Ok(()))
    }

    fn apply_naming(&mut self, operation: &Operation) -> Option<Difference> {
        Some(match *operation {
            Operation::Lookup(Place { directory, name }) => {
                let directory = self.directory(directory)?;
                self.both_enter(|client, side| client.lookup(directory.ino(side), name))
            }
            Operation::Forget { node } => {
                let node = self.node(node).filter(|node| node.model != self.nodes[0].model)?;
                self.forget(node)
            }
            Operation::Unlink(Place { directory, name }) => {
                let directory = self.directory(directory)?;
                self.both(|client, side| done(client.unlink(directory.ino(side), name)))
            }
            Operation::Rmdir(Place { directory, name }) => {
                let directory = self.directory(directory)?;
                self.both(|client, side| done(client.rmdir(directory.ino(side), name)))
            }
            Operation::Rename { from, to, mode } => {
                let (source, target) =
                    (self.directory(from.directory)?, self.directory(to.directory)?);
                self.both(|client, side| {
                    let (source, target) = (source.ino(side), target.ino(side));
                    done(client.rename_with(source, from.name, target, to.name, mode))
                })
            }
            Operation::Link { node, place } => {
                let (node, directory) = (self.node(node)?, self.directory(place.directory)?);
                self.both_enter(|client, side| {
                    client.link(node.ino(side), directory.ino(side), place.name)
                })
            }
            Operation::List { directory, room } => {
                let directory = self.directory(directory)?;
                self.both(|client, side| {
                    seen(names(client, directory.ino(side), room), Seen::Names)
                })
            }
            _ => return None,
        })
    }

    /// Forgets the lookups of a node, unless it is open. The kernel never forgets an open file.
    fn forget(&mut self, node: NodePair) -> Difference {
        if self.files.iter().all(|(_, file)| file.ino != node.model) {
            self.subject.forget(node.subject);
            self.model.forget(node.model);
            self.nodes.retain(|pair| pair.model != node.model);
        }
        Ok(())
    }

    fn apply_creating(&mut self, operation: &Operation) -> Option<Difference> {
        Some(match *operation {
            Operation::Create { place, mode, flags } => {
                let directory = self.directory(place.directory)?;
                // The kernel opens pipes and devices itself and sends no open request.
                let existing = self.model.lookup(directory.model, place.name);
                if existing.is_ok_and(|attr| is_special(attr.kind)) {
                    return Some(Ok(()));
                }
                self.both_open(|client, side| {
                    client.create(directory.ino(side), place.name, mode, flags)
                })
            }
            Operation::Tmpfile { directory, flags } => {
                let directory = self.directory(directory)?;
                // ext4 and Btrfs differ on unnamed files in a removed directory.
                if self.model.attr(directory.model).is_ok_and(|attr| attr.links == 0) {
                    return Some(Ok(()));
                }
                self.both_open(|client, side| client.tmpfile(directory.ino(side), 0o600, flags))
            }
            Operation::Mknod { place, mode, creator } => {
                let directory = self.directory(place.directory)?;
                self.both_enter(|client, side| {
                    acting(client, creator).mknod(directory.ino(side), place.name, mode, 0)
                })
            }
            Operation::Mkdir { place, mode, creator } => {
                let directory = self.directory(place.directory)?;
                self.both_enter(|client, side| {
                    acting(client, creator).mkdir_mode(directory.ino(side), place.name, mode)
                })
            }
            Operation::Symlink { place, target } => {
                let directory = self.directory(place.directory)?;
                self.both_enter(|client, side| {
                    client.symlink(directory.ino(side), place.name, target)
                })
            }
            _ => return None,
        })
    }

    /// Performs an operation that also opens the file, like [`both_enter`](Self::both_enter).
    fn both_open(
        &mut self,
        ask: impl Fn(&'c Client<'c>, Side) -> Result<(Attr, File<'c>)>,
    ) -> Difference {
        let [subject, model] =
            [Side::Subject, Side::Model].map(|side| ask(self.client(side), side));
        match (subject, model) {
            (Ok((subject, subject_file)), Ok((model, model_file))) => {
                self.keep_open(subject_file, model_file);
                self.enter(&subject, &model)?;
                same(&attr(Ok(subject)), &attr(Ok(model)))
            }
            (subject, model) => {
                same(&attr(subject.map(|(attr, _)| attr)), &attr(model.map(|(attr, _)| attr)))
            }
        }
    }

    fn keep_open(&mut self, subject: File<'c>, model: File<'c>) {
        if self.files.len() == FILES_MAX {
            self.files.remove(0);
        }
        self.files.push((subject, model));
    }

    fn apply_data(&mut self, operation: &Operation) -> Option<Difference> {
        Some(match *operation {
            Operation::Open { file, flags } => {
                let file = self.file_node(file)?;
                self.open(file, flags)
            }
            Operation::Close { handle } => {
                let index = usize::from(handle).checked_rem(self.files.len())?;
                let (subject, model) = self.files.remove(index);
                same(&done(subject.close()), &done(model.close()))
            }
            Operation::Read { handle, span } => {
                // File systems may differ on whether an empty read checks the handle.
                let length = span.length.max(1);
                self.on_file(handle, |file| seen(file.read(span.offset, length), Seen::Bytes))?
            }
            Operation::Write { handle, span, fill, kill_set_id } => {
                let data = vec![fill; span.length];
                // The kernel sends no empty writes, so whether one clears set-id bits does not
                // matter.
                let kill_set_id = kill_set_id && span.length > 0;
                let options = WriteOptions { kill_set_id, ..WriteOptions::default() };
                self.on_file(handle, |file| {
                    let written = file.write_with(span.offset, &data, options);
                    seen(written, |length| Seen::Number(length as u64))
                })?
            }
            Operation::TruncateOpen { handle, size } => {
                // If ftruncate(2) does not allow the call, it fails in the kernel, before any
                // request.
                let writable = self.file(handle)?;
                let can_write = writable.1.write(0, b"").is_ok();
                if !can_write {
                    return Some(Ok(()));
                }
                self.on_file(handle, |file| attr(file.truncate(size)))?
            }
            Operation::Fallocate { handle, span, mode } => self.on_file(handle, |file| {
                done(file.fallocate(span.offset, span.length as u64, mode))
            })?,
            Operation::Copy { source, target, span, target_offset } => {
                let (source, target) = (self.file(source)?, self.file(target)?);
                same(
                    &copy(&source.0, &target.0, span, target_offset),
                    &copy(&source.1, &target.1, span, target_offset),
                )
            }
            Operation::Sync { handle } => self.on_file(handle, |file| done(file.fsync(false)))?,
            Operation::StatOpen { handle } => self.on_file(handle, |file| attr(file.attr()))?,
            _ => return None,
        })
    }

    fn on_file(&self, choice: Choice, ask: impl Fn(&File<'c>) -> Answer) -> Option<Difference> {
        let (subject, model) = self.file(choice)?;
        Some(same(&ask(subject), &ask(model)))
    }

    fn open(&mut self, node: NodePair, flags: OpenMode) -> Difference {
        let subject = self.subject.open(node.subject, flags);
        match (subject, self.model.open(node.model, flags)) {
            (Ok(subject), Ok(model)) => {
                self.keep_open(subject, model);
                Ok(())
            }
            (subject, model) => same(&done(subject.map(|_| ())), &done(model.map(|_| ()))),
        }
    }

    fn apply_attributes(&mut self, operation: &Operation) -> Option<Difference> {
        Some(match operation {
            Operation::Truncate { file, size, kill_set_id } => {
                let changes =
                    SetAttr { size: Some(*size), kill_set_id: *kill_set_id, ..SetAttr::default() };
                let file = self.file_node(*file)?;
                self.both(|client, side| attr(client.set(file.ino(side), &changes)))
            }
            Operation::Chmod { node, mode } => {
                // A symbolic link's mode can't be changed, and file systems return different
                // errors.
                let node = self.node(*node).filter(|node| node.kind != FileKind::Symlink)?;
                self.both(|client, side| attr(client.chmod(node.ino(side), *mode)))
            }
            Operation::Chown { node, uid, gid } => {
                let changes = SetAttr { uid: *uid, gid: *gid, ..SetAttr::default() };
                let node = self.node(*node)?;
                self.both(|client, side| attr(client.set(node.ino(side), &changes)))
            }
            Operation::SetTimes { node, seconds, nanoseconds } => {
                let time = Timestamp { seconds: *seconds, nanoseconds: *nanoseconds };
                let node = self.node(*node)?;
                self.both(|client, side| set_times(client, node.ino(side), time))
            }
            Operation::Stat { node } => {
                let node = self.node(*node)?;
                self.both(|client, side| attr(client.attr(node.ino(side))))
            }
            Operation::Readlink { node } => {
                let node = self.node(*node).filter(|node| node.kind == FileKind::Symlink)?;
                self.both(|client, side| seen(client.readlink(node.ino(side)), Seen::Text))
            }
            _ => return self.apply_xattrs(operation),
        })
    }

    fn apply_xattrs(&mut self, operation: &Operation) -> Option<Difference> {
        Some(match operation {
            Operation::SetXattr { node, name, value, mode } => {
                let node = self.node(*node)?;
                self.both(|client, side| {
                    done(client.setxattr_mode(node.ino(side), name, value, *mode))
                })
            }
            Operation::GetXattr { node, name } => {
                let node = self.node(*node)?;
                self.both(|client, side| seen(client.getxattr(node.ino(side), name), Seen::Bytes))
            }
            Operation::ListXattr { node } => {
                let node = self.node(*node)?;
                self.both(|client, side| seen(client.listxattr(node.ino(side)), Seen::Names))
            }
            Operation::RemoveXattr { node, name } => {
                let node = self.node(*node)?;
                self.both(|client, side| done(client.removexattr(node.ino(side), name)))
            }
            _ => return None,
        })
    }

    fn compare_directory(&mut self, directory: NodePair, path: &str) -> Difference {
        let at = |difference| format!("in the final tree, {path}: {difference}");
        self.both(|client, side| seen(names(client, directory.ino(side), usize::MAX), Seen::Names))
            .map_err(at)?;
        for name in self.model.names(directory.model).map_err(|error| at(error.to_string()))? {
            let path = format!("{path}/{name}");
            self.compare_node(directory, &name, &path)?;
        }
        Ok(())
    }

    fn compare_node(&mut self, directory: NodePair, name: &str, path: &str) -> Difference {
        let at = |difference| format!("in the final tree, {path}: {difference}");
        self.both_enter(|client, side| client.lookup(directory.ino(side), name)).map_err(at)?;
        let find = |side| self.client(side).lookup(directory.ino(side), name);
        let model = find(Side::Model).map_err(|error| at(error.to_string()))?;
        let subject = find(Side::Subject).map_err(|error| at(error.to_string()))?;
        let node = NodePair { subject: subject.ino, model: model.ino, kind: model.kind };
        self.compare_xattrs(node).map_err(at)?;
        match node.kind {
            FileKind::Directory => self.compare_directory(node, path),
            FileKind::Regular => self
                .both(|client, side| seen(client.contents(node.ino(side)), Seen::Bytes))
                .map_err(at),
            FileKind::Symlink => self
                .both(|client, side| seen(client.readlink(node.ino(side)), Seen::Text))
                .map_err(at),
            _ => Ok(()),
        }
    }

    fn compare_xattrs(&self, node: NodePair) -> Difference {
        self.both(|client, side| seen(client.listxattr(node.ino(side)), Seen::Names))?;
        let names = self.model.listxattr(node.model).map_err(|error| error.to_string())?;
        names.iter().try_for_each(|name| {
            self.both(|client, side| seen(client.getxattr(node.ino(side), name), Seen::Bytes))
        })
    }
}

fn clean(client: &Client<'_>) -> Difference {
    let clean = || {
        if client.exists(Ino::ROOT, TOP)? {
            client.clear(client.lookup(Ino::ROOT, TOP)?.ino)?;
            client.rmdir(Ino::ROOT, TOP)?;
        }
        Ok(())
    };
    clean().map_err(|error: fslab_vfs::Error| format!("can't remove {TOP}: {error}"))
}

fn acting<'a>(client: &Client<'a>, creator: Creator) -> Client<'a> {
    client.as_user(creator.uid, creator.gid).with_umask(creator.umask)
}

fn is_special(kind: FileKind) -> bool {
    !matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink)
}

fn done(answer: Result<()>) -> Answer {
    seen(answer, |()| Seen::Nothing)
}

fn attr(answer: Result<Attr>) -> Answer {
    seen(answer, |attr| Seen::Attr(SeenAttr::from(&attr)))
}

/// Copies a whole span in several requests. One request may copy less, as in Btrfs, which shares
/// whole blocks first.
fn copy(source: &File<'_>, target: &File<'_>, span: Span, target_offset: u64) -> Answer {
    let behind = source.attr()?.size.saturating_sub(span.offset);
    let wanted = behind.min(span.length as u64);
    let first = source.copy_to(span.offset, target, target_offset, span.length as u64)?;
    let mut done = first;
    while done > 0 && done < wanted {
        let (from, to) = (span.offset + done, target_offset + done);
        match source.copy_to(from, target, to, wanted - done)? {
            0 => break,
            copied => done += copied,
        }
    }
    Ok(Seen::Number(done))
}

fn set_times(client: &Client<'_>, ino: Ino, time: Timestamp) -> Answer {
    let changes = SetAttr {
        accessed: Some(SetTime::To(time)),
        modified: Some(SetTime::To(time)),
        ..SetAttr::default()
    };
    seen(client.set(ino, &changes), |attr| Seen::Times(attr.accessed, attr.modified))
}

/// The names in a directory, listed with sinks for `room` entries. A name that is listed twice is
/// reported as `ELOOP`, which the model never returns. A removed directory may have no entries or
/// fail to list.
fn names(client: &Client<'_>, directory: Ino, room: usize) -> Result<Vec<String>> {
    let listing = client.opendir(directory)?;
    let (mut names, mut count, mut offset) = (BTreeSet::new(), 0, 0);
    loop {
        let piece = match listing.next(offset, room) {
            Err(error) if error.errno() == Errno::NOENT => Vec::new(),
            answer => answer?,
        };
        let Some(last) = piece.last() else { break };
        offset = last.next_offset;
        let real = piece.iter().filter(|entry| entry.name != "." && entry.name != "..");
        for entry in real {
            count += 1;
            names.insert(entry.name.to_string_lossy().into_owned());
        }
        if count > names.len() {
            return Err(Errno::LOOP.into());
        }
    }
    listing.close()?;
    Ok(names.into_iter().collect())
}
