//! Snapshots as data sets, for SQL engines and clusters; `docs/formats/dataset.md` lists the
//! columns.
//!
//! A file's part depends only on its inode number, so it stays in its part when it is renamed or
//! moved. In a part, entries are in snapshot order. So two data sets with the same number of parts
//! can be compared part by part.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fslab_dataset::{
    Cell, Column, Encoding, Field, Group, Kind, Manifest, PartReader, Partition, Schema, Writer,
    facts_of, part_of, readable,
};
use fslab_vfs::Extent;

use super::{Entry, EntryKind, ExtentList, SnapshotReader, Taken};
use crate::error::{Error, Result};

/// The columns of data sets of snapshots.
pub const SCHEMA: Schema = Schema {
    kind: "snapshot",
    version: 1,
    partition: Partition::Inode,
    columns: Cow::Borrowed(COLUMNS),
};

const COLUMNS: &[Column] = &[
    Column::new("inode", Kind::I64).encoded(Encoding::Delta),
    Column::new("directory", Kind::I64),
    Column::new("kind", Kind::Text),
    Column::new("size", Kind::I64).encoded(Encoding::Delta),
    Column::new("allocated", Kind::I64).encoded(Encoding::Delta),
    Column::new("modified", Kind::Time).encoded(Encoding::Delta),
    Column::new("changed", Kind::Time).encoded(Encoding::Delta),
    Column::new("born", Kind::Time).encoded(Encoding::Delta).nullable(),
    Column::new("mode", Kind::I32),
    Column::new("uid", Kind::I64),
    Column::new("gid", Kind::I64),
    Column::new("links", Kind::I64),
    Column::new("blocks", Kind::I64).nullable(),
    Column::new("breaks", Kind::I64).nullable(),
    Column::new("generation", Kind::I64).nullable(),
    Column::new("name_bytes", Kind::Bytes).encoded(Encoding::Plain),
    Column::new("name", Kind::Text).encoded(Encoding::Plain),
    Column::new("extents", Kind::List(EXTENT)).encoded(Encoding::Delta),
];

/// The members of an extent.
const EXTENT: &[Field] = &[
    Field { name: "logical", kind: Kind::I64, nullable: false },
    Field { name: "physical", kind: Kind::I64, nullable: false },
    Field { name: "length", kind: Kind::I64, nullable: false },
    Field { name: "flags", kind: Kind::I64, nullable: false },
];

/// The kinds of entries with their names.
const KINDS: [(EntryKind, &str); 4] = [
    (EntryKind::Directory, "directory"),
    (EntryKind::File, "file"),
    (EntryKind::Symlink, "symlink"),
    (EntryKind::Other, "other"),
];

/// Writes a snapshot as a data set.
///
/// # Errors
/// Fails if the data set exists, if a number of the snapshot does not fit in 63 bits, and on I/O
/// errors. After a failure, no files are left behind.
pub fn write_dataset(snapshot: &Path, directory: &Path, parts: usize) -> Result<Manifest> {
    let entries = SnapshotReader::open(snapshot)?;
    let facts = facts(entries.taken());
    let mut writer = Writer::create(directory, &SCHEMA, parts, facts)?;
    for (row, entry) in entries.enumerate() {
        let entry = entry?;
        let cells = Numbers::of(&entry).map_err(|what| Error::Row {
            path: snapshot.to_owned(),
            row: row as u64,
            what,
        })?;
        cells.push(&entry, part_of(entry.inode, parts), &mut writer)?;
    }
    Ok(writer.finish()?)
}

fn facts(taken: &Taken) -> BTreeMap<String, String> {
    let names = if taken.anonymised { "anonymised" } else { "plain" };
    facts_of(&[
        ("taken_ns", taken.taken_ns.to_string()),
        ("source", taken.source.clone()),
        ("names", names.to_owned()),
        ("volume_bytes", taken.volume_bytes.to_string()),
        ("used_bytes", taken.used_bytes.to_string()),
    ])
}

/// The numbers of an entry that need a conversion.
struct Numbers {
    inode: i64,
    directory: i64,
    size: i64,
    stored: i64,
    blocks: i64,
    breaks: i64,
    extents: Vec<Option<i64>>,
}

