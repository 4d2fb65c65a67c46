//! Stores rows in Parquet files. Snapshots and workloads are such files.
//!
//! A format is a [`Row`]: a few columns of numbers and bytes, which are never null. Files are
//! written and read one row group at a time, so the memory needed does not depend on their length.
//! A file appears under its final name only when it is complete.

mod reader;
mod sort;
mod writer;

use std::path::Path;

use parquet::basic::Type;
use parquet::data_type::ByteArray;

pub use reader::Reader;
pub(crate) use sort::Sorter;
pub use writer::Writer;

/// Number of rows in a row group.
pub(crate) const GROUP_ROWS: usize = 1 << 16;

/// Text size in bytes at which a row group ends early.
const GROUP_TEXT_BYTES: usize = 64 << 20;

/// Maximum number of numeric columns in a format.
pub const NUMBERS_MAX: usize = 16;

/// The numbers of a row in column order; unused elements are 0.
pub type Numbers = [i64; NUMBERS_MAX];

/// Maximum number of byte columns in a format.
pub const TEXTS_MAX: usize = 2;

/// The texts of a row in column order; unused elements are empty.
pub type Texts = [Text; TEXTS_MAX];

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The name of the column.
    pub name: &'static str,
    /// The type of the values.
    pub kind: Kind,
    /// Whether values increase or rarely repeat. Such columns are stored with delta encoding
    /// instead of a dictionary.
    pub rising: bool,
    /// The format version that introduced the column. In older files, its values are read as 0 or
    /// as empty texts.
    pub since: u32,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// Bytes.
    Bytes,
}

impl Kind {
    fn physical(self) -> Type {
        match self {
            Self::U32 => Type::INT32,
            Self::U64 | Self::I64 => Type::INT64,
            Self::Bytes => Type::BYTE_ARRAY,
        }
    }
}

/// The layout of one format's files.
#[derive(Debug)]
pub struct Layout {
    /// The format's name. The keys of the footer contain it, as in `fslab.NAME.version`.
    pub name: &'static str,
    /// The version that is written. Older versions can also be read.
    pub version: u32,
    /// The numeric columns, at most [`NUMBERS_MAX`].
    pub numbers: &'static [Column],
    /// The byte columns, at most [`TEXTS_MAX`]; they come after the numeric columns.
    pub texts: &'static [Column],
    /// Permissions of a new file, before the umask.
    pub mode: u32,
}

/// A type of numeric values in rows.
pub trait Number: Copy {
    /// The type of the column.
    const KIND: Kind;

    /// Converts to the stored value.
    fn to_cell(self) -> i64;

    /// Converts from the stored value.
    ///
    /// # Errors
    /// Returns a description if the value is invalid.
    fn from_cell(cell: i64) -> std::result::Result<Self, &'static str>;
}

macro_rules! number {
    ($type:ty: $kind:ident) => {
        impl Number for $type {
            const KIND: Kind = Kind::$kind;

            fn to_cell(self) -> i64 {
                self as i64
            }

            fn from_cell(cell: i64) -> std::result::Result<Self, &'static str> {
                Ok(cell as Self)
            }
        }
    };
}

number!(u32: U32);
number!(u64: U64);
number!(i64: I64);

