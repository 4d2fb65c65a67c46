//! Reasons why a block device is not erased.

/// A reason why a block device is not erased.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its name is not in `/dev/disk/by-id`.
    #[error("a device must be given by its name in /dev/disk/by-id; its other names can change")]
    NotById,
    /// It is not a block device.
    #[error("it is not a block device")]
    NotBlock,
    /// It is mounted.
    #[error("{0} is mounted")]
    Mounted(String),
    /// It is in use as swap space.
    #[error("{0} is in use as swap")]
    Swap(String),
    /// Another device is built on it, such as a RAID array or a mapped device.
    #[error("{0} is in use by the device {1}")]
    Held(String, String),
    /// It is a member of a RAID array, a volume group or another larger device.
    #[error(
        "{0} has a signature of {1}; if {1} no longer uses {0}, remove the signature with wipefs"
    )]
    Member(String, &'static str),
    /// Another program has it open exclusively.
    #[error("another program has opened it exclusively")]
    Busy,
    /// It contains data.
    #[error(
        "it contains {what}, which would be lost; to erase the device with serial number {serial}, \
         use --erase {serial}"
    )]
    Holds {
        /// The kind of data.
        what: String,
        /// The serial number of the device.
        serial: String,
    },
}
