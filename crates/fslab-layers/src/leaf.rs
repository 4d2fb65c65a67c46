//! The leaf under a stack, as a user names it: a directory, `dir:PATH`, `mem:`, or a leaf of
//! another crate, which whoever parses must hand in ([`ForeignLeaf`]).

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use fslab_sys::supervise::Inherited;
use fslab_vfs::{AccessTimes, Errno, FileSystem, HostFs, HostOptions, MemFs};

use crate::error::{Error, ForeignError, Result};

/// Every kind of leaf.
pub const LEAVES: &[LeafSpec] = &[
    LeafSpec {
        name: "dir:PATH",
        help: "a directory of the host; PATH alone means the same",
        caution: None,
    },
    LeafSpec { name: "mem:", help: "memory; gone when unmounted", caution: None },
];

/// A leaf's declaration of itself.
#[derive(Clone, Copy, Debug)]
pub struct LeafSpec {
    /// How it is written.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// What whoever mounts one is told first; `None` where there is nothing to be said.
    pub caution: Option<&'static str>,
}

/// A leaf that this crate does not know, told to it by the program that joins the two.
#[derive(Clone, Copy, Debug)]
pub struct ForeignLeaf {
    /// What is listed.
    pub spec: LeafSpec,
    /// How it begins on a command line, the colon included.
    pub scheme: &'static str,
    /// Opens what follows the scheme.
    pub open: OpenLeaf,
}

/// Opens what follows the scheme of a foreign leaf.
pub type OpenLeaf =
    fn(&str, &LeafOptions) -> std::result::Result<Arc<dyn FileSystem>, ForeignError>;

/// How a leaf is to be used, whatever lies over it.
#[derive(Clone, Debug, Default)]
pub struct LeafOptions {
    /// Nothing is changed: a device is opened for reading, and each change is answered with
    /// `EROFS`.
    pub read_only: bool,
    /// Which uses of files change access times.
    pub access_times: AccessTimes,
    /// What an earlier process has left open that served the same directory.
    pub inherited: Option<Arc<Inherited>>,
}

impl PartialEq for ForeignLeaf {
    fn eq(&self, other: &Self) -> bool {
        self.scheme == other.scheme
    }
}

impl Eq for ForeignLeaf {}

/// A leaf, not yet opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// A directory of the host.
    Directory(PathBuf),
    /// Memory.
    Memory,
    /// A leaf of another crate, and what follows its scheme.
    Foreign(&'static ForeignLeaf, String),
}

impl Leaf {
    /// Reads a leaf, which may be one of `foreign`.
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
    /// What opening the directory answers.
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

    /// Takes an open directory as the leaf, whatever is at its path.
    ///
    /// # Errors
    /// What using the directory so answers.
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

    /// What whoever mounts it is to be told first.
    #[must_use]
    pub fn caution(&self) -> Option<&'static str> {
        match self {
            Self::Foreign(leaf, _) => leaf.spec.caution,
            Self::Directory(_) | Self::Memory => None,
        }
    }

    /// The directory, where the leaf is one.
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
            // A directory whose name would be read as something else.
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

/// Whether a choice of access times fails for want of privilege, or of a kernel that has it.
fn is_forbidden(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), Errno::PERM | Errno::NOSYS)
}

fn is_ambiguous(path: &Path) -> bool {
    let name = path.as_os_str();
    name == "mem:" || name.as_encoded_bytes().starts_with(b"dir:")
}