impl Numbers {
    fn of(entry: &Entry) -> std::result::Result<Self, &'static str> {
        let what = "a number does not fit in the 63 bits of a data set";
        let fit = |number: u64| i64::try_from(number).ok().ok_or(what);
        let list = ExtentList::parse(&entry.extents).ok_or("its extents are invalid")?;
        let mut extents = Vec::with_capacity(list.extents.len() * EXTENT.len());
        for (extent, flags) in list.extents.iter().zip(&list.flags) {
            let Extent { logical, physical, length } = *extent;
            for number in [logical, physical, length] {
                extents.push(Some(fit(number)?));
            }
            extents.push(Some((*flags).into()));
        }
        Ok(Self {
            inode: fit(entry.inode)?,
            directory: fit(entry.directory)?,
            size: fit(entry.size)?,
            stored: fit(entry.stored)?,
            blocks: fit(entry.blocks)?,
            breaks: fit(entry.breaks)?,
            extents,
        })
    }

    /// Writes the row of an entry. A number that snapshots use for "unknown" becomes null.
    fn push(&self, entry: &Entry, part: usize, writer: &mut Writer) -> Result<()> {
        let known = |number: i64| Cell::number((number != 0).then_some(number));
        let kind =
            KINDS.iter().find(|(kind, _)| *kind == entry.kind).map_or("other", |(_, name)| name);
        let is_examined = self.blocks != 0 || self.breaks != 0;
        let name = readable(entry.name.bytes());
        let row = [
            Cell::Number(self.inode),
            Cell::Number(self.directory),
            Cell::Bytes(kind.as_bytes()),
            Cell::Number(self.size),
            Cell::Number(self.stored),
            Cell::Number(entry.modified_ns),
            Cell::Number(entry.changed_ns),
            known(entry.born_ns),
            Cell::Number(entry.mode.into()),
            Cell::Number(entry.uid.into()),
            Cell::Number(entry.gid.into()),
            Cell::Number(entry.links.into()),
            Cell::number(is_examined.then_some(self.blocks)),
            Cell::number(is_examined.then_some(self.breaks)),
            known(entry.generation.into()),
            Cell::Bytes(entry.name.bytes()),
            Cell::Bytes(name.as_bytes()),
            if entry.extents.is_empty() { Cell::Null } else { Cell::List(&self.extents) },
        ];
        Ok(writer.push(part, &row)?)
    }
}

/// A data set of a snapshot.
pub struct SnapshotDataset {
    directory: PathBuf,
    manifest: Manifest,
    taken: Taken,
}

impl SnapshotDataset {
    /// Opens a data set.
    ///
    /// # Errors
    /// Fails if the directory is not a data set of a snapshot, and on I/O errors.
    pub fn open(directory: &Path) -> Result<Self> {
        let manifest = Manifest::read(directory)?;
        manifest.check_schema(directory, &SCHEMA)?;
        let taken = taken(&manifest).ok_or_else(|| {
            Error::unfit(
                directory,
                "a fact of this data set of a snapshot is missing or invalid; create it again",
            )
        })?;
        Ok(Self { directory: directory.to_owned(), manifest, taken })
    }

    /// Returns the metadata of the snapshot.
    #[must_use]
    pub fn taken(&self) -> &Taken {
        &self.taken
    }

    /// Returns the manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Opens a part.
    ///
    /// # Errors
    /// Fails if the part is damaged or has other columns, and on I/O errors.
    pub fn part(&self, part: usize) -> Result<PartEntries> {
        let reader = PartReader::open(&self.directory, &self.manifest, part, &SCHEMA)?;
        let (group, parts) = (None, self.manifest.parts.len());
        Ok(PartEntries { reader, group, row: 0, number: 0, part, parts, last: None })
    }
}

fn taken(manifest: &Manifest) -> Option<Taken> {
    let fact = |key: &str| manifest.facts.get(key);
    Some(Taken {
        taken_ns: fact("taken_ns")?.parse().ok()?,
        source: fact("source")?.clone(),
        anonymised: match fact("names")?.as_str() {
            "plain" => false,
            "anonymised" => true,
            _ => return None,
        },
        volume_bytes: fact("volume_bytes")?.parse().ok()?,
        used_bytes: fact("used_bytes")?.parse().ok()?,
    })
}

