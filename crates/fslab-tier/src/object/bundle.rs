//! Bundles: containers of several objects, and a list of them that stands before and behind them.
//!
//! Each member is an object like any other, found by its place alone. The list is for whoever has
//! the archive alone: it lies there twice, the same bytes both times, so that no single damaged
//! place hides a member that is whole.

use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use super::reader::{ObjectReader, Source, parse_head, read_tail};
use super::writer::{Heading, ObjectWriter};
use crate::archive::{Archive, ContainerKind};
use crate::id::Id;
use crate::stored::attributes::Attributes;
use crate::stored::bytes::Corrupt;
use crate::stored::format::{
    BLOCK_BYTES, BUNDLE_BYTES_MAX, EntryRecord, HeadRecord, KIND_BUNDLE, MEMBERS_MAX, MemberRecord,
    TailRecord,
};
use crate::stored::residency::Location;

/// Trees are alone in their containers.
const KIND: ContainerKind = ContainerKind::Files;

/// Where the objects of a container lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The objects, in the order in which they lie there.
    pub members: Vec<Location>,
    /// What the list says that they are, in the same order; none where there is no list.
    pub objects: Vec<Id>,
    /// Bytes of the list, which stands at both ends of a bundle; 0 for a container without one.
    pub list_bytes: u64,
}

impl Contents {
    /// Bytes of the container when it is whole, whatever a copy of it has.
    #[must_use]
    pub fn length(&self) -> u64 {
        let end = self.members.last().map(|last| last.offset + last.length);
        end.unwrap_or(self.list_bytes) + self.list_bytes
    }
}

/// Bytes of a bundle's list.
#[must_use]
pub fn list_bytes(members: usize) -> u64 {
    let mut attributes = Vec::new();
    no_file().encode(&mut attributes);
    length_of(attributes.len() as u64, (members * size_of::<MemberRecord>()) as u64)
}

/// Bytes of an object of one raw block.
fn length_of(attributes: u64, contents: u64) -> u64 {
    let around = size_of::<HeadRecord>() + size_of::<EntryRecord>() + 32 + size_of::<TailRecord>();
    around as u64 + attributes + contents
}

/// A list is about no file.
fn no_file() -> Attributes {
    Attributes { mode: 0o100_000, ..Attributes::default() }
}

/// Puts objects into a bundle: list, objects, list. `heading` is the list's, but for its size.
///
/// # Errors
/// None that memory gives.
pub fn enclose(
    heading: &Heading,
    members: &[(Id, Location)],
    objects: &[u8],
) -> crate::Result<Vec<u8>> {
    let mut contents = Vec::with_capacity(size_of_val(members));
    for (object, location) in members {
        let (offset, length) = (location.offset.into(), location.length.into());
        contents.extend(MemberRecord { object: object.0, offset, length }.as_bytes());
    }
    let heading = Heading { kind: KIND_BUNDLE, size: contents.len() as u64, ..heading.clone() };
    let mut bundle = Vec::new();
    // As it is: who finds its head damaged elsewhere knows its length.
    let mut writer = ObjectWriter::begin(&mut bundle, &heading, &no_file(), 0)?;
    writer.block(&contents)?;
    writer.finish()?;
    let list = bundle.clone();
    bundle.extend(objects);
    bundle.extend(list);
    Ok(bundle)
}

/// Where the objects of a container lie, by the list of a bundle or from the last to the first.
///
/// # Errors
/// Errors of the archive, what is wrong with the container.
pub fn contents_of(
    archive: &Arc<dyn Archive>,
    container: Id,
    length: u64,
) -> crate::Result<Contents> {
    let source = Source::of(archive, (KIND, container));
    match last_list(&source, length) {
        Ok(Some(list)) => match read_list(&list, container, length)? {
            contents if contents.length() == length => Ok(contents),
            _ => Err(no_sense(&list)),
        },
        Ok(None) => one_behind_the_other(&source, length),
        Err(problem) => match first_list(&source) {
            // What is cut off, or has something behind it, has its members where they were.
            Some(list) => read_list(&list, container, length),
            None => Err(problem),
        },
    }
}

