//! The list of features to request from the kernel at the start of a connection.
//!
//! A feature that is not in [`FEATURES`] is never requested, whatever the kernel offers.
//! `ATOMIC_O_TRUNC` is omitted on purpose, because with it the executable of a running program
//! would be truncated before the kernel refuses the open (`ETXTBSY`).

use crate::options::{MountOptions, TransportChoice};
use crate::protocol::flags::InitFlags;

/// An optional feature of the FUSE protocol.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// Its name in messages.
    pub name: &'static str,
    /// Its effect for users of the mount.
    pub promise: &'static str,
    /// The test that demonstrates it (`cargo xtask tidy` checks that it exists).
    pub test: &'static str,
    pub(crate) flags: InitFlags,
    /// Whether a mount with these options requests it.
    pub(crate) wanted: fn(&MountOptions) -> bool,
}

const fn always(_: &MountOptions) -> bool {
    true
}

/// All features that may be requested.
pub const FEATURES: &[Feature] = &[
    Feature {
        flags: InitFlags::INIT_EXT,
        name: "more-features",
        promise: "features beyond the first 31 can be requested",
        test: "fslab_fuse::negotiate::only_offered_features_are_requested",
        wanted: always,
    },
    Feature {
        flags: InitFlags::ASYNC_READ,
        name: "parallel-reads",
        promise: "pages of one file are read ahead in parallel",
        test: "fslab_fuse::readahead_requests_run_in_parallel",
        wanted: always,
    },
    Feature {
        flags: InitFlags::BIG_WRITES.union(InitFlags::MAX_PAGES),
        name: "large-requests",
        promise: "a write of 1 MiB is one request",
        test: "fslab_fuse::large_writes_arrive_in_requests_of_1_mib",
        wanted: always,
    },
    Feature {
        flags: InitFlags::ASYNC_DIO,
        name: "parallel-direct-io",
        promise: "the requests of one direct read or write run in parallel",
        test: "fslab_fuse::pieces_of_a_direct_read_run_in_parallel",
        wanted: always,
    },
    Feature {
        flags: InitFlags::DIRECT_IO_ALLOW_MMAP,
        name: "mapped-direct-io",
        promise: "files that the daemon opens for direct I/O can be mapped into memory",
        test: "fslab_fuse::files_for_direct_reading_can_be_mapped",
        wanted: always,
    },
    Feature {
        flags: InitFlags::AUTO_INVAL_DATA,
        name: "pages-follow-times",
        promise: "cached pages are dropped when the lower file's size or modification time changes",
        test: "fslab_fuse::cached_pages_are_dropped_when_the_file_changes_below",
        wanted: |options| !options.exclusive,
    },
    // The lower file system applies the umask, because only it knows whether a default ACL
    // overrides it.
    Feature {
        flags: InitFlags::DONT_MASK,
        name: "default-acls",
        promise: "a default ACL replaces the umask",
        test: "fslab_vfs_testing::umask_is_not_applied_under_a_default_list",
        wanted: always,
    },
    Feature {
        flags: InitFlags::DO_READDIRPLUS.union(InitFlags::READDIRPLUS_AUTO),
        name: "readdirplus",
        promise: "directory listings include attributes if callers use these attributes",
        test: "fslab_fuse::listings_include_attributes_while_callers_use_them",
        wanted: always,
    },
    Feature {
        flags: InitFlags::PARALLEL_DIROPS,
        name: "parallel-directories",
        promise: "lookups in one directory run in parallel",
        test: "fslab_fuse::lookups_in_one_directory_run_in_parallel",
        wanted: always,
    },
    Feature {
        flags: InitFlags::POSIX_ACL,
        name: "posix-acl",
        promise: "access control lists are kept and enforced",
        test: "fslab::access_lists_are_enforced",
        wanted: always,
    },
    Feature {
        flags: InitFlags::CACHE_SYMLINKS,
        name: "cached-symlinks",
        promise: "the target of a symbolic link is read only once while it is cached",
        test: "fslab_fuse::a_symbolic_link_is_read_once",
        wanted: always,
    },
    Feature {
        flags: InitFlags::WRITEBACK_CACHE,
        name: "writeback",
        promise: "the kernel collects small writes",
        test: "fslab_fuse::writeback_merges_small_writes",
        wanted: |options| options.writeback,
    },
    Feature {
        flags: InitFlags::HANDLE_KILLPRIV_V2,
        name: "kill-set-id",
        promise: "a write needs no extra request to clear set-id bits",
        test: "fslab_fuse::writes_read_capabilities_at_most_once_per_file",
        wanted: always,
    },
    // The kernel disables passthrough if writeback is enabled.
    Feature {
        flags: InitFlags::PASSTHROUGH,
        name: "passthrough",
        promise: "the kernel reads and writes lower files itself if no layer needs the data",
        test: "fslab::passthrough_keeps_data_out_of_the_daemon",
        wanted: |options| !options.writeback,
    },
    Feature {
        flags: InitFlags::SETXATTR_EXT,
        name: "acl-kill-set-gid",
        promise: "set-group-id is cleared if a user outside the group sets an access ACL",
        test: "fslab::setting_an_acl_as_a_non_member_clears_set_group_id",
        wanted: always,
    },
    Feature {
        flags: InitFlags::SECURITY_CTX,
        name: "security-labels",
        promise: "new files have their security label from the beginning",
        test: "fslab_fuse::creation::labels_are_set_at_creation",
        wanted: always,
    },
    Feature {
        flags: InitFlags::CREATE_SUPP_GROUP,
        name: "creation-group",
        promise: "creation requests carry the caller's group that matches the directory's group",
        test: "fslab_fuse::creation_requests_carry_the_matching_group",
        wanted: always,
    },
    Feature {
        flags: InitFlags::HAS_EXPIRE_ONLY,
        name: "expiry",
        promise: "mounts on a directory are kept when its name in the kernel's cache expires",
        test: "fslab_fuse::expired_name_keeps_the_mount_on_it",
        wanted: always,
    },
    Feature {
        flags: InitFlags::HAS_RESEND,
        name: "resend",
        promise: "the kernel resends unanswered requests of a dead daemon to the next daemon",
        test: "fslab::kept::programs_continue_after_a_daemon_is_killed",
        wanted: |options| options.keep,
    },
    Feature {
        flags: InitFlags::EXPORT_SUPPORT,
        name: "file-handles",
        promise: "file handles remain valid after the kernel has dropped their inodes",
        test: "fslab::handles::file_handles_survive_dropped_kernel_caches_over_ext4",
        wanted: |options| options.file_handles,
    },
    Feature {
        flags: InitFlags::NO_EXPORT_SUPPORT,
        name: "no-file-handles",
        promise: "file handles that would become invalid are not provided",
        test: "fslab::handles::mount_of_a_subdirectory_provides_no_file_handles",
        wanted: |options| !options.file_handles,
    },
    Feature {
        flags: InitFlags::ALLOW_IDMAP,
        name: "id-maps",
        promise: "ID-mapped mounts of this mount are possible",
        test: "fslab_fuse::id_mapped_mount_maps_owners",
        wanted: |options| options.id_maps,
    },
    Feature {
        flags: InitFlags::REQUEST_TIMEOUT,
        name: "longest-timeout",
        promise: "the default time limit of requests is replaced by the longest possible one",
        test: "fslab_fuse::session_requests_the_longest_timeout",
        wanted: always,
    },
    Feature {
        flags: InitFlags::OVER_IO_URING,
        name: "io-uring",
        promise: "requests are served on the processor on which they were made",
        test: "fslab_fuse::uring::requests_are_served_on_the_processor_that_makes_them",
        wanted: |options| options.transport != TransportChoice::Device,
    },
];