/// Defines a struct and implements [`Row`] for it. `$fit` checks and completes each row that is
/// read.
macro_rules! row {
    (
        $(#[$about:meta])*
        $row:ident: $name:literal $version:literal, mode $mode:literal, $fit:path;
        numbers {
            $($(#[$of:meta])* $number:ident: $type:ty, $rising:literal, $since:literal;)*
        }
        texts { $($(#[$of_text:meta])* $text:ident, $text_since:literal;)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $row {
            $($(#[$of])* pub $number: $type,)*
            $($(#[$of_text])* pub $text: $crate::table::Text,)*
        }

        impl $crate::table::Row for $row {
            const LAYOUT: &'static $crate::table::Layout = &$crate::table::Layout {
                name: $name,
                version: $version,
                numbers: &[$($crate::table::Column {
                    name: stringify!($number),
                    kind: <$type as $crate::table::Number>::KIND,
                    rising: $rising,
                    since: $since,
                }),*],
                texts: &[$($crate::table::Column {
                    name: stringify!($text),
                    kind: $crate::table::Kind::Bytes,
                    rising: false,
                    since: $text_since,
                }),*],
                mode: $mode,
            };

            fn to_cells(&self) -> ($crate::table::Numbers, $crate::table::Texts) {
                let mut numbers = $crate::table::Numbers::default();
                let cells = [$($crate::table::Number::to_cell(self.$number)),*];
                numbers[..cells.len()].copy_from_slice(&cells);
                let mut texts = $crate::table::Texts::default();
                let cells = [$(self.$text.clone()),*];
                texts.iter_mut().zip(cells).for_each(|(text, cell)| *text = cell);
                (numbers, texts)
            }

            fn text_bytes(&self) -> usize {
                0 $(+ self.$text.bytes().len())*
            }

            fn from_cells(
                numbers: &$crate::table::Numbers,
                texts: $crate::table::Texts,
            ) -> Result<Self, &'static str> {
                let (mut numbers, mut texts) = (numbers.iter(), texts.into_iter());
                let mut number = || numbers.next().copied().unwrap_or_default();
                $fit(Self {
                    $($number: $crate::table::Number::from_cell(number())?,)*
                    $($text: texts.next().unwrap_or_default(),)*
                })
            }
        }
    };
}
pub(crate) use row;

/// A row of one of the formats.
pub trait Row: Clone + Send + 'static {
    /// The layout of the files in this format.
    const LAYOUT: &'static Layout;

    /// Converts to cells.
    fn to_cells(&self) -> (Numbers, Texts);

    /// Returns the total size of the row's texts in bytes.
    fn text_bytes(&self) -> usize;

    /// Makes a row from cells.
    ///
    /// # Errors
    /// Returns a description if the row is invalid.
    fn from_cells(numbers: &Numbers, texts: Texts) -> std::result::Result<Self, &'static str>;
}

/// The bytes of a cell. They share the memory of the Parquet page that they were read from.
#[derive(Clone, Default)]
pub struct Text(Option<ByteArray>);

impl Text {
    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], ByteArray::data)
    }

    /// Whether the text is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    fn into_array(self) -> ByteArray {
        self.0.unwrap_or_else(|| ByteArray::from(Vec::new()))
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { Self(None) } else { Self(Some(ByteArray::from(bytes))) }
    }
}

impl std::fmt::Debug for Text {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "\"{}\"", self.bytes().escape_ascii())
    }
}

/// Returns the parent directory of a path.
#[must_use]
pub fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Rows stored as columns.
struct Batch {
    rows: usize,
    numbers: Vec<Vec<i64>>,
    texts: Vec<Vec<ByteArray>>,
    /// Total size of all texts in bytes.
    text_bytes: usize,
}

impl Batch {
    fn new(layout: &Layout) -> Self {
        let numbers = vec![Vec::new(); layout.numbers.len()];
        let texts = vec![Vec::new(); layout.texts.len()];
        Self { rows: 0, numbers, texts, text_bytes: 0 }
    }

    fn push<R: Row>(&mut self, row: &R) {
        let (numbers, texts) = row.to_cells();
        for (column, number) in self.numbers.iter_mut().zip(numbers) {
            column.push(number);
        }
        for (column, text) in self.texts.iter_mut().zip(texts) {
            self.text_bytes += text.bytes().len();
            column.push(text.into_array());
        }
        self.rows += 1;
    }

    fn clear(&mut self) {
        self.numbers.iter_mut().for_each(Vec::clear);
        self.texts.iter_mut().for_each(Vec::clear);
        (self.rows, self.text_bytes) = (0, 0);
    }
}
