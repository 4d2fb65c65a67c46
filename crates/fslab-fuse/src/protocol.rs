//! The FUSE protocol as the kernel's `linux/fuse.h` defines it, versions 7.31 to 7.45.
//!
//! Structures have the kernel's names in Rust's spelling, the kernel's fields, and a checked size.
//! Numbers are in native byte order, because kernel and server run on the same machine.

pub(crate) mod flags;
pub(crate) mod opcode;
pub(crate) mod reply;
pub(crate) mod request;

/// The protocol's major version; other major versions are incompatible.
pub(crate) const MAJOR: u32 = 7;
/// The newest supported minor version.
pub(crate) const MINOR_MAX: u32 = 45;
/// The oldest supported minor version, that of Linux 5.4 to 5.9. Only Linux 6.1 and newer is
/// tested.
pub(crate) const MINOR_MIN: u32 = 31;

/// Declares a structure of the protocol and checks its size.
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
