//! The state of the catalogue as a whole: whether it is in use or in doubt, its scans, its open
//! epoch, and the traffic of the archives. A missing value means that the event never happened.

use redb::ReadableTable;

use super::{Catalogue, FACTS, SCAN, USAGE};
use crate::archive::Usage;
use crate::error::Result;
use crate::id::Id;

/// The last scan that visited every file and could read every residency.
const SCANNED: &str = "scanned";
/// 1 while an engine uses the catalogue.
const IN_USE: &str = "in use";
/// 1 while the catalogue is in doubt: a use did not end cleanly, and no scan has visited every file
/// since. 0 otherwise.
const IN_DOUBT: &str = "in doubt";
/// 1 if the rows show all objects with sources: all archives were listed after the last loss of the
/// catalogue or of a part of it.
const LISTED: &str = "listed";
/// The open epoch: a count of openings and scans.
const USES: &str = "uses";
/// When the tree was last archived, in seconds since 1970.
const TREE: &str = "tree";

impl Catalogue {
    /// Records that an engine begins to use the catalogue. If the last use did not end cleanly, the
    /// catalogue is in doubt. After a crash, files that rows record as removed may exist again,
    /// because their removal was not durable.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn begin_use(&self) -> Result<()> {
        match self.fact(IN_USE)? {
            Some(0) => self.note(&[(IN_USE, 1)]),
            _ => self.note(&[(IN_DOUBT, 1), (IN_USE, 1)]),
        }
    }

    /// Returns the open epoch; `None` if none was recorded.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn open_epoch(&self) -> Result<Option<u64>> {
        self.fact(USES)
    }

    /// Sets the open epoch.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn set_open_epoch(&self, open_epoch: u64) -> Result<()> {
        self.note(&[(USES, open_epoch)])
    }

    /// Removes the open epoch, because the catalogue now belongs to a rebuilt tree. Also puts the
    /// catalogue in doubt.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn clear_open_epoch(&self) -> Result<()> {
        self.distrust()?;
        self.change(|transaction| {
            transaction.open_table(FACTS)?.remove(USES)?;
            Ok(())
        })
    }

    /// Puts the catalogue in doubt, because it may not match the tree, for example after one of
    /// them was restored from a backup. Nothing expires before a new scan.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn distrust(&self) -> Result<()> {
        self.note(&[(IN_DOUBT, 1), (SCANNED, 0), (LISTED, 0)])
    }

    /// Returns whether every object with sources has a row.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_listed(&self) -> Result<bool> {
        Ok(self.fact(LISTED)? == Some(1))
    }

    /// Records that every object with sources has a row, because all archives were listed.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn note_listed(&self) -> Result<()> {
        self.note(&[(LISTED, 1)])
    }

    /// Returns whether [`Self::distrust`] was called after the last complete scan.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_distrusted(&self) -> Result<bool> {
        Ok(self.fact(SCANNED)? == Some(0))
    }

    /// Records that the engine has stopped using the catalogue. The caller has made the tree
    /// durable.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn end_use(&self) -> Result<()> {
        self.note(&[(IN_USE, 0)])
    }

    /// Returns whether a use did not end cleanly, and no scan has visited every file since.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_in_doubt(&self) -> Result<bool> {
        Ok(self.fact(IN_DOUBT)? != Some(0))
    }

    /// Ends the doubt, after a scan has visited every file.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn end_doubt(&self) -> Result<()> {
        self.note(&[(IN_DOUBT, 0)])
    }

    /// Returns the time when the tree was last archived, in seconds since 1970; `None` if never.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn tree_archived_at(&self) -> Result<Option<i64>> {
        Ok(self.fact(TREE)?.and_then(|at| at.try_into().ok()))
    }

    /// Records when the tree was archived, in seconds since 1970.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn note_tree(&self, at_seconds: i64) -> Result<()> {
        self.note(&[(TREE, at_seconds.try_into().unwrap_or(0))])
    }

    pub(super) fn fact(&self, name: &str) -> Result<Option<u64>> {
        self.ask(|transaction| {
            let fact = transaction.open_table(FACTS)?.get(name)?;
            Ok(fact.map(|fact| fact.value()))
        })
    }

    /// Writes several numbers in one transaction.
    fn note(&self, noted: &[(&str, u64)]) -> Result<()> {
        self.change(|transaction| {
            let mut facts = transaction.open_table(FACTS)?;
            noted.iter().try_for_each(|(name, value)| facts.insert(name, value).map(drop))?;
            Ok(())
        })
    }

    /// Begins a scan and returns its number, which is greater than those of all earlier scans.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn begin_scan(&self) -> Result<u64> {
        self.change(|transaction| {
            let mut facts = transaction.open_table(FACTS)?;
            let next = facts.get(SCAN)?.map_or(0, |last| last.value()) + 1;
            facts.insert(SCAN, next)?;
            Ok(next)
        })
    }

    /// Records that a scan has visited every file and read every residency. This proves that
    /// objects recorded as unneeded before the scan began are really unneeded.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn end_scan(&self, number: u64) -> Result<()> {
        self.note(&[(SCANNED, number)])
    }

    /// Returns the number of the last scan that visited every file and read every residency; 0 if
    /// there was none.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn scanned(&self) -> Result<u64> {
        Ok(self.fact(SCANNED)?.unwrap_or(0))
    }

    /// Adds traffic of archives to the recorded traffic.
    ///
    /// # Errors
    /// Errors of the database.
    pub(crate) fn add_usage(&self, more: &[(Id, Usage)]) -> Result<()> {
        self.change(|transaction| {
            let mut table = transaction.open_table(USAGE)?;
            for (archive, usage) in more {
                for (counter, more) in (0_u8..).zip(usage.to_numbers()) {
                    let key = (archive.0, counter);
                    let before = table.get(key)?.map_or(0, |before| before.value());
                    table.insert(key, before.saturating_add(more))?;
                }
            }
            Ok(())
        })
    }

    /// Returns the recorded traffic of an archive.
    ///
    /// # Errors
    /// Errors of the database.
    pub(crate) fn usage(&self, archive: Id) -> Result<Usage> {
        self.ask(|transaction| {
            let table = transaction.open_table(USAGE)?;
            let mut numbers = Usage::default().to_numbers();
            for (counter, number) in (0_u8..).zip(&mut numbers) {
                *number = table.get((archive.0, counter))?.map_or(0, |number| number.value());
            }
            Ok(Usage::from_numbers(numbers))
        })
    }
}
