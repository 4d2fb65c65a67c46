//! Reading every copy of every object that a file or the past needs, and mending copies from each
//! other.

use std::collections::HashSet;
use std::sync::Arc;

use fslab_vfs::Request;

use super::Tier;
use super::copies::{failed, verify};
use crate::archive::{Archive, ContainerKind};
use crate::catalogue::{ObjectRow, ObjectState};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::limit::Pace;
use crate::stored::Location;
use crate::stored::bundle::contents_of;
use crate::stored::bytes::Corrupt;
use crate::stored::reader::ObjectReader;

/// What scrubbing found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Copies that were read.
    pub copies: u64,
    /// Copies that were damaged or gone and are whole again.
    pub mended: u64,
    /// Damaged copies, with what is wrong, that no other copy could mend.
    pub damaged: Vec<String>,
}

impl Tier {
    /// Reads all copies.
    ///
    /// # Errors
    /// What the catalogue answers. What archives answer is what was found.
    pub fn scrub(&self, request: &Request) -> Result<Scrubbed> {
        let (mut scrubbed, mut bundles) = (Scrubbed::default(), HashSet::new());
        self.catalogue.for_each(&mut |row| {
            if row.state == ObjectState::Pending {
                return Ok(());
            }
            self.scrub_object(&row, request, &mut scrubbed)?;
            // Only what is in a bundle has something before it.
            let location = row.version.location;
            if location.offset > 0 && bundles.insert(location.container) {
                self.scrub_lists(&row, request, &mut scrubbed)?;
            }
            Ok(())
        })?;
        Ok(scrubbed)
    }

    fn scrub_object(
        &self,
        row: &ObjectRow,
        request: &Request,
        scrubbed: &mut Scrubbed,
    ) -> Result<()> {
        let mut whole: Option<Arc<dyn Archive>> = None;
        let mut damaged = Vec::new();
        for archive in self.holders(&row.version) {
            scrubbed.copies += 1;
            match verify(&archive, &row.version, request, Pace::default()) {
                Ok(()) => whole = Some(archive),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => damaged.push((archive, error)),
            }
        }
        for (archive, error) in damaged {
            let location = row.version.location;
            let mended = match &whole {
                Some(whole) => mend((whole, location.offset), &archive, location, request)
                    .and_then(|()| verify(&archive, &row.version, request, Pace::default())),
                None => Err(error),
            };
            scrubbed.note(mended, &row.path)?;
        }
        Ok(())
    }

    /// The lists of a bundle, without which an archive alone does not tell of its members. Any of
    /// them in any archive mends the others.
    fn scrub_lists(
        &self,
        row: &ObjectRow,
        request: &Request,
        scrubbed: &mut Scrubbed,
    ) -> Result<()> {
        let container = row.version.location.container;
        let holders = self.holders(&row.version);
        let found = holders.iter().map(|archive| list_places(archive, container));
        let Some(places) = found.reduce(Result::or) else { return Ok(()) };
        let places = match places {
            Ok(places) => places,
            Err(error) => return scrubbed.note(Err(error), &row.path),
        };
        let is_whole = |archive: &Arc<dyn Archive>, place: &Location| {
            let list = ObjectReader::open_any(archive, ContainerKind::Files, *place);
            list.and_then(|list| list.block(0)).map(drop)
        };
        let all = || holders.iter().flat_map(|archive| places.map(|place| (archive, place)));
        let whole = all().find(|(archive, place)| is_whole(archive, place).is_ok());
        for (archive, place) in all() {
            let Err(error) = is_whole(archive, &place) else { continue };
            let mended = match whole {
                Some((from, list)) => mend((from, list.offset), archive, place, request)
                    .and_then(|()| is_whole(archive, &place)),
                None => Err(error),
            };
            scrubbed.note(mended, &row.path)?;
        }
        Ok(())
    }
}

impl Scrubbed {
    fn note(&mut self, mended: Result<()>, path: &[u8]) -> Result<()> {
        match mended {
            Ok(()) => self.mended += 1,
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                let path = crate::error::shown(path);
                self.damaged.push(format!("{path}: {error}"));
            }
        }
        Ok(())
    }
}

/// Where the two lists of a bundle lie.
fn list_places(archive: &Arc<dyn Archive>, container: Id) -> Result<[Location; 2]> {
    let kind = ContainerKind::Files;
    let length = archive.length(kind, container).map_err(failed(archive.label(), container))?;
    let list_bytes = contents_of(archive, kind, container, length)?.list_bytes;
    Ok([0, length - list_bytes].map(|offset| Location { container, offset, length: list_bytes }))
}

/// Puts a part of a container from somewhere in one archive into that of another. What else is
/// there stays, as far as it can be read: of a bundle, another part may be whole only there.
fn mend(
    (from, from_offset): (&Arc<dyn Archive>, u64),
    to: &Arc<dyn Archive>,
    part: Location,
    request: &Request,
) -> Result<()> {
    const PIECE: u64 = 1 << 20;
    let (kind, container) = (ContainerKind::Files, part.container);
    let end = from.length(kind, container).map_err(failed(from.label(), container))?;
    let (first, last) = (part.offset, part.offset + part.length);
    let mut upload = to.begin(kind, container).map_err(failed(to.label(), container))?;
    let mut offset = 0;
    while offset < end {
        request.cancellation.check().or(Err(Error::Interrupted))?;
        let bounds = [first, last, end].into_iter().filter(|bound| *bound > offset);
        let length = bounds.min().unwrap_or(end).min(offset + PIECE) - offset;
        let mut bytes = vec![0; length as usize];
        let is_part = (first..last).contains(&offset);
        let has_own = !is_part
            && to.read(kind, container, offset, &mut bytes).is_ok_and(|count| count == bytes.len());
        if !has_own {
            let place = if is_part { from_offset + (offset - first) } else { offset };
            let read = from.read(kind, container, place, &mut bytes);
            if read.map_err(failed(from.label(), container))? != bytes.len() {
                let what = Corrupt("the archive answers fewer bytes than it holds");
                let archive = from.label().to_owned();
                return Err(Error::Damaged { archive, object: container, what });
            }
        }
        upload.write(&bytes).map_err(failed(to.label(), container))?;
        offset += length;
    }
    upload.finish().map_err(failed(to.label(), container))
}
