//! Reading every copy of every object that a file or the past needs, and mending copies from each
//! other.

use std::collections::HashSet;
use std::sync::Arc;

use fslab_vfs::Request;

use super::Tier;
use super::copies::{failed, verify};
use super::mending::{Mending, told, whole_length};
use super::patching::Patchwork;
use crate::archive::{Archive, ContainerKind};
use crate::catalogue::{ObjectRow, ObjectState};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::limit::Pace;
use crate::stored::Location;
use crate::stored::bundle::Contents;
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
        self.catalogue.for_each_in_turn(&mut |row| {
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
        self.scrub_trees(request, &mut scrubbed)?;
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
        if damaged.is_empty() {
            return Ok(());
        }
        // What went or moved meanwhile is not damaged, and must not be made again.
        let _stays = self.nobody_else(request)?;
        if self.is_elsewhere(row)? {
            return Ok(());
        }
        let whole = match whole {
            Some(whole) => Some(whole),
            None => self.put_together(row, request)?,
        };
        for (archive, error) in damaged {
            let location = row.version.location;
            let mended = match &whole {
                Some(whole) => self
                    .mend(row, (whole, location.offset), (&archive, location), request)
                    .and_then(|()| verify(&archive, &row.version, request, Pace::default())),
                None => Err(error),
            };
            scrubbed.note(mended, &row.path)?;
        }
        Ok(())
    }

    /// The copies of an object as one that is whole, where they have all of it between them.
    fn put_together(&self, row: &ObjectRow, request: &Request) -> Result<Option<Arc<dyn Archive>>> {
        match Patchwork::whole(self.holders(&row.version), &row.version, request) {
            Ok(whole) => Ok(Some(whole)),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            // What each copy lacks is told of each.
            Err(_) => Ok(None),
        }
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
        let all_whole = |places: [Location; 2]| {
            let both = |archive| places.iter().all(|place| is_whole(archive, place).is_ok());
            holders.iter().all(both)
        };
        match told(&holders, container) {
            None => return Ok(()),
            Some(Ok(contents)) if all_whole(list_places(&contents, container)) => return Ok(()),
            Some(_) => {}
        }
        let _stays = self.nobody_else(request)?;
        if self.is_elsewhere(row)? {
            return Ok(());
        }
        self.mend_lists(row, &holders, request, scrubbed)
    }

    fn mend_lists(
        &self,
        row: &ObjectRow,
        holders: &[Arc<dyn Archive>],
        request: &Request,
        scrubbed: &mut Scrubbed,
    ) -> Result<()> {
        let container = row.version.location.container;
        let places = match told(holders, container) {
            None => return Ok(()),
            Some(Ok(contents)) => list_places(&contents, container),
            Some(Err(error)) => return scrubbed.note(Err(error), &row.path),
        };
        let all = || holders.iter().flat_map(|archive| places.map(|place| (archive, place)));
        let whole = all().find(|(archive, place)| is_whole(archive, place).is_ok());
        for (archive, place) in all() {
            let Err(error) = is_whole(archive, &place) else { continue };
            let mended = match whole {
                Some((from, list)) => self
                    .mend(row, (from, list.offset), (archive, place), request)
                    .and_then(|()| is_whole(archive, &place)),
                None => Err(error),
            };
            scrubbed.note(mended, &row.path)?;
        }
        Ok(())
    }

    /// Whether an object is no more where its row said, or needed no more.
    fn is_elsewhere(&self, row: &ObjectRow) -> Result<bool> {
        let now = self.catalogue.get(row.version.object)?;
        Ok(now.is_none_or(|now| now.version.location != row.version.location))
    }

    /// Puts a part of a container from somewhere in one archive into that of another.
    fn mend(
        &self,
        row: &ObjectRow,
        (from, from_offset): (&Arc<dyn Archive>, u64),
        (to, part): (&Arc<dyn Archive>, Location),
        request: &Request,
    ) -> Result<()> {
        let length = whole_length(&self.holders(&row.version), part)?;
        Mending { from, from_offset, to, part, length }.run(request)
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
fn list_places(contents: &Contents, container: Id) -> [Location; 2] {
    let length = contents.list_bytes;
    [0, contents.length() - length].map(|offset| Location { container, offset, length })
}

/// The list at the end is one only where nothing stands behind it.
fn is_whole(archive: &Arc<dyn Archive>, place: &Location) -> Result<()> {
    let (kind, container) = (ContainerKind::Files, place.container);
    archive.forget(kind, container);
    ObjectReader::open_any(archive, kind, *place).and_then(|list| list.block(0))?;
    let length = archive.length(kind, container).map_err(failed(archive.label(), container))?;
    if place.offset > 0 && length != place.offset + place.length {
        let what = Corrupt("it is longer than it was");
        return Err(Error::Damaged {
            archive: archive.label().to_owned(),
            object: container,
            what,
        });
    }
    Ok(())
}
