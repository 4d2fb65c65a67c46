//! Reading every copy of every object that a file or the past needs, and mending copies from each
//! other.

use std::sync::Arc;

use fslab_vfs::Request;

use super::Tier;
use super::archiving::verify;
use crate::archive::{Archive, ContainerKind};
use crate::catalogue::{ObjectRow, ObjectState};
use crate::error::{Error, Result};
use crate::limit::Pace;

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
    /// Reads all copies; `told` is called with each that was read.
    ///
    /// # Errors
    /// What the catalogue answers. What archives answer is what was found.
    pub fn scrub(&self, request: &Request) -> Result<Scrubbed> {
        let mut scrubbed = Scrubbed::default();
        self.catalogue.for_each(&mut |row| {
            if row.state != ObjectState::Pending {
                self.scrub_object(&row, request, &mut scrubbed)?;
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
        let holders = self.holders(&row.version);
        let mut whole: Option<Arc<dyn Archive>> = None;
        let mut damaged = Vec::new();
        for archive in holders {
            scrubbed.copies += 1;
            match verify(&archive, &row.version, request, Pace::default()) {
                Ok(()) => whole = Some(archive),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => damaged.push((archive, error)),
            }
        }
        for (archive, error) in damaged {
            let mended = match &whole {
                Some(whole) => mend(whole, &archive, row, request),
                None => Err(error),
            };
            match mended {
                Ok(()) => scrubbed.mended += 1,
                Err(error) => {
                    let path = crate::error::shown(&row.path);
                    scrubbed.damaged.push(format!("{path}: {error}"));
                }
            }
        }
        Ok(())
    }
}

/// Copies a container from one archive over that of another, and reads it back.
fn mend(
    from: &Arc<dyn Archive>,
    to: &Arc<dyn Archive>,
    row: &ObjectRow,
    request: &Request,
) -> Result<()> {
    const PIECE: usize = 1 << 20;
    let (kind, container) = (ContainerKind::Files, row.version.location.container);
    let failed = |archive: &Arc<dyn Archive>| {
        let archive = archive.label().to_owned();
        move |source| Error::Archive { archive, container, source }
    };
    let mut upload = to.begin(kind, container).map_err(failed(to))?;
    let mut buffer = vec![0; PIECE];
    let mut offset = 0;
    loop {
        request.cancellation.check().or(Err(Error::Interrupted))?;
        let count = from.read(kind, container, offset, &mut buffer).map_err(failed(from))?;
        if count == 0 {
            break;
        }
        upload.write(&buffer[..count]).map_err(failed(to))?;
        offset += count as u64;
    }
    upload.finish().map_err(failed(to))?;
    verify(to, &row.version, request, Pace::default())
}
