//! Scans and scrubs, which may take days: findings are reported at once, and progress every minute.

use std::sync::Arc;
use std::time::Duration;

use fslab_vfs::Request;

use crate::engine::{Scanned, Scrubbed, Tier};
use crate::error::Result;
use crate::event::{Event, EventSink, go_on, owned, total};
use crate::rate_limit::RateLimit;

/// How often figures are told.
const EVERY: Duration = Duration::from_secs(60);

pub(super) fn scan(tier: &Arc<Tier>, request: &Request, tell: &mut EventSink<'_>) -> Result<()> {
    let mut progress = Progress::begin(tier);
    let mut heard = |scanned: &mut Scanned| {
        progress.tell_problems(&mut scanned.missing, tell)?;
        progress.tell_problems(&mut scanned.damaged, tell)?;
        progress.tell_figures(tell, || figures_of_scan(scanned).to_vec())
    };
    let mut scanned = tier.scan_with_progress(request, &mut heard)?;
    heard(&mut scanned)?;
    if scanned.unknown > 0 {
        let files = scanned.unknown;
        let what = format!("{files} damaged files may name any object: none is taken for unneeded");
        go_on(tell(Event::Problem { what }))?;
    }
    if scanned.is_overtaken {
        let what = "files were moved, made or removed during the scan of a tree that is not \
                    mounted: no object is taken for unneeded; scan again while nobody changes it";
        go_on(tell(Event::Problem { what: what.to_owned() }))?;
    }
    total(tell, &figures_of_scan(&scanned))
}

fn figures_of_scan(scanned: &Scanned) -> [(&'static str, u64); 5] {
    [
        ("files", scanned.files),
        ("archived", scanned.archived),
        ("offline", scanned.offline),
        ("mended", scanned.mended),
        ("unneeded", scanned.unneeded),
    ]
}

pub(super) fn scrub(
    tier: &Arc<Tier>,
    limit: Option<&RateLimit>,
    request: &Request,
    tell: &mut EventSink<'_>,
) -> Result<()> {
    let (mut progress, mut damaged) = (Progress::begin(tier), 0);
    let mut heard = |scrubbed: &mut Scrubbed| {
        damaged += scrubbed.damaged.len() as u64;
        progress.tell_problems(&mut scrubbed.missing, tell)?;
        progress.tell_problems(&mut scrubbed.damaged, tell)?;
        progress.tell_figures(tell, || figures_of_scrub(scrubbed, damaged).to_vec())
    };
    let mut scrubbed = tier.scrub_within(request, limit, &mut heard)?;
    heard(&mut scrubbed)?;
    if scrubbed.anew > 0 {
        let what = format!(
            "{} files whose bytes are here have no whole copy: they do not go before the next \
             `fslab tier archive` or policy has archived them anew",
            scrubbed.anew
        );
        go_on(tell(Event::Problem { what }))?;
    }
    if scrubbed.short > 0 {
        let (short, wanted) = (scrubbed.short, tier.settings().copies);
        let what = format!(
            "{short} versions have fewer than {wanted} whole copies: attach an archive that takes \
             others, and scrub again"
        );
        go_on(tell(Event::Problem { what }))?;
    }
    total(tell, &figures_of_scrub(&scrubbed, damaged))
}

fn figures_of_scrub(scrubbed: &Scrubbed, damaged: u64) -> [(&'static str, u64); 5] {
    [
        ("copies", scrubbed.copies),
        ("mended", scrubbed.mended),
        ("damaged", damaged),
        ("made", scrubbed.made),
        ("anew", scrubbed.anew),
    ]
}

/// What is told while something goes on.
struct Progress<'a> {
    tier: &'a Tier,
    told_ns: u64,
}

impl<'a> Progress<'a> {
    fn begin(tier: &'a Tier) -> Self {
        Self { tier, told_ns: tier.surroundings().clock.now_ns() }
    }

    fn tell_problems(&self, problems: &mut Vec<String>, tell: &mut EventSink<'_>) -> Result<()> {
        problems.drain(..).try_for_each(|what| go_on(tell(Event::Problem { what })))
    }

    fn tell_figures(
        &mut self,
        tell: &mut EventSink<'_>,
        figures: impl FnOnce() -> Vec<(&'static str, u64)>,
    ) -> Result<()> {
        let now_ns = self.tier.surroundings().clock.now_ns();
        if Duration::from_nanos(now_ns.saturating_sub(self.told_ns)) < EVERY {
            return Ok(());
        }
        self.told_ns = now_ns;
        go_on(tell(Event::Progress { figures: owned(&figures()) }))
    }
}
