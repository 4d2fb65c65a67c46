//! Scans and scrubs, which may take days. Findings are reported at once, and progress every minute.

use std::time::Duration;

use super::Execution;
use crate::engine::{ProgressSink, Scanned, Scrubbed, Tier};
use crate::error::Result;
use crate::event::{Event, EventSink, go_on, owned, report_problems, total};
use crate::rate_limit::RateLimit;

/// A function that reads copies and reports the results so far.
type ReadCopies<'a> = dyn FnMut(&mut ProgressSink<'_, Scrubbed>) -> Result<Scrubbed> + 'a;

/// Interval between progress reports.
const EVERY: Duration = Duration::from_secs(60);

impl Execution<'_> {
    pub(super) fn scan(&mut self) -> Result<()> {
        let Self { tier, request, tell } = self;
        let mut progress = Progress::begin(tier);
        let mut heard = |scanned: &mut Scanned| {
            let figures = figures_of_scan(scanned);
            progress.tell([&mut scanned.missing, &mut scanned.damaged], &figures, tell)
        };
        let mut scanned = tier.scan_with_progress(request, &mut heard)?;
        heard(&mut scanned)?;
        let unknown = (scanned.unknown > 0).then(|| {
            let files = scanned.unknown;
            format!("{files} damaged files may refer to any object, so all objects are kept")
        });
        let overtaken = scanned.is_overtaken.then(|| {
            "the unmounted tree changed during the scan, so all objects are kept; scan again while \
             no program changes the tree"
                .to_owned()
        });
        report_problems(tell, unknown.into_iter().chain(overtaken))?;
        total(tell, &figures_of_scan(&scanned))
    }

    pub(super) fn scrub(&mut self, limit: Option<&RateLimit>) -> Result<()> {
        let (tier, request) = (self.tier, self.request);
        self.read_copies(&mut |heard| tier.scrub_within(request, limit, heard)).map(drop)
    }

    /// Reads copies and reports progress; returns the number of versions with too few copies.
    pub(super) fn read_copies(&mut self, read: &mut ReadCopies<'_>) -> Result<u64> {
        let Self { tier, tell, .. } = self;
        let (mut progress, mut damaged) = (Progress::begin(tier), 0);
        let mut heard = |scrubbed: &mut Scrubbed| {
            damaged += scrubbed.damaged.len() as u64;
            let figures = figures_of_scrub(scrubbed, damaged);
            progress.tell([&mut scrubbed.missing, &mut scrubbed.damaged], &figures, tell)
        };
        let mut scrubbed = read(&mut heard)?;
        heard(&mut scrubbed)?;
        let anew = (scrubbed.anew > 0).then(|| {
            format!(
                "{} resident files have no intact copy in an archive and can't be released now. \
                 Archive these files again: run `fslab tier archive`, or wait for the next policy \
                 run",
                scrubbed.anew
            )
        });
        let short = (scrubbed.short > 0).then(|| {
            let (short, wanted) = (scrubbed.short, tier.settings().copies);
            format!(
                "{short} versions have fewer than {wanted} intact copies: attach an archive that \
                 accepts copies, and scrub again"
            )
        });
        report_problems(tell, anew.into_iter().chain(short))?;
        total(tell, &figures_of_scrub(&scrubbed, damaged))?;
        Ok(scrubbed.short)
    }
}

fn figures_of_scan(scanned: &Scanned) -> [(&'static str, u64); 5] {
    [
        ("files", scanned.files),
        ("archived", scanned.archived),
        ("offline", scanned.offline),
        ("repaired", scanned.repaired),
        ("unneeded", scanned.unneeded),
    ]
}

fn figures_of_scrub(scrubbed: &Scrubbed, damaged: u64) -> [(&'static str, u64); 6] {
    [
        ("copies_verified", scrubbed.copies),
        ("repaired", scrubbed.repaired),
        ("damaged", damaged),
        ("copies_made", scrubbed.made),
        ("archived_again", scrubbed.anew),
        ("copies_in_cold_storage", scrubbed.cold),
    ]
}

/// Reports of progress during a long command.
struct Progress<'a> {
    tier: &'a Tier,
    told_ns: u64,
}

impl<'a> Progress<'a> {
    fn begin(tier: &'a Tier) -> Self {
        Self { tier, told_ns: tier.surroundings().clock.now_ns() }
    }

    /// Reports findings at once, and progress figures at intervals.
    fn tell(
        &mut self,
        found: [&mut Vec<String>; 2],
        figures: &[(&str, u64)],
        tell: &mut EventSink<'_>,
    ) -> Result<()> {
        report_problems(tell, found.into_iter().flat_map(std::mem::take))?;
        let now_ns = self.tier.surroundings().clock.now_ns();
        if Duration::from_nanos(now_ns.saturating_sub(self.told_ns)) < EVERY {
            return Ok(());
        }
        self.told_ns = now_ns;
        go_on(tell(Event::Progress { figures: owned(figures) }))
    }
}
