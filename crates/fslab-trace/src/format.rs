//! The columns of a trace and the metadata of its segments, as described in
//! `docs/formats/trace.md`.
//!
//! [`COLUMNS`] is the only list of columns: schema, writer and reader use it.

use std::str::FromStr;

use fslab_vfs::Operation;

use crate::escape::{escape, unescape};
use crate::record::Record;

/// Version of the format. A reader accepts its own version and all older ones.
pub const VERSION: u32 = 1;

/// Name of the message type in the schema.
pub(crate) const SCHEMA_NAME: &str = "fslab_trace";

/// Returns the file name of a segment: its number from 1, with leading zeros so that names sort.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:06}.parquet")
}

/// Returns the number of a segment from its file name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".parquet")?.parse().ok()?;
    (segment_name(number) == name && number > 0).then_some(number)
}

/// A column of the trace.
#[derive(Debug)]
pub struct Column {
    /// The name of the column.
    pub name: &'static str,
    /// The type of its values.
    pub kind: Kind,
    /// Whether every row has a value.
    pub required: bool,
    /// Reads the value from a record.
    pub(crate) get: fn(&Record) -> Cell,
    /// Stores a value in a record; `None` if the cell can't be converted.
    pub(crate) set: fn(&mut Record, Cell) -> Option<()>,
}

/// The type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// Nanoseconds since 1970, UTC.
    Time,
    /// UTF-8 text with escapes for other bytes.
    Text,
    /// Bytes.
    Bytes,
}

/// A value of a column, for output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// An unsigned number.
    Unsigned(u64),
    /// A signed number.
    Signed(i64),
    /// Text with escapes for other bytes.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Column {
    /// Returns the value of a record in this column.
    #[must_use]
    pub fn show(&self, record: &Record) -> Option<Shown> {
        match ((self.get)(record), self.kind) {
            (Cell::Null, _) => None,
            (Cell::Number(bits), Kind::I64 | Kind::Time) => Some(Shown::Signed(bits)),
            (Cell::Number(bits), _) => Some(Shown::Unsigned(bits.cast_unsigned())),
            (Cell::Bytes(bytes), Kind::Text) => {
                Some(Shown::Text(String::from_utf8_lossy(&bytes).into_owned()))
            }
            (Cell::Bytes(bytes), _) => Some(Shown::Bytes(bytes)),
        }
    }
}

/// A value that is converted between a record and a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// No value.
    Null,
    /// A number; an unsigned number is stored as the signed number with the same bits.
    Number(i64),
    /// Text or bytes.
    Bytes(Vec<u8>),
}

/// Converts the type of a field of [`Record`] to and from a [`Cell`].
trait Field: Sized {
    /// Whether every row has a value.
    const REQUIRED: bool = true;

    fn to_cell(&self, kind: Kind) -> Cell;

    /// Converts a cell; `None` if it can't be a value of this type.
    fn from_cell(cell: Cell, kind: Kind) -> Option<Self>;
}

impl Field for i64 {
    fn to_cell(&self, _: Kind) -> Cell {
        Cell::Number(*self)
    }

    fn from_cell(cell: Cell, _: Kind) -> Option<Self> {
        if let Cell::Number(bits) = cell { Some(bits) } else { None }
    }
}

impl Field for u64 {
    fn to_cell(&self, _: Kind) -> Cell {
        Cell::Number(self.cast_signed())
    }

    fn from_cell(cell: Cell, kind: Kind) -> Option<Self> {
        i64::from_cell(cell, kind).map(i64::cast_unsigned)
    }
}

impl Field for u32 {
    fn to_cell(&self, _: Kind) -> Cell {
        Cell::Number((*self).into())
    }

    fn from_cell(cell: Cell, kind: Kind) -> Option<Self> {
        i64::from_cell(cell, kind)?.try_into().ok()
    }
}

impl Field for Vec<u8> {
    fn to_cell(&self, kind: Kind) -> Cell {
        let is_text = kind == Kind::Text;
        Cell::Bytes(if is_text { escape(self).into_bytes() } else { self.clone() })
    }

    fn from_cell(cell: Cell, kind: Kind) -> Option<Self> {
        let Cell::Bytes(bytes) = cell else { return None };
        if kind == Kind::Text { unescape(&bytes) } else { Some(bytes) }
    }
}

impl Field for Operation {
    fn to_cell(&self, _: Kind) -> Cell {
        Cell::Bytes(self.name().as_bytes().to_vec())
    }

    fn from_cell(cell: Cell, kind: Kind) -> Option<Self> {
        std::str::from_utf8(&Vec::from_cell(cell, kind)?).ok()?.parse().ok()
    }
}

impl<T: Field> Field for Option<T> {
    const REQUIRED: bool = false;

    fn to_cell(&self, kind: Kind) -> Cell {
        self.as_ref().map_or(Cell::Null, |value| value.to_cell(kind))
    }