/// The object at the end, if it is a list.
fn last_list(source: &Source<'_>, length: u64) -> crate::Result<Option<ObjectReader>> {
    let location = before(source, length)?;
    // Whatever else stands there need not be whole: its place is known.
    let head = source.read(location.offset, size_of::<HeadRecord>())?;
    match parse_head(&head) {
        Ok((heading, _)) if heading.kind != KIND_BUNDLE => Ok(None),
        Err(_) if location.offset == 0 => Ok(None),
        _ => {
            let list = ObjectReader::open_any(source.archive, KIND, location)?;
            // A list is of use only with its bytes.
            list.block(0)?;
            Ok(Some(list))
        }
    }
}

/// The object at the beginning, if it is a whole list.
fn first_list(source: &Source<'_>) -> Option<ObjectReader> {
    let head = source.read(0, size_of::<HeadRecord>()).ok()?;
    let (heading, attributes) = parse_head(&head).ok()?;
    if heading.kind != KIND_BUNDLE || heading.size > BLOCK_BYTES {
        return None;
    }
    let length = length_of(attributes.into(), heading.size);
    let location = Location { container: source.container.1, offset: 0, length };
    let list = ObjectReader::open_any(source.archive, KIND, location);
    list.ok().filter(|list| list.block(0).is_ok())
}

fn read_list(list: &ObjectReader, container: Id, length: u64) -> crate::Result<Contents> {
    let wrong = || no_sense(list);
    let bytes = list.block(0)?;
    let (records, rest) = bytes.as_chunks::<{ size_of::<MemberRecord>() }>();
    let own = list.version().location.length;
    let has_room = own <= length.min(BUNDLE_BYTES_MAX) / 2;
    if !rest.is_empty() || records.len() > MEMBERS_MAX || !has_room {
        return Err(wrong());
    }
    let mut members = Vec::with_capacity(records.len());
    let mut objects = Vec::with_capacity(records.len());
    let mut end = own;
    for record in records {
        let record = MemberRecord::read_from_bytes(record).or(Err(wrong()))?;
        let (offset, length) = (record.offset.get(), record.length.get());
        if offset != end {
            return Err(wrong());
        }
        let is_in_a_bundle = |end: &u64| *end <= BUNDLE_BYTES_MAX - own;
        end = offset.checked_add(length).filter(is_in_a_bundle).ok_or_else(wrong)?;
        members.push(Location { container, offset, length });
        objects.push(Id(record.object));
    }
    Ok(Contents { members, objects, list_bytes: own })
}

fn no_sense(list: &ObjectReader) -> crate::Error {
    list.damaged(Corrupt("the list of a bundle makes no sense"))
}

fn one_behind_the_other(source: &Source<'_>, length: u64) -> crate::Result<Contents> {
    let (mut members, mut end) = (Vec::new(), length);
    while end > 0 {
        // The last list of a bundle may be among them.
        if members.len() > MEMBERS_MAX {
            return Err(source.damaged(Corrupt("it has more objects than a container may have")));
        }
        let location = before(source, end)?;
        end = location.offset;
        members.push(location);
    }
    members.reverse();
    Ok(Contents { members, objects: Vec::new(), list_bytes: 0 })
}

/// The object that ends at an offset.
fn before(source: &Source<'_>, end: u64) -> crate::Result<Location> {
    let length = read_tail(source, end)?.length.get();
    let least = size_of::<HeadRecord>() as u64;
    let start = end.checked_sub(length).filter(|_| length > least);
    let offset = start.ok_or_else(|| source.damaged(Corrupt("an object begins nowhere")))?;
    Ok(Location { container: source.container.1, offset, length })
}
