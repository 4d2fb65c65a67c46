//! Charts of layout scores, over time and by file size.

use fslab_chart::{Drawing, Scale, colour, standalone};

use super::{Class, Score};

/// A line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name of the line in the legend.
    pub name: String,
    /// Pairs of a horizontal position, for example in days, and a score.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 380.0;
/// The edges of the plot, in pixels.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 620.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 320.0;

/// Draws scores over days of use as SVG.
#[must_use]
pub fn chart_over_time(series: &[Series]) -> String {
    draw("Layout score over time", "days of use", 0.0, &|day| Some(format!("{day:.0}")), series)
}

/// Draws scores by file size as SVG; `bytes` formats a size.
#[must_use]
pub fn chart_by_size(name: &str, value: &Score, bytes: &dyn Fn(u64) -> String) -> String {
    let log = |class: &Class| ((class.from_blocks * value.block_bytes) as f64).log2();
    let classes = value.classes();
    let points: Vec<_> =
        classes.iter().filter_map(|class| Some((log(class), class.score?))).collect();
    let from = points.first().map_or(0.0, |point| point.0);
    let label = |log: f64| (log.fract() == 0.0).then(|| bytes(log.exp2() as u64));
    let series = Series { name: name.to_owned(), points };
    draw("Layout score by size of files", "minimum file size", from, &label, &[series])
}

fn draw(
    title: &str,
    axis: &str,
    from: f64,
    label: &dyn Fn(f64) -> Option<String>,
    series: &[Series],
) -> String {
    let all = || series.iter().flat_map(|line| &line.points);
    let last = all().map(|point| point.0).fold(from + 1.0, f64::max);
    let least = all().map(|point| point.1).fold(1.0, f64::min);
    // The vertical scale has a margin at the bottom and spans at least 0.01.
    let least = (least - 0.1 * (1.0 - least)).clamp(0.0, 0.99);
    let xs = Scale::between((from, last), LEFT, RIGHT - LEFT);
    let ys = Scale::between((least, 1.0), BOTTOM, TOP - BOTTOM);
    let mut drawing = Drawing::new(RIGHT, HEIGHT);
    for tick in ys.ticks() {
        drawing.horizontal(LEFT, ys.place(tick), &format!("{tick:.3}"));
    }
    for (tick, text) in xs.ticks().into_iter().filter_map(|tick| Some((tick, label(tick)?))) {
        drawing.text("tick", "middle", (xs.place(tick), BOTTOM + 20.0), &text);
    }
    drawing.text("", "middle", (f64::midpoint(LEFT, RIGHT), BOTTOM + 45.0), axis);
    for (index, line) in series.iter().enumerate() {
        drawing.open(&colour(index));
        let places = line.points.iter().map(|(x, y)| (xs.place(*x), ys.place(*y)));
        drawing.line(&places.collect::<Vec<_>>());
        let beside = 30.0 + 18.0 * index as f64;
        drawing.line(&[(RIGHT + 10.0, beside - 4.0), (RIGHT + 34.0, beside - 4.0)]);
        drawing.text("", "start", (RIGHT + 40.0, beside), &line.name);
        drawing.close();
    }
    standalone(title, WIDTH, HEIGHT, &drawing.into_body())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_has_a_line_and_its_name() {
        let series = |name: &str, last| Series {
            name: name.to_owned(),
            points: vec![(0.0, 1.0), (200.0, last)],
        };
        let svg = chart_over_time(&[series("a < b", 0.9), series("c", 0.5)]);
        assert_eq!(svg.matches("class=\"line\"").count(), 4, "two lines and two of the legend");
        assert!(svg.contains("a &lt; b") && svg.contains(">days of use<"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(chart_over_time(&[]).ends_with("</svg>\n"));
    }
}
