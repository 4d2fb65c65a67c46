//! Whether a measured figure agrees with a published one.
//!
//! Nothing is judged that can't be: times of a machine of then say nothing about times of one of
//! now. A range agrees where it and the measured intervals overlap.

use serde::Serialize;

use super::look_up::{Figure, Outcome};
use super::published::{Published, Scale};
use crate::report::significant;

/// How a claim and its own figure stand to each other.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// The intervals overlap.
    Agrees,
    /// Both ratios lie on the same side of 1.
    SameDirection,
    /// The measured interval holds 1, the published figure does not.
    NoDifferenceShown,
    /// They differ.
    Differs,
    /// They can't be compared.
    NotCompared,
    /// There is no figure of our own.
    Missing,
    /// There is none by intention.
    NotReproduced,
}

impl Agreement {
    /// Of a published figure and what was found.
    #[must_use]
    pub fn of(published: Option<&Published>, outcome: &Outcome) -> Self {
        let figures = match outcome {
            Outcome::Missing(_) => return Self::Missing,
            Outcome::NotReproduced(_) => return Self::NotReproduced,
            Outcome::Words(_) => return Self::NotCompared,
            Outcome::Figures(figures) => figures,
        };
        let comparable = |published: &&Published| {
            published.is_number() && published.unit.scale != Scale::Machine
        };
        published
            .filter(comparable)
            .map_or(Self::NotCompared, |published| judge(published, figures))
    }

    /// In a word or two, for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::SameDirection => "same direction",
            Self::NoDifferenceShown => "no difference shown",
            Self::Differs => "differs",
            Self::NotCompared => "not compared",
            Self::Missing => "missing",
            Self::NotReproduced => "not reproduced",
        }
    }
}

fn judge(published: &Published, figures: &[Figure]) -> Agreement {
    let (low, high) = published.range();
    let (least, most) = hull(figures);
    let holds_one = least <= 1.0 && 1.0 <= most;
    // "Faster" without a number: no difference is not faster.
    let only_direction = published.unit.scale == Scale::Ratio
        && ((low, high) == (1.0, f64::INFINITY) || (low, high) == (f64::NEG_INFINITY, 1.0));
    if only_direction && holds_one {
        return Agreement::NoDifferenceShown;
    }
    if least <= high && low <= most {
        return Agreement::Agrees;
    }
    if published.unit.scale != Scale::Ratio {
        return Agreement::Differs;
    }
    let same_side = low > 1.0 && least > 1.0 || high < 1.0 && most < 1.0;
    match (same_side, holds_one) {
        (true, _) => Agreement::SameDirection,
        (false, true) => Agreement::NoDifferenceShown,
        (false, false) => Agreement::Differs,
    }
}

/// From the lowest to the highest end of all intervals.
fn hull(figures: &[Figure]) -> (f64, f64) {
    let ends = |figure: &Figure| figure.interval.unwrap_or((figure.value, figure.value));
    figures
        .iter()
        .map(ends)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), (low, high)| {
            (least.min(low), most.max(high))
        })
}

/// A sentence on a claim, its figure and how they stand.
pub(super) fn sentence(published: Option<&Published>, outcome: &Outcome) -> String {
    let agreement = Agreement::of(published, outcome);
    match (agreement, outcome) {
        (_, Outcome::Missing(reason)) => format!("Missing: {reason}."),
        (_, Outcome::NotReproduced(reason)) => format!("Not reproduced, by design: {reason}."),
        (_, Outcome::Words(words)) => format!("Found instead of a number: {words}."),
        (Agreement::Agrees, Outcome::Figures(figures)) if are_wide(figures) => {
            "Agrees, but the interval is so wide that much else would: it takes more rounds."
                .to_owned()
        }
        (Agreement::Agrees, _) => "Agrees with what was published.".to_owned(),
        (Agreement::SameDirection, Outcome::Figures(figures)) => {
            format!("Same direction as published, and {}.", sides(published, figures))
        }
        (Agreement::NoDifferenceShown, _) => {
            "No difference is shown here; the paper has one.".to_owned()
        }
        (Agreement::Differs, Outcome::Figures(figures)) => {
            format!("Differs: {}.", sides(published, figures))
        }
        _ if !published.is_some_and(Published::is_number) => {
            "The text gives no number to compare with.".to_owned()
        }
        _ => "Times of different machines are not compared.".to_owned(),
    }
}

/// Whether an interval reaches from one value to its double and more.
fn are_wide(figures: &[Figure]) -> bool {
    let wide = |figure: &Figure| figure.interval.is_some_and(|(low, high)| high > 2.0 * low);
    figures.iter().any(wide)
}

/// On which side of the published figure, and how far, where one number can tell.
fn sides(published: Option<&Published>, figures: &[Figure]) -> String {
    let Some(published) = published else { return String::new() };
    let (low, high) = published.range();
    let (side, end) = if hull(figures).0 > high { ("larger", high) } else { ("smaller", low) };
    match figures {
        [figure] if published.unit.scale == Scale::Exact && end > 0.0 && figure.value > 0.0 => {
            let times = published.middle().map_or(figure.value / end, |one| figure.value / one);
            format!("{side}, {} times what was published", significant(times))
        }
        _ => side.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::published::Unit;
    use super::*;

    #[test]
    fn counts_are_told_in_their_unit() {
        let number = |unit, base| Unit::find(unit).map(|unit| unit.number(base));
        assert_eq!(number("KB", 131_072.0).as_deref(), Some("128"));
        assert_eq!(number("bytes", 4096.0).as_deref(), Some("4096"));
        assert_eq!(number("% more", 1.144).as_deref(), Some("14.4"));
    }

    #[track_caller]
    fn check(unit: &str, published: (f64, f64), measured: (f64, f64), expected: Agreement) {
        let unit = Unit::find(unit).expect("a unit");
        let published = Published { low: Some(published.0), high: Some(published.1), unit };
        let value = f64::midpoint(measured.0, measured.1);
        let figure = Figure { interval: Some(measured), ..Figure::counted(value) };
        assert_eq!(Agreement::of(Some(&published), &Outcome::Figures(vec![figure])), expected);
    }

    #[test]
    fn figures_agree_where_their_ranges_meet() {
        check("% more", (14.4, 14.4), (1.10, 1.20), Agreement::Agrees);
        check("% more", (14.4, 14.4), (1.20, 1.30), Agreement::SameDirection);
        check("% more", (14.4, 14.4), (0.95, 1.05), Agreement::NoDifferenceShown);
        check("% more", (14.4, 14.4), (0.80, 0.90), Agreement::Differs);
        check("times", (12.0, 21.0), (20.0, 40.0), Agreement::Agrees);
        check("bytes", (4096.0, 4096.0), (1024.0, 1024.0), Agreement::Differs);
        check("times", (1.0, f64::INFINITY), (0.9, 1.2), Agreement::NoDifferenceShown);
        check("times", (1.0, f64::INFINITY), (1.1, 1.2), Agreement::Agrees);
        check("s", (72.0, 72.0), (72.0, 72.0), Agreement::NotCompared);
    }

    #[test]
    fn a_number_stands_for_all_that_round_to_it() {
        check("%", (13.0, 13.0), (12.7, 12.7), Agreement::Agrees);
        check("%", (13.0, 13.0), (12.4, 12.4), Agreement::Differs);
        check("of 1", (0.928, 0.928), (0.9284, 0.9284), Agreement::Agrees);
        check("files", (4312.0, 4312.0), (4313.0, 4313.0), Agreement::Differs);
    }
}
