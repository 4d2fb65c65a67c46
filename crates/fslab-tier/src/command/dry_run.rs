//! Dry runs of commands, for `--dry-run`: no file and no archive is changed. The dry run of a
//! release opens the copies in archives to check that they exist; other dry runs read no copies.

use super::inspect::version_event;
use super::recall::blocks_asked;
use super::{Command, Execution};
use crate::catalogue::ObjectState;
use crate::error::{Error, Result};
use crate::event::{FileSummary, Residence, go_on, report_done, report_problems, total};

impl Execution<'_> {
    /// Reports what a command would do.
    ///
    /// # Errors
    /// [`Error::NoDryRun`] for a command that has none.
    pub(super) fn dry_run(&mut self, command: &Command) -> Result<()> {
        match command {
            Command::Archive { paths, .. } => {
                self.tier.check_copy_targets()?;
                self.would_archive(paths)
            }
            Command::Recall { paths, range, .. } => self.would_recall(paths, *range),
            Command::Release { paths, keep_bytes } => self.would_release(paths, *keep_bytes),
            Command::Scrub { .. } => self.would_scrub(),
            Command::Drain { archive, .. } => self.would_drain(archive),
            Command::Expire => self.would_expire(),
            Command::UndeleteAll { path } => self.would_undelete_all(path),
            _ => Err(Error::NoDryRun),
        }
    }

    fn would_archive(&mut self, paths: &[Vec<u8>]) -> Result<()> {
        let tier = self.tier;
        self.each_file(paths, &mut |place, tell| {
            let FileSummary { state, bytes, .. } =
                tier.file_summary(&place.found.attr, place.path)?;
            match state {
                Residence::Resident | Residence::Changed => {
                    report_done(tell, "would archive", place.path, bytes)
                }
                _ => Ok(()),
            }
        })
    }

    fn would_recall(&mut self, paths: &[Vec<u8>], range: Option<(u64, u64)>) -> Result<()> {
        let (tier, blocks) = (self.tier, blocks_asked(range));
        self.each_file(paths, &mut |place, tell| match tier.offline_bytes(place, &blocks)? {
            0 => Ok(()),
            bytes => report_done(tell, "would recall", place.path, bytes),
        })
    }

    /// Counts the recorded copies in available archives.
    fn would_scrub(&mut self) -> Result<()> {
        let tier = self.tier;
        tier.look_for_archives();
        let (mut versions, mut copies, mut bytes) = (0, 0, 0);
        tier.catalogue().for_each_in_turn(&mut |row| {
            if row.state == ObjectState::Pending {
                return Ok(());
            }
            let of_this = tier.holders(&row.version).len() as u64;
            versions += 1;
            copies += of_this;
            bytes += of_this * row.version.size;
            Ok(())
        })?;
        total(self.tell, &[("versions", versions), ("copies", copies), ("content_bytes", bytes)])
    }

    /// Counts the copies that a drain would make. A real drain reads the copies and replaces
    /// damaged ones; a dry run does not read them.
    fn would_drain(&mut self, archive: &str) -> Result<()> {
        let tier = self.tier;
        let drained = self.retirable(archive)?.id;
        tier.look_for_archives();
        let (mut needed, mut copies, mut bytes, mut without_place) = (0, 0, 0, 0);
        tier.catalogue().for_each_in_turn(&mut |row| {
            let version = &row.version;
            if row.state == ObjectState::Pending || !version.copies.contains(&drained) {
                return Ok(());
            }
            let (lacking, targets) = tier.copies_lacking_without(version, drained);
            let made = lacking.min(targets) as u64;
            needed += u64::from(lacking > 0);
            copies += made;
            bytes += made * version.size;
            without_place += u64::from(targets < lacking);
            Ok(())
        })?;
        let doubt = tier.is_in_doubt().then(|| {
            "after a crash, the catalogue may lack versions: run `fslab tier scan`, then this \
             command again"
                .to_owned()
        });
        report_problems(self.tell, doubt)?;
        let figures = [
            ("versions_only_there", needed),
            ("copies_to_make", copies),
            ("content_bytes", bytes),
            ("without_another_archive", without_place),
        ];
        total(self.tell, &figures)
    }

    /// Reports the versions that an expiry would delete. A real expiry first scans the tree for
    /// files that still need these versions, unless an earlier scan has proven them unneeded.
    fn would_expire(&mut self) -> Result<()> {
        let Self { tier, tell, .. } = self;
        tier.look_for_archives();
        let scanned = tier.catalogue().scanned()?;
        let (mut objects, mut bytes, mut unproven) = (0, 0, 0);
        tier.catalogue().for_each_in_turn(&mut |row| {
            let Some(is_proven) = tier.is_expirable(&row, scanned) else { return Ok(()) };
            objects += 1;
            bytes += row.version.size;
            unproven += u64::from(!is_proven);
            go_on(tell(version_event(&row)))
        })?;
        total(tell, &[("objects", objects), ("content_bytes", bytes), ("need_a_scan", unproven)])
    }
}
