//! Receipts: how the copies of containers were proved, and when they were last read.
//!
//! Receipts are for users only, and no decision depends on them. They are collected in memory and
//! written with the next transaction, so a crash may lose the last ones.

use redb::{ReadableTable, TableDefinition, WriteTransaction};

use super::Catalogue;
use crate::archive::Proof;
use crate::error::Result;
use crate::id::Id;

/// A container and an archive.
type Key = ([u8; 16], [u8; 16]);

/// The proof, the time of the proof, and the time of the last read. A time is in seconds since
/// 1970; 0 if it is unknown.
type Stored = (u8, i64, i64);

const RECEIPTS: TableDefinition<Key, Stored> = TableDefinition::new("receipts");

/// The number of collected receipts that are written without waiting for another transaction.
const COLLECTED_MAX: usize = 1024;

/// How a copy of a container was proved, and when it was last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// How the copy was proved when it was written, and when, in seconds since 1970. `None` if the
    /// catalogue was made after that.
    pub proved: Option<(Proof, i64)>,
    /// When the copy was last read and found intact, in seconds since 1970. A copy of a bundle
    /// counts as read if one of its objects was read.
    pub read: Option<i64>,
}

impl Receipt {
    fn encode(self) -> Stored {
        let (proof, proved) = match self.proved {
            None => (0, 0),
            Some((Proof::ReadBack, proved)) => (1, proved),
            Some((Proof::Checksum, proved)) => (2, proved),
        };
        (proof, proved, self.read.unwrap_or(0))
    }

    fn decode((proof, proved, read): Stored) -> Self {
        let proof = match proof {
            1 => Some(Proof::ReadBack),
            2 => Some(Proof::Checksum),
            _ => None,
        };
        Self {
            proved: proof.map(|proof| (proof, proved)),
            read: Some(read).filter(|read| *read != 0),
        }
    }
}

/// A collected receipt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    container: Id,
    archive: Id,
    /// `None` if an existing copy was read.
    proof: Option<Proof>,
    seconds: i64,
}

impl Catalogue {
    /// Records that a new copy of a container was proved.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn note_proved(
        &self,
        container: Id,
        archive: Id,
        proof: Proof,
        seconds: i64,
    ) -> Result<()> {
        self.collect(Note { container, archive, proof: Some(proof), seconds })
    }

    /// Records that an object in a copy of a container was read and found intact.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn note_read(&self, container: Id, archive: Id, seconds: i64) -> Result<()> {
        self.collect(Note { container, archive, proof: None, seconds })
    }

    fn collect(&self, note: Note) -> Result<()> {
        let mut notes = self.notes.lock();
        notes.push(note);
        let is_full = notes.len() >= COLLECTED_MAX;
        drop(notes);
        if is_full { self.flush_receipts() } else { Ok(()) }
    }

    /// Writes the collected receipts.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn flush_receipts(&self) -> Result<()> {
        if self.notes.lock().is_empty() {
            return Ok(());
        }
        self.change(|_| Ok(()))
    }

    /// Returns the receipt of a copy. All its fields are `None` if there is no receipt.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn receipt(&self, container: Id, archive: Id) -> Result<Receipt> {
        self.flush_receipts()?;
        self.ask(|transaction| {
            let found = transaction.open_table(RECEIPTS)?.get((container.0, archive.0))?;
            Ok(found.map(|found| Receipt::decode(found.value())).unwrap_or_default())
        })
    }
}

pub(super) fn create_table(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    transaction.open_table(RECEIPTS)?;
    Ok(())
}

/// Writes collected receipts.
pub(super) fn write(transaction: &WriteTransaction, notes: &[Note]) -> Result<(), redb::Error> {
    if notes.is_empty() {
        return Ok(());
    }
    let mut table = transaction.open_table(RECEIPTS)?;
    for note in notes {
        let key = (note.container.0, note.archive.0);
        let known = table.get(key)?.map(|known| Receipt::decode(known.value())).unwrap_or_default();
        let receipt = match note.proof {
            // Reading the copy back is also a read.
            Some(proof) => Receipt {
                proved: Some((proof, note.seconds)),
                read: Some(note.seconds).filter(|_| proof == Proof::ReadBack),
            },
            None => Receipt { read: Some(note.seconds), ..known },
        };
        table.insert(key, receipt.encode())?;
    }
    Ok(())
}

/// Deletes the receipts of a container.
pub(super) fn forget(transaction: &WriteTransaction, container: Id) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(RECEIPTS)?;
    table.retain_in((container.0, [0; 16])..=(container.0, [u8::MAX; 16]), |_, _| false)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_keep_the_proof_and_the_last_read() {
        let catalogue = Catalogue::in_memory().unwrap();
        let [container, other, archive, second] = [1, 2, 3, 4].map(|number| Id([number; 16]));
        let receipt = |container, archive| catalogue.receipt(container, archive).unwrap();
        assert_eq!(receipt(container, archive), Receipt::default());
        catalogue.note_proved(container, archive, Proof::Checksum, 10).unwrap();
        catalogue.note_proved(container, second, Proof::ReadBack, 11).unwrap();
        catalogue.note_read(other, archive, 12).unwrap();
        let by_checksum = Receipt { proved: Some((Proof::Checksum, 10)), read: None };
        assert_eq!(receipt(container, archive), by_checksum);
        let read_back = Receipt { proved: Some((Proof::ReadBack, 11)), read: Some(11) };
        assert_eq!(receipt(container, second), read_back);
        assert_eq!(receipt(other, archive), Receipt { proved: None, read: Some(12) });
        catalogue.note_read(container, archive, 20).unwrap();
        let read = Receipt { read: Some(20), ..by_checksum };
        assert_eq!(receipt(container, archive), read);
        // A replaced copy was not read yet.
        catalogue.note_proved(container, archive, Proof::Checksum, 30).unwrap();
        let replaced = Receipt { proved: Some((Proof::Checksum, 30)), read: None };
        assert_eq!(receipt(container, archive), replaced);
        catalogue.change(|transaction| forget(transaction, container)).unwrap();
        assert_eq!(receipt(container, archive), Receipt::default());
        assert_eq!(receipt(container, second), Receipt::default());
        assert_eq!(receipt(other, archive).read, Some(12));
    }

    #[test]
    fn receipts_are_collected_within_a_limit() {
        let catalogue = Catalogue::in_memory().unwrap();
        for number in 0..3 * COLLECTED_MAX {
            catalogue.note_read(Id([number as u8; 16]), Id([1; 16]), 5).unwrap();
            assert!(catalogue.notes.lock().len() < COLLECTED_MAX);
        }
    }
}
