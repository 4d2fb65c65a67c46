//! Checks whether measured figures agree with published ones.
//!
//! Each point is checked separately, by the whole confidence interval of its figure. A range, a
//! bound or a figure with a margin agrees if the interval lies inside it, and fails if the interval
//! lies outside. It is not decided if the interval contains an end of the range.
//!
//! A measurement can contradict a single number, but not prove it. The number agrees if the
//! interval contains it and is narrow. A wide interval decides nothing, because it contains many
//! other numbers, too. Times are not compared because they were measured on different machines.
//! Claims that are inputs or definitions can't fail and are not counted.

use serde::Serialize;

use super::claims::Kind;
use super::figure::{Figure, Outcome};
use super::published::{Published, Scale};
use fslab_report::significant;

/// The result of comparing a claim with the figure found here.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// The claim holds at every point.
    Agrees,
    /// The claim holds at some points and fails at others.
    Partly,
    /// The claim fails, but both ratios lie on the same side of 1.
    SameDirection,
    /// The claim fails.
    Differs,
    /// The interval is too wide to decide.
    NotDecided,
    /// The published and the measured figure can't be compared.
    NotCompared,
    /// The claim is an input or a definition, which can't fail.
    NotCounted,
    /// No figure was found here.
    Missing,
    /// The claim is deliberately not reproduced.
    NotReproduced,
}

impl Agreement {
    /// Returns the name for tables, in one to three words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Partly => "agrees in part",
            Self::SameDirection => "same direction",
            Self::Differs => "differs",
            Self::NotDecided => "not decided",
            Self::NotCompared => "not compared",
            Self::NotCounted => "not counted",
            Self::Missing => "missing",
            Self::NotReproduced => "not reproduced",
        }
    }

    /// Combines the judgements of all points into one judgement of the claim.
    fn of_points(points: &[Self]) -> Self {
        let any = |wanted: Self| points.contains(&wanted);
        let fails = any(Self::Differs) || any(Self::SameDirection);
        match (any(Self::Agrees), fails) {
            (true, true) => Self::Partly,
            (false, true) if any(Self::Differs) => Self::Differs,
            (false, true) => Self::SameDirection,
            (true, false) if !any(Self::NotDecided) => Self::Agrees,
            _ => Self::NotDecided,
        }
    }
}

/// The judgement of a claim, as a whole and at each of its points.
#[derive(Debug)]
pub(super) struct Standing {
    pub agreement: Agreement,
    /// The judgement of each figure, in their order; empty if nothing is judged.
    pub points: Vec<Agreement>,
    /// The judgement as a sentence.
    pub sentence: String,
}

impl Standing {
    /// Compares a published figure with the figures found here.
    pub fn of(kind: Kind, published: Option<&Published>, outcome: &Outcome) -> Self {
        let whole = |agreement, sentence: String| Self { agreement, points: Vec::new(), sentence };
        let figures = match outcome {
            Outcome::Missing(reason) => {
                return whole(Agreement::Missing, format!("Missing: {reason}."));
            }
            Outcome::NotReproduced(reason) => {
                let sentence = format!("Not reproduced, by design: {reason}.");
                return whole(Agreement::NotReproduced, sentence);
            }
            Outcome::Words(words) => {
                let sentence = format!("A text was found instead of a number: {words}.");
                return whole(Agreement::NotCompared, sentence);
            }
            Outcome::Figures(figures) => figures,
        };
        if let Some(reason) = kind.why_not_counted() {
            return whole(Agreement::NotCounted, format!("Not counted: {reason}."));
        }
        let Some(published) = published.filter(|published| published.is_number()) else {
            let sentence = "The text gives no number to compare with.".to_owned();
            return whole(Agreement::NotCompared, sentence);
        };
        if published.unit.scale == Scale::Machine {
            let sentence = "Times of different machines are not compared.".to_owned();
            return whole(Agreement::NotCompared, sentence);
        }
        let points: Vec<Agreement> =
            figures.iter().map(|figure| judge(published, figure)).collect();
        let sentence = match figures.as_slice() {
            [figure] => of_one(published, figure, Agreement::of_points(&points)),
            _ => of_many(figures, &points),
        };
        Self { agreement: Agreement::of_points(&points), points, sentence }
    }
}

/// Returns the ends of a figure's interval. Both ends of a counted figure are its value. `None` for
/// a single round, which has no interval.
fn ends(figure: &Figure) -> Option<(f64, f64)> {
    let counted = (figure.rounds == 0).then_some((figure.value, figure.value));
    figure.interval.or(counted)
}

