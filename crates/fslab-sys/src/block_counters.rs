//! The kernel's counters of a block device since it was attached.

use std::fs;
use std::io;
use std::path::PathBuf;

/// Number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    /// The driver's number.
    pub major: u32,
    /// The device within the driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// A file below the device's directory in sysfs.
    #[must_use]
    pub fn sysfs(self, file: &str) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}:{}/{file}", self.major, self.minor))
    }
}

/// Counts of requests that the device has completed. Sectors are always 512 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounters {
    /// Read requests.
    pub reads: u64,
    /// Read requests merged with another before they reached the device.
    pub reads_merged: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Write requests merged with another before they reached the device.
    pub writes_merged: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// Milliseconds that read requests took in total, from their submission.
    pub read_ms: u64,
    /// Milliseconds that write requests took in total, from their submission.
    pub write_ms: u64,
    /// Milliseconds during which the device had at least one request; exact to a scheduler tick.
    pub busy_ms: u64,
    /// Discard requests.
    pub discards: u64,
    /// Flush requests.
    pub flushes: u64,
}

impl BlockCounters {
    /// Reads the current counters.
    ///
    /// # Errors
    /// The device no longer exists, or its counters can't be parsed.
    pub fn read(device: DeviceNumber) -> io::Result<Self> {
        let path = device.sysfs("stat");
        let text = fs::read_to_string(&path)?;
        Self::parse(&text).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {text:?}", path.display()))
        })
    }

    /// Parses the fields of Documentation/block/stat.rst; discards and flushes were added later and
    /// may be missing.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> =
            text.split_ascii_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
        let at = |index: usize| fields.get(index).copied();
        Some(Self {
            reads: at(0)?,
            reads_merged: at(1)?,
            sectors_read: at(2)?,
            read_ms: at(3)?,
            writes: at(4)?,
            writes_merged: at(5)?,
            sectors_written: at(6)?,
            write_ms: at(7)?,
            busy_ms: at(9)?,
            discards: at(11).unwrap_or(0),
            flushes: at(15).unwrap_or(0),
        })
    }
}

impl_sub!(BlockCounters {
    reads,
    reads_merged,
    sectors_read,
    writes,
    writes_merged,
    sectors_written,
    read_ms,
    write_ms,
    busy_ms,
    discards,
    flushes,
});

#[cfg(test)]
mod tests {
    use super::BlockCounters;

    #[test]
    fn fields_are_taken_from_their_columns() {
        let text = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n";
        let expected = BlockCounters {
            reads: 1,
            reads_merged: 2,
            sectors_read: 3,
            read_ms: 4,
            writes: 5,
            writes_merged: 6,
            sectors_written: 7,
            write_ms: 8,
            busy_ms: 10,
            discards: 12,
            flushes: 16,
        };
        assert_eq!(BlockCounters::parse(text), Some(expected));
        assert_eq!(BlockCounters::parse("1 2 3"), None);
        assert_eq!(BlockCounters::parse("1 2 3 4 five 6 7"), None);
    }
}
