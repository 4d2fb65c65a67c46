//! The state of the catalogue as a whole: whether it is in use or in doubt, its scans and its open
//! epoch. A missing value means never.

use redb::ReadableTable;

use super::{Catalogue, FACTS, SCAN};
use crate::error::Result;

/// The last scan that looked at every file, each of which told what it names.
const SCANNED: &str = "scanned";
/// 1 while an engine uses it.
const IN_USE: &str = "in use";
/// 0 once every file was looked at since the last use that did not end in order.
const IN_DOUBT: &str = "in doubt";
/// How often engines began to use it.
const USES: &str = "uses";
/// When names went to archives last, in seconds since 1970.
const TREE: &str = "tree";

impl Catalogue {
    /// An engine begins to use it. Where the last use did not end in order, the tree may have gone
    /// back to what was durable, and rows may say that files are gone which are there again.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn begin_use(&self) -> Result<()> {
        match self.fact(IN_USE)? {
            Some(0) => self.note(&[(IN_USE, 1)]),
            _ => self.note(&[(IN_DOUBT, 1), (IN_USE, 1)]),
        }
    }

    /// How often engines began to use it; none if nobody counted.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn open_epoch(&self) -> Result<Option<u64>> {
        self.fact(USES)
    }

    /// Counts the uses from here.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn set_open_epoch(&self, open_epoch: u64) -> Result<()> {
        self.note(&[(USES, open_epoch)])
    }

    /// It is from now on that of a tree that was made again, whose openings nobody has counted.
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

    /// It is not of the same day as the tree: what was said of files, and what scans found, may be
    /// of others. A scan tells anew before anything goes.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn distrust(&self) -> Result<()> {
        self.note(&[(IN_DOUBT, 1), (SCANNED, 0)])
    }

    /// The use ends, and the tree is durable as it is.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn end_use(&self) -> Result<()> {
        self.note(&[(IN_USE, 0)])
    }

    /// Whether a use ended otherwise and no scan has looked at every file since.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_in_doubt(&self) -> Result<bool> {
        Ok(self.fact(IN_DOUBT)? != Some(0))
    }

    /// A scan has looked at every file.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn end_doubt(&self) -> Result<()> {
        self.note(&[(IN_DOUBT, 0)])
    }

    /// When the names of the tree went to archives last, in seconds since 1970; none if they
    /// never did.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn tree_archived_at(&self) -> Result<Option<i64>> {
        Ok(self.fact(TREE)?.and_then(|at| at.try_into().ok()))
    }

    /// The names of the tree went to archives.
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

    /// Notes some facts as one.
    fn note(&self, noted: &[(&str, u64)]) -> Result<()> {
        self.change(|transaction| {
            let mut facts = transaction.open_table(FACTS)?;
            noted.iter().try_for_each(|(name, value)| facts.insert(name, value).map(drop))?;
            Ok(())
        })
    }

    /// Begins a scan and answers its number, which is above those of all before.
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

    /// A scan has looked at every file, and each told what it names: what was said to be unneeded
    /// before it began is so.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn end_scan(&self, number: u64) -> Result<()> {
        self.note(&[(SCANNED, number)])
    }

    /// The last scan that ended so; 0 where none did.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn scanned(&self) -> Result<u64> {
        Ok(self.fact(SCANNED)?.unwrap_or(0))
    }
}