fn judge(published: &Published, figure: &Figure) -> Agreement {
    let (low, high) = published.range();
    let Some((least, most)) = ends(figure) else { return Agreement::NotDecided };
    let is_ratio = published.unit.scale == Scale::Ratio;
    // Exactly equal times are neither faster nor slower.
    let ends_at_one = |end: f64| is_ratio && published.margin.is_none() && end == 1.0;
    let above = |value: f64| value > low || value == low && !ends_at_one(low);
    let below = |value: f64| value < high || value == high && !ends_at_one(high);
    if above(least) && below(most) {
        return Agreement::Agrees;
    }
    if below(least) && above(most) {
        let shows_effect = !is_ratio || least > 1.0 || most < 1.0;
        let contradicts_others = most <= WIDE * least && shows_effect;
        let stands = published.is_single_number() && contradicts_others;
        return if stands { Agreement::Agrees } else { Agreement::NotDecided };
    }
    let same_side = low > 1.0 && least > 1.0 || high < 1.0 && most < 1.0;
    if is_ratio && same_side { Agreement::SameDirection } else { Agreement::Differs }
}

/// Maximum ratio of an interval's ends for agreement with a single number. A wider interval
/// contains too many other numbers.
const WIDE: f64 = 2.0;

/// Maximum number of points that a sentence lists; further points are only counted.
const PLACES_MOST: usize = 6;

fn of_one(published: &Published, figure: &Figure, agreement: Agreement) -> String {
    match agreement {
        Agreement::Agrees => "Agrees with the published figure.".to_owned(),
        Agreement::SameDirection => {
            format!("Same direction as published, and {}.", side(published, figure))
        }
        Agreement::NotDecided if ends(figure).is_none() => {
            "Not decided: one round has no interval.".to_owned()
        }
        Agreement::NotDecided => {
            "Not decided: the interval is too wide; run more rounds or larger sizes.".to_owned()
        }
        _ => format!("Differs: {}.", side(published, figure)),
    }
}

fn of_many(figures: &[Figure], points: &[Agreement]) -> String {
    let of = |wanted: &[Agreement]| -> Vec<String> {
        let place = |figure: &Figure| figure.at.map(|at| at.to_string()).unwrap_or_default();
        let found = figures.iter().zip(points).filter(|(_, point)| wanted.contains(point));
        found.map(|(figure, _)| place(figure)).collect()
    };
    let agree = of(&[Agreement::Agrees]).len();
    let mut parts = vec![format!("Agrees at {agree} of {} points", points.len())];
    let others = [
        ("differs at", of(&[Agreement::Differs, Agreement::SameDirection])),
        ("not decided at", of(&[Agreement::NotDecided])),
    ];
    for (what, mut places) in others.into_iter().filter(|(_, places)| !places.is_empty()) {
        let more = places.len().saturating_sub(PLACES_MOST);
        places.truncate(PLACES_MOST);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        parts.push(format!("{what} {}{more}", places.join(", ")));
    }
    format!("{}.", parts.join("; "))
}

