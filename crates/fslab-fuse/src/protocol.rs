//! The FUSE protocol as the kernel's `linux/fuse.h` defines it, versions 7.31 to 7.45.
//!
//! Structures have the kernel's names in Rust's spelling, its fields, and a checked size. Numbers
//! are in the machine's own byte order: both ends are the same machine.

pub(crate) mod flags;
pub(crate) mod opcode;
pub(crate) mod reply;
pub(crate) mod request;

/// The protocol's major version; another one is another protocol.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version served.
pub(crate) const MINOR_MAX: u32 = 45;
/// The oldest minor version served, that of Linux 5.4 to 5.9. What is tried is Linux 6.1 and newer.
pub(crate) const MINOR_MIN: u32 = 31;

/// Declares a structure that crosses the boundary, with its size.
macro_rules! wire {
    ($(#[$attribute:meta])* $name:ident [$size:literal] { $($field:ident: $kind:ty,)* }) => {
        $(#[$attribute])*
        #[derive(
            Clone, Copy, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
            zerocopy::KnownLayout,
        )]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub $field: $kind,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}
pub(crate) use wire;
