//! Estimates the gain of encoding a tree from samples of its files. Nothing is written.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use fslab_vfs::{FileKind, FileSystem, HostFs, HostOptions, Ino, Name, Request, Result};

use super::scope::{PartOfPlainTree, Scope};
use super::{Direction, contents};
use crate::codec::{CODECS, CodecSpec};
use crate::context::{Settings, own_request};
use crate::encoder::encode;
use crate::error::Error;
use crate::format::HEAD_BYTES;
use crate::size_xattr::{self, Mark};
use crate::{options, superblock};
use fslab_layers::LayerChoice;

/// Chunks sampled in one file.
const SAMPLES: u64 = 4;

/// Unit of allocated space in bytes.
const BLOCK_BYTES: u64 = 4096;

/// Expected gain of encoding a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Files that would be encoded.
    pub files: u64,
    /// Files that need no encoding, because they are empty or already stored files.
    pub already: u64,
    /// Files that can't be read.
    pub unreadable: u64,
    /// Space that the files to be encoded take now, in bytes.
    pub before_bytes: u64,
    /// Expected space that these files will take, in bytes.
    pub after_bytes: u64,
    /// Bytes that were encoded as samples.
    pub sampled_bytes: u64,
}

/// Estimates the gain of encoding a tree with a layer. `tell` is called for each file.
///
/// # Errors
/// The tree can't be listed, or the layer does not encode.
pub fn estimate(root: &Path, layer: &LayerChoice, tell: &dyn Fn(&Path)) -> crate::Result<Estimate> {
    let failed = |source| Error::StoredFile { path: root.to_owned(), source };
    let codec = codec_of(layer)?;
    let lower = HostFs::open(root, &HostOptions::default()).map_err(failed)?;
    let settings = options::of_estimate(codec, layer.options()).map_err(failed)?;
    let request = own_request();
    let scope = Scope::find(&lower, &request, Direction::Encode).map_err(failed)?;
    let scope = scope.map_err(|PartOfPlainTree(path)| Error::PartOfPlainTree { path })?;
    let mut samples = Samples {
        lower: &lower,
        request,
        settings,
        scope,
        estimate: Estimate::default(),
        linked: HashSet::new(),
        tell,
    };
    samples.directory(Ino::ROOT, &PathBuf::new()).map_err(failed)?;
    Ok(samples.estimate)
}

/// Returns the codec of a layer.
///
/// # Errors
/// The layer does not encode.
pub fn codec_of(layer: &LayerChoice) -> crate::Result<&'static CodecSpec> {
    let name = layer.spec().name;
    CODECS.iter().copied().find(|codec| codec.name == name).ok_or(Error::NoCodec { layer: name })
}

struct Samples<'a> {
    lower: &'a dyn FileSystem,
    request: Request,
    settings: Settings,
    scope: Scope,
    estimate: Estimate,
    /// Files with several names that were already visited by one of their names. Their inodes are
    /// kept referenced, so that no other file gets the same number.
    linked: HashSet<Ino>,
    tell: &'a dyn Fn(&Path),
}

impl Samples<'_> {
    fn directory(&mut self, directory: Ino, path: &Path) -> Result<()> {
        for name in self.names(directory)? {
            if fslab_vfs::is_lock_file_name(&name) {
                continue;
            }
            let entry = self.lower.lookup(&self.request, directory, Name::new(&name)?)?;
            let (attr, path) = (entry.attr, path.join(&name));
            match attr.kind {
                FileKind::Directory => self.directory(attr.ino, &path)?,
                FileKind::Regular if attr.links > 1 && !self.linked.insert(attr.ino) => {}
                FileKind::Regular => {
                    (self.tell)(&path);
                    if self.file(attr.ino, attr.size, attr.blocks * 512).is_err() {
                        self.estimate.unreadable += 1;
                    }
                }
                _ => {}
            }
            if !self.linked.contains(&attr.ino) {
                self.lower.forget(attr.ino, 1);
            }
        }
        Ok(())
    }

    fn is_stored(&self, ino: Ino, beginning: &[u8]) -> Result<bool> {
        let Some(identity) = superblock::identify(beginning) else { return Ok(false) };
        let is_foreign = size_xattr::read(self.lower, &self.request, ino)? == Some(Mark::Foreign);
        Ok(self.scope.rule.admits(identity.file_id, is_foreign))
    }

    fn names(&self, directory: Ino) -> Result<Vec<std::ffi::OsString>> {
        super::walk::names(self.lower, &self.request, directory)
    }

    fn file(&mut self, ino: Ino, size: u64, taken: u64) -> Result<()> {
        let beginning = contents::beginning(self.lower, &self.request, ino)?;
        if size == 0 || self.is_stored(ino, &beginning)? {
            self.estimate.already += 1;
            return Ok(());
        }
        let chunk = 1_u64 << self.settings.chunk_log2;
        let chunks = size.div_ceil(chunk);
        let step = chunks.div_ceil(SAMPLES).max(1);
        let (mut plain, mut encoded) = (0, 0);
        for number in (0..chunks).step_by(step as usize) {
            let at = (number * chunk, chunk);
            let bytes = contents::piece(self.lower, &self.request, ino, at)?;
            let body = encode(&self.settings, self.settings.codec, &bytes)?.body;
            plain += bytes.len() as u64;
            encoded += (body.len() + self.settings.codec.container.header_bytes) as u64;
        }
        self.estimate.sampled_bytes += plain;
        self.estimate.files += 1;
        // Encoding preserves holes, which take no space before or after.
        let held = size.min(taken) as f64;
        let expected = HEAD_BYTES as f64 + held * encoded as f64 / plain.max(1) as f64;
        self.estimate.before_bytes += taken;
        self.estimate.after_bytes += (expected as u64).next_multiple_of(BLOCK_BYTES);
        Ok(())
    }
}
