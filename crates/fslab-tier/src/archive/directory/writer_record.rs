//! The record of the archive's writer in a directory: `writer.toml`.

use std::io::{self, ErrorKind};
use std::path::Path;

use fslab_vfs::Errno;

use super::settings::{describe, read_settings};
use crate::archive::description::settings_text;
pub(super) use crate::archive::writer_record::date;
use crate::archive::{FoundRecord, Writer, WriterRecord};
use crate::atomic_write::write_durably;
use crate::error::{Error, Result};

const RECORD: &str = "writer.toml";

/// Returns the reason why a tree may only read an archive; see [`FoundRecord::refusal`].
pub(super) fn refusal(
    archive: &Path,
    writer: Option<&Writer>,
    is_fresh: bool,
) -> Result<Option<String>> {
    let found = read(archive)?;
    let id = match &found {
        // The archive's identity is needed only to compare openings, and only a readable record
        // contains an opening.
        FoundRecord::Tree(_) => describe(archive)?.id,
        FoundRecord::Nothing | FoundRecord::Damaged => Default::default(),
    };
    found.refusal((id, &archive.display().to_string()), writer, is_fresh)
}

fn read(archive: &Path) -> Result<FoundRecord> {
    match read_settings(archive, RECORD) {
        Ok(text) => Ok(toml::from_str(&text).map_or(FoundRecord::Damaged, FoundRecord::Tree)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(FoundRecord::Nothing),
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(FoundRecord::Damaged),
        Err(error) => Err(Error::File { path: archive.join(RECORD), source: error }),
    }
}

/// Describes the writer of an archive, with the time when it became the writer and the time of the
/// last opening. Returns `None` without a readable record.
pub(super) fn holder(archive: &Path) -> Result<Option<String>> {
    match read(archive)? {
        FoundRecord::Tree(known) => Ok(Some(known.holder())),
        FoundRecord::Nothing | FoundRecord::Damaged => Ok(None),
    }
}

/// Records that a tree is now the writer of an archive. The caller holds the lease.
pub(super) fn take_over(archive: &Path, writer: &Writer) -> Result<()> {
    write(archive, &WriterRecord::of_take_over(writer, describe(archive)?.id)?)
}

/// Records that a tree has opened an archive for writing. If the archive is full, the record is
/// written at a later opening, after expiry has freed space.
pub(super) fn record_opening(archive: &Path, writer: &Writer) -> Result<()> {
    let known = match read(archive)? {
        FoundRecord::Tree(known) => Some(known),
        FoundRecord::Nothing | FoundRecord::Damaged => None,
    };
    let record = WriterRecord::of_opening(writer, describe(archive)?.id, known.as_ref());
    if known.as_ref() == Some(&record) {
        return Ok(());
    }
    match write(archive, &record) {
        // The archive keeps its previous record. It still identifies this tree, because the tree
        // stores the opening in that record as `Opening::before`.
        Err(Error::File { source, .. }) if known.is_some() => {
            tracing::info!("can't record in {} that it was opened: {source}", archive.display());
            Ok(())
        }
        Err(Error::File { source, .. }) if is_full(&source) => {
            tracing::warn!(
                "can't record in {} which tree writes to it: {source}",
                archive.display()
            );
            Ok(())
        }
        recorded => recorded,
    }
}

fn write(archive: &Path, record: &WriterRecord) -> Result<()> {
    let path = archive.join(RECORD);
    let text = settings_text(&path, record)?;
    write_durably(&path, text.as_bytes()).map_err(Error::file(&path))
}

fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}
