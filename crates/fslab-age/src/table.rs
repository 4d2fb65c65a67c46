//! Rows as Parquet files: what the formats of this crate share.
//!
//! A format is a [`Row`]: a few columns of numbers and one of bytes, none of them ever null. Files
//! are written and read by row groups, so that memory does not grow with their length, and appear
//! under their name only when they are whole.

mod reader;
mod sort;
mod writer;

use parquet::data_type::ByteArray;

pub use reader::Reader;
pub(crate) use sort::Sorter;
pub use writer::Writer;

/// Rows of a row group.
pub(crate) const GROUP_ROWS: usize = 1 << 16;

/// No format has more columns of numbers.
pub const NUMBERS_MAX: usize = 16;

/// The numbers of a row, in the order of the columns; those behind the last column are 0.
pub type Numbers = [i64; NUMBERS_MAX];

/// A column of numbers.
#[derive(Clone, Copy, Debug)]
pub struct NumberColumn {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: NumberKind,
    /// Whether its values rise or hardly ever come twice: differences are kept, no dictionary.
    pub rising: bool,
}

/// Type of a column of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberKind {
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
}

/// What a file of one format is like.
#[derive(Debug)]
pub struct Layout {
    /// The format's name, which begins the keys of its footer: `fslab.NAME.version`.
    pub name: &'static str,
    /// The version that is written. Older ones are read.
    pub version: u32,
    /// The columns of numbers, at most [`NUMBERS_MAX`].
    pub numbers: &'static [NumberColumn],
    /// The name of the column of bytes, which is the last.
    pub bytes: &'static str,
    /// Permissions of a new file, before the umask.
    pub mode: u32,
}

/// A row of one of the formats.
pub trait Row: Clone + Send + 'static {
    /// What its files are like.
    const LAYOUT: &'static Layout;

    /// What it holds.
    fn to_cells(&self) -> (Numbers, &Text);

    /// The row of these cells; says what is wrong where they can't be one.
    ///
    /// # Errors
    /// What can't be so.
    fn from_cells(numbers: &Numbers, text: Text) -> std::result::Result<Self, &'static str>;
}

/// Bytes of a row, shared with the page of the file that they were read from.
#[derive(Clone, PartialEq)]
pub struct Text(ByteArray);

impl Text {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.data()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Default for Text {
    fn default() -> Self {
        Self(ByteArray::from(Vec::new()))
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        Self(ByteArray::from(bytes))
    }
}

impl std::fmt::Debug for Text {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "\"{}\"", self.bytes().escape_ascii())
    }
}

/// Rows by columns.
struct Batch {
    numbers: Vec<Vec<i64>>,
    bytes: Vec<ByteArray>,
}

impl Batch {
    fn new(layout: &Layout) -> Self {
        Self { numbers: vec![Vec::new(); layout.numbers.len()], bytes: Vec::new() }
    }

    fn push<R: Row>(&mut self, row: &R) {
        let (numbers, text) = row.to_cells();
        for (column, number) in self.numbers.iter_mut().zip(numbers) {
            column.push(number);
        }
        self.bytes.push(text.0.clone());
    }

    fn rows(&self) -> usize {
        self.bytes.len()
    }

    fn clear(&mut self) {
        self.numbers.iter_mut().for_each(Vec::clear);
        self.bytes.clear();
    }
}
