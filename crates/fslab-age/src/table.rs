//! Rows as Parquet files: what the formats of this crate share.
//!
//! A format is a [`Row`]: a few columns of numbers and of bytes, none of them ever null. Files
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

/// A row group ends early once its texts have so many bytes.
const GROUP_TEXT_BYTES: usize = 64 << 20;

/// No format has more columns of numbers.
pub const NUMBERS_MAX: usize = 16;

/// The numbers of a row, in the order of the columns; those behind the last column are 0.
pub type Numbers = [i64; NUMBERS_MAX];

/// No format has more columns of bytes.
pub const TEXTS_MAX: usize = 2;

/// The bytes of a row, in the order of the columns; those behind the last column are empty.
pub type Texts = [Text; TEXTS_MAX];

/// A column of numbers.
#[derive(Clone, Copy, Debug)]
pub struct NumberColumn {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: NumberKind,
    /// Whether its values rise or hardly ever come twice: differences are kept, no dictionary.
    pub rising: bool,
    /// The version of the format that brought it; files of older ones lack it, which stands for 0.
    pub since: u32,
}

/// A column of bytes.
#[derive(Clone, Copy, Debug)]
pub struct TextColumn {
    /// Its name.
    pub name: &'static str,
    /// The version of the format that brought it; files of older ones lack it, which stands for
    /// no bytes.
    pub since: u32,
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
    /// The columns of bytes, which come last, at most [`TEXTS_MAX`].
    pub texts: &'static [TextColumn],
    /// Permissions of a new file, before the umask.
    pub mode: u32,
}

/// A row of one of the formats.
pub trait Row: Clone + Send + 'static {
    /// What its files are like.
    const LAYOUT: &'static Layout;

    /// What it holds.
    fn to_cells(&self) -> (Numbers, Texts);

    /// Bytes of its texts.
    fn text_bytes(&self) -> usize;

    /// The row of these cells; says what is wrong where they can't be one.
    ///
    /// # Errors
    /// What can't be so.
    fn from_cells(numbers: &Numbers, texts: Texts) -> std::result::Result<Self, &'static str>;
}

/// Bytes of a row, shared with the page of the file that they were read from.
#[derive(Clone)]
pub struct Text(Option<ByteArray>);

impl Text {
    /// No bytes.
    pub const EMPTY: Self = Self(None);

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], ByteArray::data)
    }

    /// Whether there are none.
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

impl Default for Text {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { Self::EMPTY } else { Self(Some(ByteArray::from(bytes))) }
    }
}

impl std::fmt::Debug for Text {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "\"{}\"", self.bytes().escape_ascii())
    }
}

/// Rows by columns.
struct Batch {
    rows: usize,
    numbers: Vec<Vec<i64>>,
    texts: Vec<Vec<ByteArray>>,
    /// Bytes of all texts.
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
