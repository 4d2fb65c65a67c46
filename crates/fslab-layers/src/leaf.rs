//! The leaf under a stack, as named by a user: a directory, `dir:PATH`, `mem:`, or a leaf of
//! another crate. The caller of the parser provides the leaves of other crates ([`ForeignLeaf`]).

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use fslab_sys::shared_memory::SharedMemory;
use fslab_sys::supervise::Inherited;
use fslab_vfs::{AccessTimes, Errno, FileSystem, HostFs, HostOptions, MemFs};

use crate::error::{Error, ForeignError, Result};
use crate::stability::Stability;

/// Every kind of leaf.
pub const LEAVES: &[LeafSpec] = &[DIRECTORY, MEMORY];

const DIRECTORY: LeafSpec = LeafSpec {
    name: "dir:PATH",
    help: "a directory of the host; the prefix 'dir:' is optional",
    stability: Stability::Beta,
};

const MEMORY: LeafSpec = LeafSpec {
    name: "mem:",
    help: "memory; all files are lost at unmount",
    stability: Stability::Beta,
};

/// The description of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct LeafSpec {
    /// Form of the leaf on a command line.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Stability level of the leaf.
    pub stability: Stability,
}

/// A kind of leaf that another crate implements. A program that links both crates passes this
/// description to fslab. No other program can change the files of such a leaf while it is open.
#[derive(Clone, Copy, Debug)]
pub struct ForeignLeaf {
    /// Description of the leaf, as shown in lists of leaves.
    pub spec: LeafSpec,
    /// Prefix of the leaf on a command line, including the colon.
    pub scheme: &'static str,
    /// Opens the leaf named by the text after the scheme.
    pub open: OpenLeaf,
    /// Returns the size of [`LeafOptions::changes`] in 64-bit words, for the leaf named by the text
    /// after the scheme. `None` if the leaf does not record its unwritten changes.
    pub change_words: fn(&str) -> Option<usize>,
}

/// Opens the foreign leaf named by the text after the scheme.
pub type OpenLeaf =
    fn(&str, &LeafOptions) -> std::result::Result<Arc<dyn FileSystem>, ForeignError>;

/// Options of a leaf, independent of the layers over it.
#[derive(Clone, Debug, Default)]
pub struct LeafOptions {
    /// Whether to refuse changes: a device is opened read-only, and each change fails with `EROFS`.
    pub read_only: bool,
    /// The accesses that update access times.
    pub access_times: AccessTimes,
    /// Open descriptors handed over by an earlier process that served the same directory.
    pub inherited: Option<Arc<Inherited>>,
    /// Memory in which a foreign leaf records its unwritten changes, so that the next process that
    /// serves the leaf can write them. It may already contain changes of an earlier process.
    pub changes: Option<Arc<SharedMemory>>,
}

impl PartialEq for ForeignLeaf {
    fn eq(&self, other: &Self) -> bool {
        self.scheme == other.scheme
    }
}

impl Eq for ForeignLeaf {}

/// A leaf that is not yet open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// A directory of the host.
    Directory(PathBuf),
    /// Memory.
    Memory,
    /// A leaf of another crate, and the text after its scheme.
    Foreign(&'static ForeignLeaf, String),
}

impl Leaf {
    /// Parses the name of a leaf; the leaf is one of this crate or of `foreign`.
    #[must_use]
    pub fn parse(text: &str, foreign: &'static [ForeignLeaf]) -> Self {
        let known = foreign.iter().find_map(|leaf| Some((leaf, text.strip_prefix(leaf.scheme)?)));
        match (text, known) {
            ("mem:", _) => Self::Memory,
            (_, Some((leaf, argument))) => Self::Foreign(leaf, argument.to_owned()),
            (path, None) => Self::Directory(path.strip_prefix("dir:").unwrap_or(path).into()),
        }
    }

    /// Opens the leaf.
    ///
    /// # Errors
    /// If the leaf can't be opened.
    pub fn open(&self, options: &LeafOptions) -> Result<Arc<dyn FileSystem>> {
        match self {
            Self::Memory => Ok(Arc::new(MemFs::default().with_access_times(options.access_times))),
            Self::Foreign(leaf, argument) => (leaf.open)(argument, options)
                .map_err(|source| Error::ForeignLeaf { leaf: self.to_string(), source }),
            Self::Directory(path) => {
                self.of_host(HostFs::open(path, &host_options(options)), options)
            }
        }
    }

    /// Uses an open directory as the leaf, even if its path now refers to another directory.
    ///
    /// # Errors
    /// If the directory can't be used.
    pub fn open_directory(
        &self,
        root: OwnedFd,
        options: &LeafOptions,
    ) -> Result<Arc<dyn FileSystem>> {
        self.of_host(HostFs::from_descriptor(root, &host_options(options)), options)
    }

    fn of_host(
        &self,
        opened: fslab_vfs::Result<HostFs>,
        options: &LeafOptions,
    ) -> Result<Arc<dyn FileSystem>> {
        let chooses = options.access_times != AccessTimes::Usual;
        match opened {
            Ok(host) => Ok(Arc::new(host)),
            Err(source) if chooses && is_forbidden(&source) => {
                Err(Error::AccessTimes { leaf: self.to_string() })
            }
            Err(source) => Err(Error::Leaf { leaf: self.to_string(), source }),
        }
    }

    /// The warning for users who mount the leaf; `None` if it needs none.
    #[must_use]
    pub fn caution(&self) -> Option<&'static str> {
        let spec = match self {
            Self::Foreign(leaf, _) => leaf.spec,
            Self::Directory(_) => DIRECTORY,
            Self::Memory => MEMORY,
        };
        spec.stability.caution()
    }

    /// The size of [`LeafOptions::changes`], in 64-bit words; `None` if the leaf records no
    /// changes.
    #[must_use]
    pub fn change_words(&self) -> Option<usize> {
        match self {
            Self::Foreign(leaf, argument) => (leaf.change_words)(argument),
            Self::Directory(_) | Self::Memory => None,
        }
    }

    /// Whether no other program can change the files of the open leaf.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.directory().is_none()
    }

    /// The path if the leaf is a directory.
    #[must_use]
    pub fn directory(&self) -> Option<&PathBuf> {
        match self {
            Self::Directory(path) => Some(path),
            Self::Memory | Self::Foreign(..) => None,
        }
    }
}

impl FromStr for Leaf {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        Ok(Self::parse(text, &[]))
    }
}

impl fmt::Display for Leaf {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => formatter.write_str("mem:"),
            Self::Foreign(leaf, argument) => write!(formatter, "{}{argument}", leaf.scheme),
            // Without `dir:`, the name would be parsed as another kind of leaf.
            Self::Directory(path) if is_ambiguous(path) => {
                write!(formatter, "dir:{}", path.display())
            }
            Self::Directory(path) => path.display().fmt(formatter),
        }
    }
}

fn host_options(options: &LeafOptions) -> HostOptions {
    let inherited = options.inherited.clone();
    HostOptions { access_times: options.access_times, inherited, ..HostOptions::default() }
}

/// Whether an access time option failed because privileges or kernel support are missing.
fn is_forbidden(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), Errno::PERM | Errno::NOSYS)
}

fn is_ambiguous(path: &Path) -> bool {
    let name = path.as_os_str();
    name == "mem:" || name.as_encoded_bytes().starts_with(b"dir:")
}
