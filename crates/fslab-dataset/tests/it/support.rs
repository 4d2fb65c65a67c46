//! Code shared by the tests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use fslab_dataset::{
    Cell, Column, Encoding, Error, Field, Kind, Manifest, PartReader, Partition, Schema, Writer,
};
use rand::{Rng, RngExt};

/// A schema with columns of every type, with and without nulls.
pub const SCHEMA: Schema = Schema {
    kind: "samples",
    version: 1,
    partition: Partition::Order,
    columns: Cow::Borrowed(COLUMNS),
};

pub const COLUMNS: &[Column] = &[
    Column::new("narrow", Kind::I32),
    Column::new("narrow_null", Kind::I32).nullable(),
    Column::new("wide", Kind::I64).encoded(Encoding::Delta),
    Column::new("wide_null", Kind::I64).nullable(),
    Column::new("unsigned", Kind::U64).nullable(),
    Column::new("time", Kind::Time).encoded(Encoding::Delta).nullable(),
    Column::new("flag", Kind::Bool),
    Column::new("flag_null", Kind::Bool).nullable(),
    Column::new("text", Kind::Text),
    Column::new("text_null", Kind::Text).encoded(Encoding::Plain).nullable(),
    Column::new("bytes", Kind::Bytes).encoded(Encoding::Plain),
    Column::new("bytes_null", Kind::Bytes).nullable(),
    Column::new("list", Kind::List(MEMBERS)).nullable(),
];

const MEMBERS: &[Field] = &[
    Field { name: "number", kind: Kind::I64, nullable: false },
    Field { name: "time", kind: Kind::Time, nullable: true },
];

/// A cell value that owns its memory.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Number(i64),
    Bool(bool),
    Bytes(Vec<u8>),
    List(Vec<Option<i64>>),
}

impl Value {
    pub fn cell(&self) -> Cell<'_> {
        match self {
            Self::Null => Cell::Null,
            Self::Number(number) => Cell::Number(*number),
            Self::Bool(value) => Cell::Bool(*value),
            Self::Bytes(bytes) => Cell::Bytes(bytes),
            Self::List(values) => Cell::List(values),
        }
    }

    fn of(cell: Cell<'_>) -> Self {
        match cell {
            Cell::Null => Self::Null,
            Cell::Number(number) => Self::Number(number),
            Cell::Bool(value) => Self::Bool(value),
            Cell::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            Cell::List(values) => Self::List(values.to_vec()),
        }
    }
}

pub type Row = Vec<Value>;

/// Makes a row of random values, many of which are extreme.
pub fn random_row(random: &mut impl Rng) -> Row {
    COLUMNS.iter().map(|column| random_value(column, random)).collect()
}

fn random_value(column: &Column, random: &mut impl Rng) -> Value {
    if column.nullable && random.random_range(0..3) == 0 {
        return Value::Null;
    }
    let wide = |random: &mut dyn Rng| match random.random_range(0..4) {
        0 => i64::MIN,
        1 => i64::MAX,
        2 => 0,
        _ => random.random(),
    };
    match column.kind {
        Kind::I32 => Value::Number([i32::MIN, i32::MAX, 0, 7][random.random_range(0..4)].into()),
        Kind::I64 | Kind::U64 | Kind::Time => Value::Number(wide(random)),
        Kind::Bool => Value::Bool(random.random()),
        Kind::Text => {
            let texts = ["", "file", "\u{1f600}\n", "a long text, a long text, a long text"];
            Value::Bytes(texts[random.random_range(0..4)].into())
        }
        Kind::Bytes => {
            let length = random.random_range(0..40);
            Value::Bytes((0..length).map(|_| random.random()).collect())
        }
        Kind::List(_) => {
            let length = random.random_range(0..5);
            let one = |_| [Some(wide(random)), random.random::<bool>().then_some(i64::MIN)];
            Value::List((0..length).flat_map(one).collect())
        }
    }
}

/// Writes rows to parts in turn.
pub fn write(directory: &Path, rows: &[Row], parts: usize, memory: usize) -> Manifest {
    let facts = BTreeMap::from([("seed".to_owned(), "1".to_owned())]);
    let writer = Writer::create(directory, &SCHEMA, parts, facts).unwrap();
    let mut writer = writer.with_memory(memory);
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<_> = row.iter().map(Value::cell).collect();
        writer.push(number % parts, &cells).unwrap();
    }
    writer.finish().unwrap()
}

/// Reads the rows of a part.
pub fn read_part(directory: &Path, manifest: &Manifest, part: usize) -> Result<Vec<Row>, Error> {
    let mut reader = PartReader::open(directory, manifest, part, &SCHEMA)?;
    let mut rows = Vec::new();
    while let Some(group) = reader.next_group()? {
        for row in 0..group.rows() {
            let cell = |column| Value::of(group.cell(row, column));
            rows.push((0..COLUMNS.len()).map(cell).collect());
        }
    }
    Ok(rows)
}
