//! Bundles: containers of several objects, with the same list of the objects at both ends.
//!
//! Each member is an ordinary object, and its location is enough to read it. The list is for
//! readers who have only the archive. It is stored twice, so that damage at one offset leaves an
//! intact list.

use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use super::reader::{ObjectReader, Source, parse_head, read_tail};
use super::writer::{BlockEncoder, Heading, ObjectWriter};
use crate::archive::{Archive, ContainerKind};
use crate::id::Id;
use crate::stored::attributes::Attributes;
use crate::stored::bytes::Corrupt;
use crate::stored::format::{
    BLOCK_BYTES, BUNDLE_BYTES_MAX, EntryRecord, HeadRecord, KIND_BUNDLE, MEMBERS_MAX, MemberRecord,
    TailRecord,
};
use crate::stored::residency::Location;

/// Bundles contain only files, because an archived tree has a container of its own.
const KIND: ContainerKind = ContainerKind::Files;

/// The locations of the objects in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The objects, in the order of their offsets.
    pub members: Vec<Location>,
    /// The identities of the objects, in the same order; empty if the container has no list.
    pub objects: Vec<Id>,
    /// Length of the list at each end of a bundle, in bytes; 0 for a container without a list.
    pub list_bytes: u64,
}

impl Contents {
    /// Returns the length of the complete container in bytes, even if a copy of it is truncated.
    #[must_use]
    pub fn length(&self) -> u64 {
        let end = self.members.last().map(|last| last.offset + last.length);
        end.unwrap_or(self.list_bytes) + self.list_bytes
    }
}

/// Returns the length of a bundle's list in bytes.
#[must_use]
pub fn list_bytes(members: usize) -> u64 {
    let mut attributes = Vec::new();
    no_file().encode(&mut attributes);
    length_of(attributes.len() as u64, (members * size_of::<MemberRecord>()) as u64)
}

/// Returns the length of an object with one uncompressed block, in bytes.
fn length_of(attributes: u64, contents: u64) -> u64 {
    let around = size_of::<HeadRecord>() + size_of::<EntryRecord>() + 32 + size_of::<TailRecord>();
    around as u64 + attributes + contents
}

/// Returns placeholder attributes for the list of a bundle, which is an object but not a file.
fn no_file() -> Attributes {
    Attributes { mode: 0o100_000, ..Attributes::default() }
}

/// Makes a bundle of objects: list, objects, list. `heading` is the heading of the list, except for
/// its kind and size.
///
/// # Errors
/// None in practice, because the bundle is written to memory.
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
    // The list is not compressed. So a reader that finds the last list damaged can compute the
    // length of the first one.
    let mut raw = BlockEncoder::raw();
    let mut writer = ObjectWriter::begin(&mut bundle, &heading, &no_file(), &mut raw)?;
    writer.block(&contents)?;
    writer.finish()?;
    let list = bundle.clone();
    bundle.extend(objects);
    bundle.extend(list);
    Ok(bundle)
}

/// Returns the locations of the objects in a container, from the list of a bundle, or by walking
/// from the last object to the first.
///
/// # Errors
/// Errors of the archive, or damage to the container.
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
            // In a container that was truncated or extended, the members are still at their
            // offsets.
            Some(list) => read_list(&list, container, length),
            None => Err(problem),
        },
    }
}

/// Returns the object at the end, if it is a list.
fn last_list(source: &Source<'_>, length: u64) -> crate::Result<Option<ObjectReader>> {
    let location = before(source, length)?;
    // A last object that is not a list need not be intact, because only its location is used.
    let head = source.read(location.offset, size_of::<HeadRecord>())?;
    match parse_head(&head) {
        Ok((heading, _)) if heading.kind != KIND_BUNDLE => Ok(None),
        Err(_) if location.offset == 0 => Ok(None),
        _ => {
            let list = ObjectReader::open_any(source.archive, KIND, location)?;
            // A list is only useful if its block is readable.
            list.block(0)?;
            Ok(Some(list))
        }
    }
}

/// Returns the object at the beginning, if it is an intact list.
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
    list.damaged(Corrupt("a bundle's list of members is inconsistent"))
}

fn one_behind_the_other(source: &Source<'_>, length: u64) -> crate::Result<Contents> {
    let (mut members, mut end) = (Vec::new(), length);
    while end > 0 {
        // One object more than `MEMBERS_MAX` is accepted, because it may be the last list of a
        // bundle.
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

/// Returns the location of the object that ends at an offset.
fn before(source: &Source<'_>, end: u64) -> crate::Result<Location> {
    let length = read_tail(source, end)?.length.get();
    let least = size_of::<HeadRecord>() as u64;
    let start = end.checked_sub(length).filter(|_| length > least);
    let offset = start
        .ok_or_else(|| source.damaged(Corrupt("the recorded length of an object is invalid")))?;
    Ok(Location { container: source.container.1, offset, length })
}
