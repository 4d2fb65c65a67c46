//! What is asked of the kernel at the start of a connection, and what it granted.

use std::fmt;

use fuser::{InitFlags, KernelConfig};

use crate::options::MountOptions;

/// Requests the kernel keeps in flight for read-ahead and write-back.
const BACKGROUND_REQUESTS_MAX: u16 = 64;

/// Layers of file systems the kernel may see in a passthrough: this one over a plain one.
const STACK_DEPTH: u32 = 1;

/// What the kernel granted for one mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Protocol version of the kernel.
    pub protocol: (u32, u32),
    /// Reads and writes may go to the lower file directly.
    pub passthrough: bool,
    /// The kernel collects writes.
    pub writeback: bool,
    /// The kernel leaves the clearing of set-id bits to this side.
    pub kill_set_id: bool,
    /// Listings may carry attributes.
    pub readdirplus: bool,
    /// Lookups and listings of one directory run side by side.
    pub parallel_directories: bool,
    /// POSIX ACLs are stored and enforced.
    pub posix_acl: bool,
    /// Targets of symbolic links are cached.
    pub cached_symlinks: bool,
}

impl fmt::Display for Granted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.protocol;
        write!(formatter, "protocol {major}.{minor}")?;
        let features = [
            ("passthrough", self.passthrough),
            ("writeback", self.writeback),
            ("kill-set-id", self.kill_set_id),
            ("readdirplus", self.readdirplus),
            ("parallel-directories", self.parallel_directories),
            ("posix-acl", self.posix_acl),
            ("cached-symlinks", self.cached_symlinks),
        ];
        for (name, granted) in features {
            write!(formatter, ", {}{name}", if granted { "" } else { "no " })?;
        }
        Ok(())
    }
}

/// Asks for features one by one, from an explicit list: fuser accepts flags that it then does not
/// serve.
pub(crate) fn negotiate(config: &mut KernelConfig, options: &MountOptions) -> Granted {
    let mut ask = |flags: InitFlags| config.add_capabilities(flags).is_ok();
    ask(InitFlags::FUSE_ASYNC_DIO);
    ask(InitFlags::FUSE_AUTO_INVAL_DATA);
    // The lower file system applies the umask, because only it knows of default ACLs.
    ask(InitFlags::FUSE_DONT_MASK);
    let plus = InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
    let readdirplus = ask(plus);
    let parallel_directories = ask(InitFlags::FUSE_PARALLEL_DIROPS);
    let posix_acl = ask(InitFlags::FUSE_POSIX_ACL);
    let cached_symlinks = ask(InitFlags::FUSE_CACHE_SYMLINKS);
    let writeback = options.writeback && ask(InitFlags::FUSE_WRITEBACK_CACHE);
    // Without it the kernel asks for an xattr before every write; with it, passthrough would
    // leave set-id bits on files that others wrote to.
    let kill_set_id = writeback && ask(InitFlags::FUSE_HANDLE_KILLPRIV_V2);
    let passthrough = !writeback && ask(InitFlags::FUSE_PASSTHROUGH);
    let deep_enough = !passthrough || config.set_max_stack_depth(STACK_DEPTH).is_ok();
    let background = config.set_max_background(BACKGROUND_REQUESTS_MAX);
    debug_assert!(background.is_ok(), "the constant is above zero");
    let version = config.kernel_abi();
    Granted {
        protocol: (version.0, version.1),
        passthrough: passthrough && deep_enough,
        writeback,
        kill_set_id,
        readdirplus,
        parallel_directories,
        posix_acl,
        cached_symlinks,
    }
}