    fn from_cell(cell: Cell, kind: Kind) -> Option<Self> {
        if cell == Cell::Null { Some(None) } else { T::from_cell(cell, kind).map(Some) }
    }
}

const fn is_required<T: Field>(_: fn(&Record) -> &T) -> bool {
    T::REQUIRED
}

/// Builds the column for a field of [`Record`]; both have the same name.
macro_rules! column {
    ($field:ident: $kind:ident) => {
        Column {
            name: stringify!($field),
            kind: Kind::$kind,
            required: is_required(|record| &record.$field),
            get: |record| record.$field.to_cell(Kind::$kind),
            set: |record, cell| {
                record.$field = Field::from_cell(cell, Kind::$kind)?;
                Some(())
            },
        }
    };
}

/// Every column, in the order of the schema.
pub const COLUMNS: &[Column] = &[
    column!(sequence: U64),
    column!(start_ns: U64),
    column!(duration_ns: U64),
    column!(time_ns: Time),
    column!(thread: U32),
    column!(operation: Text),
    column!(pid: U32),
    column!(program: Text),
    column!(uid: U32),
    column!(gid: U32),
    column!(umask: U32),
    column!(inode: U64),
    column!(parent: U64),
    column!(name: Text),
    column!(new_parent: U64),
    column!(new_name: Text),
    column!(handle: U64),
    column!(offset: U64),
    column!(size: U64),
    column!(flags: U32),
    column!(mode: U32),
    column!(device: U32),
    column!(owner: U32),
    column!(group: U32),
    column!(accessed_s: I64),
    column!(accessed_ns: U32),
    column!(modified_s: I64),
    column!(modified_ns: U32),
    column!(from_inode: U64),
    column!(from_handle: U64),
    column!(from_offset: U64),
    column!(text: Text),
    column!(checksum: U64),
    column!(data: Bytes),
    column!(errno: U32),
    column!(result: U64),
    column!(result_inode: U64),
    column!(result_handle: U64),
    column!(result_mode: U32),
    column!(result_size: U64),
];

/// How much of the written data a trace keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataMode {
    /// Only the number of bytes.
    None,
    /// A checksum of each write.
    Checksum,
    /// All bytes.
    Full,
}

impl DataMode {
    /// The names of all modes, in order.
    pub const NAMES: &[&str] = &["none", "checksum", "full"];

    /// Returns the mode's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl FromStr for DataMode {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let modes = [Self::None, Self::Checksum, Self::Full];
        modes.into_iter().find(|mode| mode.name() == name).ok_or(())
    }
}

/// Metadata of a segment and of the trace so far, stored as key-value pairs in the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Version of the format.
    pub version: u32,
    /// Number of the segment.
    pub segment: u64,
    /// How much of the written data is kept.
    pub data: DataMode,
    /// Whether the segment contains keyed hashes instead of the names.
    pub anonymised: bool,
    /// Records lost up to the end of this segment.
    pub lost: u64,
    /// Whether this is the last segment and the trace was closed cleanly.
    pub closed: bool,
}

const KEY_VERSION: &str = "fslab.trace.version";
const KEY_SEGMENT: &str = "fslab.trace.segment";
const KEY_DATA: &str = "fslab.trace.data";
const KEY_NAMES: &str = "fslab.trace.names";
const KEY_LOST: &str = "fslab.trace.lost";
const KEY_CLOSED: &str = "fslab.trace.closed";

impl Metadata {
    pub(crate) fn to_pairs(self) -> [(&'static str, String); 6] {
        let names = if self.anonymised { "anonymised" } else { "plain" };
        [
            (KEY_VERSION, self.version.to_string()),
            (KEY_SEGMENT, self.segment.to_string()),
            (KEY_DATA, self.data.name().to_owned()),
            (KEY_NAMES, names.to_owned()),
            (KEY_LOST, self.lost.to_string()),
            (KEY_CLOSED, self.closed.to_string()),
        ]
    }

    /// Builds metadata from the value of each key; `None` if a value is missing or invalid.
    pub(crate) fn from_pairs<'a>(value: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        Some(Self {
            version: value(KEY_VERSION)?.parse().ok()?,
            segment: value(KEY_SEGMENT)?.parse().ok()?,
            data: value(KEY_DATA)?.parse().ok()?,
            anonymised: match value(KEY_NAMES)? {
                "plain" => false,
                "anonymised" => true,
                _ => return None,
            },
            lost: value(KEY_LOST)?.parse().ok()?,
            closed: value(KEY_CLOSED)?.parse().ok()?,
        })
    }

    /// Reads only the version, because a later format may have other keys.
    pub(crate) fn version_of<'a>(value: impl Fn(&str) -> Option<&'a str>) -> Option<u32> {
        value(KEY_VERSION)?.parse().ok()
    }
}