/// The entries of a part, in snapshot order. Ends after the first error.
pub struct PartEntries {
    reader: PartReader,
    group: Option<Group>,
    /// The next row in the row group.
    row: usize,
    /// The number of the next row in the part.
    number: u64,
    part: usize,
    parts: usize,
    last: Option<(bool, u64)>,
}

impl PartEntries {
    fn advance(&mut self) -> Result<Option<Entry>> {
        loop {
            if let Some(group) = self.group.as_ref().filter(|group| self.row < group.rows()) {
                let entry = entry(group, self.row).and_then(|entry| self.check(entry));
                let (path, row) = (self.reader.path(), self.number);
                let entry =
                    entry.map_err(|what| Error::Row { path: path.to_owned(), row, what })?;
                (self.row, self.number) = (self.row + 1, self.number + 1);
                self.last = Some(entry.key());
                return Ok(Some(entry));
            }
            self.row = 0;
            // The memory of the last group is freed before the next one is read.
            self.group = None;
            self.group = self.reader.next_group()?;
            if self.group.is_none() {
                return Ok(None);
            }
        }
    }

    /// Checks that an entry is in the right part and in snapshot order.
    fn check(&self, entry: Entry) -> std::result::Result<Entry, &'static str> {
        if part_of(entry.inode, self.parts) != self.part {
            return Err("its inode number belongs to another part");
        }
        if self.last.is_some_and(|last| last >= entry.key()) {
            return Err("it is out of order");
        }
        Ok(entry)
    }
}

impl Iterator for PartEntries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

/// Makes the entry of a row.
fn entry(group: &Group, row: usize) -> std::result::Result<Entry, &'static str> {
    let mut column = 0;
    let mut next = || {
        column += 1;
        group.cell(row, column - 1)
    };
    let negative = "a number is negative or too large";
    let number = |cell: Cell<'_>| {
        u64::try_from(cell.to_number().unwrap_or_default()).map_err(|_error| negative)
    };
    let narrow = |cell: Cell<'_>| {
        u32::try_from(cell.to_number().unwrap_or_default()).map_err(|_error| negative)
    };
    let time = |cell: Cell<'_>| cell.to_number().unwrap_or_default();
    let entry = Entry {
        inode: number(next())?,
        directory: number(next())?,
        kind: kind_of(next()).ok_or("its kind is unknown")?,
        size: number(next())?,
        stored: number(next())?,
        modified_ns: time(next()),
        changed_ns: time(next()),
        born_ns: time(next()),
        mode: narrow(next())?,
        uid: narrow(next())?,
        gid: narrow(next())?,
        links: narrow(next())?,
        blocks: number(next())?,
        breaks: number(next())?,
        generation: narrow(next())?,
        name: next().to_bytes().unwrap_or_default().to_vec().into(),
        extents: {
            // Skip the column with the readable name, which is only for people and SQL engines.
            next();
            extents_of(next())?.to_text()
        },
    };
    entry.fit()
}

fn kind_of(cell: Cell<'_>) -> Option<EntryKind> {
    let name = cell.to_bytes()?;
    KINDS.iter().find(|(_, known)| known.as_bytes() == name).map(|(kind, _)| *kind)
}

fn extents_of(cell: Cell<'_>) -> std::result::Result<ExtentList, &'static str> {
    let Cell::List(values) = cell else { return Ok(ExtentList::default()) };
    let mut list = ExtentList::default();
    for one in values.chunks_exact(EXTENT.len()) {
        let number = |at: usize| {
            let number = one[at].and_then(|number| u64::try_from(number).ok());
            number.ok_or("a number of its extents is negative")
        };
        let (logical, physical, length) = (number(0)?, number(1)?, number(2)?);
        list.extents.push(Extent { logical, physical, length });
        let flags = u32::try_from(number(3)?);
        list.flags.push(flags.map_err(|_error| "the flags of an extent exceed 32 bits")?);
    }
    Ok(list)
}
