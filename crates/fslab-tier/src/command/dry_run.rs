//! Dry runs of commands, for `--dry-run`: no file and no archive is changed. The dry run of a
//! release opens the copies in archives to check that they exist; other dry runs read no copies.
//! Most dry runs end with a plan: the requests, bytes and space that the command would need.

use super::inspect::version_event;
use super::recall::blocks_asked;
use super::{Command, Execution};
use crate::catalogue::ObjectState;
use crate::engine::{ArchivingPlan, CopiesPlan, RECALLED_TOGETHER};
use crate::error::{Error, Result};
use crate::event::{Bound, Event, Plan, go_on, report_done, report_problems, total};

impl Execution<'_> {
    /// Reports what a command would do.
    ///
    /// # Errors
    /// [`Error::NoDryRun`] for a command that has none.
    pub(super) fn dry_run(&mut self, command: &Command) -> Result<()> {
        match command {
            Command::Archive { paths, bundled, .. } => self.would_archive(paths, *bundled),
            Command::Recall { paths, range, rate } => self.would_recall(paths, *range, *rate > 0),
            Command::Release { paths, keep_bytes } => self.would_release(paths, *keep_bytes),
            Command::Scrub { .. } => self.would_scrub(),
            Command::Drain { archive, .. } => self.would_drain(archive),
            Command::Expire => self.would_expire(),
            Command::UndeleteAll { path } => self.would_undelete_all(path),
            _ => Err(Error::NoDryRun),
        }
    }

    /// Reports the end of a dry run.
    pub(super) fn tell_plan(&mut self, plan: Plan) -> Result<()> {
        go_on((self.tell)(Event::Plan(plan)))
    }

    fn would_archive(&mut self, paths: &[Vec<u8>], bundled: Option<u64>) -> Result<()> {
        self.tier.check_copy_targets()?;
        let mut plan = ArchivingPlan::begin(self.tier, bundled)?;
        self.each_file(paths, &mut |place, tell| match plan.file(place)? {
            true => report_done(tell, "would archive", place.path, place.found.attr.size),
            false => Ok(()),
        })?;
        self.tell_plan(plan.finish()?)
    }

    fn would_recall(
        &mut self,
        paths: &[Vec<u8>],
        range: Option<(u64, u64)>,
        has_limit: bool,
    ) -> Result<()> {
        let (tier, blocks) = (self.tier, blocks_asked(range));
        let mut planner = tier.planner("recall", Bound::AtMost)?;
        let (mut found, mut met) = (Vec::new(), 0);
        self.each_file(paths, &mut |place, tell| {
            if met == RECALLED_TOGETHER {
                planner.recall(&std::mem::take(&mut found), has_limit)?;
                met = 0;
            }
            met += 1;
            let Some((version, offline, bytes)) = tier.offline_part(place, &blocks)? else {
                return Ok(());
            };
            if !planner.is_new(&place.found.attr) {
                return Ok(());
            }
            found.push((version, offline, bytes));
            report_done(tell, "would recall", place.path, bytes)
        })?;
        planner.recall(&found, has_limit)?;
        self.tell_plan(planner.finish()?)
    }

    /// Counts the recorded copies in available archives.
    fn would_scrub(&mut self) -> Result<()> {
        let tier = self.tier;
        tier.look_for_archives();
        let (mut versions, mut copies, mut bytes) = (0, 0, 0);
        let mut plan = CopiesPlan::begin(tier, None)?;
        tier.catalogue().for_each_in_turn(&mut |row| {
            plan.row(&row);
            if row.state == ObjectState::Pending {
                return Ok(());
            }
            let of_this = tier.holders(&row.version).len() as u64;
            versions += 1;
            copies += of_this;
            bytes += of_this * row.version.size;
            Ok(())
        })?;
        let figures = [("versions", versions), ("copies", copies), ("content_bytes", bytes)];
        total(self.tell, &figures)?;
        self.tell_plan(plan.finish()?)
    }

    /// Counts the copies that a drain would make. A real drain reads the copies and replaces
    /// damaged ones; a dry run does not read them.
    fn would_drain(&mut self, archive: &str) -> Result<()> {
        let tier = self.tier;
        let drained = self.retirable(archive)?.id;
        tier.look_for_archives();
        let (mut needed, mut copies, mut bytes, mut without_place) = (0, 0, 0, 0);
        let mut plan = CopiesPlan::begin(tier, Some(drained))?;
        tier.catalogue().for_each_in_turn(&mut |row| {
            plan.row(&row);
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
        total(self.tell, &figures)?;
        self.tell_plan(plan.finish()?)
    }

    /// Reports the versions that an expiry would delete. A real expiry first scans the tree for
    /// files that still need these versions, unless an earlier scan has proven them unneeded.
    fn would_expire(&mut self) -> Result<()> {
        let Self { tier, tell, .. } = self;
        tier.look_for_archives();
        let scanned = tier.catalogue().scanned()?;
        let (mut objects, mut bytes, mut unproven) = (0, 0, 0);
        tier.catalogue().for_each_in_turn(&mut |row| {
            let Some(is_proven) = tier.is_expirable(&row, scanned)? else { return Ok(()) };
            objects += 1;
            bytes += row.version.size;
            unproven += u64::from(!is_proven);
            go_on(tell(version_event(tier, &row)?))
        })?;
        total(tell, &[("objects", objects), ("content_bytes", bytes), ("need_a_scan", unproven)])
    }
}
