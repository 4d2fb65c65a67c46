//! Why a block device is not erased.

/// Why a block device is not erased.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is named otherwise.
    #[error("devices are named by /dev/disk/by-id, because other names change")]
    NotById,
    /// It is no block device.
    #[error("is no block device")]
    NotBlock,
    /// It is mounted.
    #[error("{0} is mounted")]
    Mounted(String),
    /// It is swap.
    #[error("{0} is in use as swap")]
    Swap(String),
    /// Another device is made of it.
    #[error("{0} is held by {1}")]
    Held(String, String),
    /// It is part of something larger.
    #[error("{0} is part of {1}; wipe it yourself if it is no longer")]
    Member(String, &'static str),
    /// Somebody has it open for itself.
    #[error("is in use")]
    Busy,
    /// It holds something.
    #[error(
        "holds {what}, which would be lost; to erase the device with serial number {serial}, type \
         --erase {serial}"
    )]
    Holds {
        /// What.
        what: String,
        /// Its serial number.
        serial: String,
    },
}