/// Returns text on whether the measured figure is above or below the published one. For exact
/// units, the text includes the factor.
fn side(published: &Published, figure: &Figure) -> String {
    let (low, high) = published.range();
    if published.unit.scale == Scale::Ratio && ends(figure) == Some((1.0, 1.0)) {
        return "exactly equal".to_owned();
    }
    let is_larger = ends(figure).is_some_and(|(least, _)| least > high);
    let (side, end) = if is_larger { ("larger", high) } else { ("smaller", low) };
    if published.unit.scale == Scale::Exact && end > 0.0 && figure.value > 0.0 {
        let times = published.middle().map_or(figure.value / end, |one| figure.value / one);
        return format!("{side}, {} times the published figure", significant(times));
    }
    side.to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::figure::{At, AtUnit};
    use super::super::published::Unit;
    use super::Agreement::{
        Agrees, Differs, NotCompared, NotCounted, NotDecided, Partly, SameDirection,
    };
    use super::*;

    #[test]
    fn figures_are_shown_in_their_unit() {
        let number = |unit, base| Unit::find(unit).map(|unit| unit.number(base));
        assert_eq!(number("KB", 131_072.0).as_deref(), Some("128"));
        assert_eq!(number("bytes", 4096.0).as_deref(), Some("4096"));
        assert_eq!(number("% more", 1.144).as_deref(), Some("14.4"));
    }

    fn published(unit: &str, (low, high): (f64, f64), margin: Option<f64>) -> Published {
        let open = |end: f64| end.is_finite().then_some(end);
        let unit = Unit::find(unit).expect("a unit");
        Published { low: open(low), high: open(high), margin, unit }
    }

    fn figure((low, high): (f64, f64)) -> Figure {
        let value = f64::midpoint(low, high);
        Figure { interval: Some((low, high)), rounds: 10, ..Figure::counted(value) }
    }

    fn standing(published: &Published, figures: Vec<Figure>) -> Standing {
        Standing::of(Kind::Measured, Some(published), &Outcome::Figures(figures))
    }

    #[track_caller]
    fn check(unit: &str, ends: (f64, f64), measured: (f64, f64), expected: Agreement) {
        let found = standing(&published(unit, ends, None), vec![figure(measured)]);
        assert_eq!(found.agreement, expected, "{}", found.sentence);
    }

    const OPEN: f64 = f64::INFINITY;

    #[test]
    fn number_agrees_if_a_narrow_interval_contains_it() {
        check("% more", (14.4, 14.4), (1.10, 1.20), Agrees);
        check("% more", (14.4, 14.4), (1.20, 1.30), SameDirection);
        check("% more", (14.4, 14.4), (0.95, 1.05), Differs);
        check("% more", (14.4, 14.4), (0.80, 0.90), Differs);
        // Each interval contains the number. The first also contains 1, which means no effect; the
        // second also contains half and double the number.
        check("% more", (14.4, 14.4), (0.95, 1.20), NotDecided);
        check("times", (77.0, 77.0), (40.0, 160.0), NotDecided);
        check("bytes", (4096.0, 4096.0), (1024.0, 1024.0), Differs);
        check("s", (72.0, 72.0), (72.0, 72.0), NotCompared);
    }

    #[test]
    fn range_agrees_only_if_it_contains_the_whole_interval() {
        check("times", (12.0, 21.0), (13.0, 20.0), Agrees);
        check("times", (12.0, 21.0), (20.0, 40.0), NotDecided);
        check("times", (12.0, 21.0), (22.0, 40.0), SameDirection);
        check("times", (1.0, OPEN), (0.9, 1.2), NotDecided);
        check("times", (1.0, OPEN), (1.1, 1.2), Agrees);
        check("times", (1.0, OPEN), (0.8, 0.9), Differs);
        // Equal is not treated as faster.
        check("times", (1.0, OPEN), (1.0, 1.0), Differs);
        check("times", (-OPEN, 1.0), (1.0, 1.0), Differs);
        check("times", (1.0, OPEN), (1.0, 1.2), NotDecided);
        check("% more", (-OPEN, 2.0), (0.98, 1.01), Agrees);
        // The interval only touches the bound.
        check("% more", (-OPEN, 2.0), (0.94, 1.10), NotDecided);
        check("% more", (-OPEN, 2.0), (1.03, 1.10), Differs);
    }

    /// A published equality agrees only if the whole interval lies within the margin. If the last
    /// creations in a directory cost 1.45 times as much as the first, the cost is not linear.
    #[test]
    fn difference_beyond_the_margin_contradicts_equality() {
        let equal = published("times", (1.0, 1.0), Some(0.05));
        for (measured, expected) in [
            ((0.98, 1.03), Agrees),
            ((1.40, 1.50), Differs),
            ((1.06, 1.07), Differs),
            ((0.97, 1.07), NotDecided),
            ((0.50, 1.50), NotDecided),
        ] {
            let found = standing(&equal, vec![figure(measured)]);
            assert_eq!(found.agreement, expected, "{measured:?}");
        }
        assert_eq!(equal.words(), "equal within 5 %");
    }

    /// If one point is outside, a claim about a sweep does not agree. Points on different sides of
    /// the range do not compensate for each other.
    #[test]
    fn a_point_outside_the_range_fails_the_claim() {
        let range = published("% more", (22.0, 418.0), None);
        let at = |kib: u32, ends: (f64, f64)| Figure {
            at: Some(At { value: f64::from(kib) * 1024.0, unit: AtUnit::Bytes }),
            ..figure(ends)
        };
        let (inside, below, above) = ((1.5, 1.6), (0.8, 0.9), (6.0, 7.0));
        let crossing = (1.1, 1.5);
        for (points, expected) in [
            (vec![inside, inside], Agrees),
            (vec![inside, below], Partly),
            (vec![inside, above, inside], Partly),
            (vec![below, above], Differs),
            (vec![above, above], SameDirection),
            (vec![inside, crossing], NotDecided),
            (vec![crossing, above], SameDirection),
            (vec![crossing, crossing], NotDecided),
        ] {
            let figures = (1..).zip(&points).map(|(kib, ends)| at(kib, *ends)).collect();
            let found = standing(&range, figures);
            assert_eq!(found.agreement, expected, "{points:?}");
        }
        let found = standing(&range, vec![at(1, inside), at(2, below), at(4, crossing)]);
        let expected =
            "Agrees at 1 of 3 points; differs at 2 KiB; not decided at 4 KiB.".to_owned();
        assert_eq!((found.points, found.sentence), (vec![Agrees, Differs, NotDecided], expected));
    }

    #[test]
    fn single_round_gives_no_agreement() {
        let once = Figure { rounds: 1, ..Figure::counted(1.144) };
        let found = standing(&published("% more", (14.4, 14.4), None), vec![once]);
        assert_eq!(found.agreement, NotDecided);
    }

    #[test]
    fn inputs_and_definitions_are_not_counted() {
        for kind in [Kind::Input, Kind::Definition] {
            let outcome = Outcome::Figures(vec![Figure::counted(12.0)]);
            let published = published("blocks", (12.0, 12.0), None);
            let found = Standing::of(kind, Some(&published), &outcome);
            assert_eq!((found.agreement, found.points), (NotCounted, Vec::new()));
        }
    }

    #[test]
    fn number_agrees_with_values_that_round_to_it() {
        check("%", (13.0, 13.0), (12.7, 12.7), Agrees);
        check("%", (13.0, 13.0), (12.4, 12.4), Differs);
        check("of 1", (0.928, 0.928), (0.9284, 0.9284), Agrees);
        check("files", (4312.0, 4312.0), (4313.0, 4313.0), Differs);
    }
}
