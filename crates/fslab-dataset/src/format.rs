//! Column types and their representation in Parquet, as described in `docs/formats/dataset.md`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::errors::Result as ParquetResult;
use parquet::schema::types::{ColumnPath, Type};

/// Maximum number of rows in a row group.
pub(crate) const GROUP_ROWS: usize = 1 << 16;

/// Size of the texts and lists of a row group in bytes. At this size, the row group ends early.
pub(crate) const GROUP_LONG_BYTES: usize = 64 << 20;

/// Maximum size of a text in bytes, and maximum number of values of a list.
pub(crate) const CELL_MAX: usize = 16 << 20;

/// The columns of one kind of data set.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The kind, one of [`crate::KINDS`].
    pub kind: &'static str,
    /// The version of the columns.
    pub version: u32,
    /// How rows are assigned to parts.
    pub partition: Partition,
    /// The columns.
    pub columns: Cow<'static, [Column]>,
}

/// How rows are assigned to parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// [`part_of`] computes the part from the inode number.
    Inode,
    /// Each part contains consecutive rows.
    Order,
}

impl Partition {
    /// Returns the name in manifests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inode => "inode",
            Self::Order => "order",
        }
    }
}

/// Returns the part that contains the rows of an inode.
///
/// The inode number is hashed by the finaliser of SplitMix64; the part is the hash modulo `parts`.
#[must_use]
pub fn part_of(inode: u64, parts: usize) -> usize {
    let mut mixed = (inode ^ inode >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ mixed >> 31) % parts.max(1) as u64) as usize
}

/// Returns the part of a row in a data set of `total` consecutive rows.
#[must_use]
pub fn part_in_order(row: u64, total: u64, parts: usize) -> usize {
    let part = u128::from(row) * parts as u128 / u128::from(total.max(1));
    (part as usize).min(parts.saturating_sub(1))
}

/// Makes the map of facts for a manifest.
#[must_use]
pub fn facts_of(facts: &[(&str, String)]) -> BTreeMap<String, String> {
    facts.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name.
    pub name: Cow<'static, str>,
    /// The type of the values.
    pub kind: Kind,
    /// Whether values can be null.
    pub nullable: bool,
    /// The encoding of the values.
    pub encoding: Encoding,
}

impl Column {
    /// Makes a column without nulls, with a dictionary.
    #[must_use]
    pub const fn new(name: &'static str, kind: Kind) -> Self {
        let (name, encoding) = (Cow::Borrowed(name), Encoding::Dictionary);
        Self { name, kind, nullable: false, encoding }
    }

    /// Allows nulls.
    #[must_use]
    pub const fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// Sets the encoding.
    #[must_use]
    pub const fn encoded(mut self, encoding: Encoding) -> Self {
        self.encoding = encoding;
        self
    }
}

/// How the values of a column are encoded before they are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A dictionary, for values that repeat.
    Dictionary,
    /// Differences, for numbers that rise or rarely repeat.
    Delta,
    /// The values themselves, without an encoding.
    Plain,
}

/// The type of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 64 bits. The cell contains the same bits as a signed number.
    U64,
    /// Nanoseconds since 1970, UTC.
    Time,
    /// True or false.
    Bool,
    /// UTF-8 text.
    Text,
    /// Bytes.
    Bytes,
    /// A list of structs of numbers.
    List(&'static [Field]),
}

impl Kind {
    /// Returns the name of the type, as users see it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::I32 => "integer of 32 bits",
            Self::I64 => "integer",
            Self::U64 => "unsigned integer",
            Self::Time => "time",
            Self::Bool => "boolean",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::List(_) => "list",
        }
    }
}

/// A member of the structs in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name.
    pub name: &'static str,
    /// The type: [`Kind::I64`] or [`Kind::Time`].
    pub kind: Kind,
    /// Whether values can be null.
    pub nullable: bool,
}

/// A value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// No value.
    Null,
    /// A number or a time.
    Number(i64),
    /// True or false.
    Bool(bool),
    /// Text or bytes.
    Bytes(&'a [u8]),
    /// The structs of a list, one after the other; each has as many values as it has fields.
    List(&'a [Option<i64>]),
}

impl<'a> Cell<'a> {
    /// Makes a cell from an optional number; `None` becomes [`Cell::Null`].
    #[must_use]
    pub fn number(number: Option<i64>) -> Self {
        number.map_or(Self::Null, Self::Number)
    }

    /// Makes a cell from optional bytes; `None` becomes [`Cell::Null`].
    #[must_use]
    pub fn bytes(bytes: Option<&'a [u8]>) -> Self {
        bytes.map_or(Self::Null, Self::Bytes)
    }

    /// Returns the number or time; `None` for every other cell.
    #[must_use]
    pub fn to_number(self) -> Option<i64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    /// Returns the text or bytes; `None` for every other cell.
    #[must_use]
    pub fn to_bytes(self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

/// A Parquet column. A list is stored as one Parquet column for each field of its structs, and any
/// other column as one.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub kind: Kind,
    /// Definition level of a value that is not null.
    pub defined: i16,
    /// Whether it belongs to a list.
    pub repeated: bool,
    pub path: ColumnPath,
}

impl Column {
    /// Returns the Parquet columns that store this column, in order.
    pub(crate) fn leaves(&self) -> Vec<Leaf> {
        let Kind::List(fields) = self.kind else {
            let path = ColumnPath::from(self.name.as_ref());
            let defined = i16::from(self.nullable);
            return vec![Leaf { kind: self.kind, defined, repeated: false, path }];
        };
        let leaf = |field: &Field| {
            let path = [&*self.name, "list", "element", field.name].map(str::to_owned);
            let (kind, defined) = (field.kind, 2 + i16::from(field.nullable));
            Leaf { kind, defined, repeated: true, path: ColumnPath::new(path.to_vec()) }
        };
        fields.iter().map(leaf).collect()
    }

    fn to_parquet(&self) -> ParquetResult<Type> {
        let Kind::List(fields) = self.kind else {
            return primitive(&self.name, self.kind, self.nullable);
        };
        let mut members = Vec::new();
        for field in fields {
            members.push(Arc::new(primitive(field.name, field.kind, field.nullable)?));
        }
        let element = Type::group_type_builder("element")
            .with_repetition(Repetition::REQUIRED)
            .with_fields(members)
            .build()?;
        let list = Type::group_type_builder("list")
            .with_repetition(Repetition::REPEATED)
            .with_fields(vec![Arc::new(element)])
            .build()?;
        // Every list is nullable in Parquet, so definition levels mean the same in all lists.
        Type::group_type_builder(&self.name)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(Some(LogicalType::List))
            .with_fields(vec![Arc::new(list)])
            .build()
    }
}

impl Schema {
    /// Returns the schema in Parquet.
    pub(crate) fn to_parquet(&self) -> ParquetResult<Type> {
        let mut fields = Vec::new();
        for column in self.columns.iter() {
            fields.push(Arc::new(column.to_parquet()?));
        }
        Type::group_type_builder(self.kind).with_fields(fields).build()
    }
}

fn primitive(name: &str, kind: Kind, nullable: bool) -> ParquetResult<Type> {
    let (physical, logical) = match kind {
        Kind::I32 => (Physical::INT32, None),
        Kind::I64 | Kind::List(_) => (Physical::INT64, None),
        Kind::U64 => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS))),
        Kind::Bool => (Physical::BOOLEAN, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Bytes => (Physical::BYTE_ARRAY, None),
    };
    let repetition = if nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    Type::primitive_type_builder(name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
}
