//! Charts, drawn by hand as SVG: every sample is a dot, every ratio has its interval.

use std::fmt::Write;

use super::super::format::{bytes, factor, seconds, significant};
use super::super::model::{Group, Row};
use super::scale::Scale;
use super::{colour, escape};

const WIDTH: f64 = 380.0;
const WIDE: f64 = 640.0;
const ROW: f64 = 40.0;
const MARGIN: f64 = 8.0;
const FOOT: f64 = 22.0;

/// A chart and what it shows.
pub(super) struct Chart {
    pub caption: String,
    pub svg: String,
    pub wide: bool,
}

/// The times of one phase: a row of dots for each target, a bar at its median.
pub(super) fn times(group: &Group) -> Chart {
    let all: Vec<f64> =
        group.rows.iter().flat_map(|row| row.points.iter().map(|point| point.seconds)).collect();
    let scale = Scale::of_times(&all, MARGIN, WIDTH - 2.0 * MARGIN);
    let mut drawing = Drawing::rows(group.rows.len(), &scale, time_tick);
    for (index, row) in group.rows.iter().enumerate() {
        drawing.open_row(index, row, &seconds(row.seconds.median));
        for point in &row.points {
            let label = format!("round {}: {}", point.round + 1, seconds(point.seconds));
            drawing.dot(scale.place(point.seconds), point.contaminated, &label);
        }
        drawing.median(scale.place(row.seconds.median));
        drawing.close_row();
    }
    let caption = "time of each run; the bar is the median".to_owned();
    Chart { caption, svg: drawing.finish("Time of each run by target"), wide: false }
}

/// The ratios of one phase to the baseline. `None` where there is nothing to compare.
pub(super) fn ratios(group: &Group) -> Option<Chart> {
    let rows: Vec<&Row> = group.rows.iter().filter(|row| row.ratio.is_some()).collect();
    if rows.is_empty() {
        return None;
    }
    let ends = rows.iter().filter_map(|row| row.ratio).flat_map(|ratio| [ratio.low, ratio.high]);
    let points = rows.iter().flat_map(|row| row.points.iter().filter_map(|point| point.ratio));
    // An interval that a few rounds leave boundless must not press all else together.
    let near: Vec<f64> = points.chain(ends.filter(|end| (0.02..50.0).contains(end))).collect();
    let scale = Scale::of_ratios(&near, MARGIN, WIDTH - 2.0 * MARGIN);
    let mut drawing =
        Drawing::rows(rows.len(), &scale, |value| format!("{}\u{d7}", trimmed(value)));
    drawing.vertical("one", scale.place(1.0));
    for (index, row) in rows.iter().enumerate() {
        let Some(ratio) = row.ratio else { continue };
        let verdict = if ratio.shows_difference() {
            let [middle, low, high] = [ratio.ratio, ratio.low, ratio.high].map(factor);
            format!("{middle}\u{d7} [{low}, {high}]")
        } else {
            "~ no difference shown".to_owned()
        };
        drawing.open_row(index, row, &verdict);
        for point in &row.points {
            let Some(value) = point.ratio else { continue };
            let label = format!("round {}: {value:.3}\u{d7}", point.round + 1);
            drawing.dot(scale.place(value), point.contaminated, &label);
        }
        drawing.interval(&scale, [ratio.low, ratio.ratio, ratio.high]);
        drawing.close_row();
    }
    let caption = "ratio to the baseline in each round, with its interval; right is slower";
    let svg = drawing.finish("Ratio to the baseline by target");
    Some(Chart { caption: caption.to_owned(), svg, wide: false })
}

/// The points of a sweep: median time of one operation against size, a line for each target.
pub(super) fn sweep(points: &[&Group]) -> Chart {
    let each = |row: &Row, value: f64| value / row.operations.max(1) as f64;
    let all: Vec<f64> = points
        .iter()
        .flat_map(|group| &group.rows)
        .flat_map(|row| row.points.iter().map(move |point| each(row, point.seconds)))
        .collect();
    let (left, bottom) = (64.0, 250.0);
    let y = Scale::logarithmic(&all, 0.0, bottom - MARGIN);
    let step = (WIDE - left - 2.0 * MARGIN) / (points.len().max(2) - 1) as f64;
    let place =
        |column: usize, value: f64| (left + MARGIN + step * column as f64, bottom - y.place(value));
    let mut drawing = Drawing::new(WIDE, bottom + FOOT);
    for tick in y.ticks() {
        let height = bottom - y.place(tick);
        drawing.horizontal(left, height, &time_tick(tick));
    }
    let every = points.len().div_ceil(9).max(1);
    for (column, group) in points.iter().enumerate().filter(|(column, _)| column % every == 0) {
        let label = bytes(group.size_bytes.unwrap_or(0));
        drawing.text("tick", "middle", (place(column, 1.0).0, bottom + 16.0), &label);
    }
    for target in targets(points) {
        drawing.raw(&format!("<g class=\"{}\">", colour(target)));
        let mut path = String::new();
        for (column, group) in points.iter().enumerate() {
            let Some(row) = group.rows.iter().find(|row| row.index == target) else { continue };
            let (x, height) = place(column, each(row, row.seconds.median));
            let verb = if path.is_empty() { 'M' } else { 'L' };
            path.push_str(&format!("{verb}{x:.1} {height:.1}"));
            for point in &row.points {
                let value = each(row, point.seconds);
                let (x, height) = place(column, value);
                let label =
                    format!("{}, round {}: {}", row.target, point.round + 1, seconds(value));
                drawing.dot_at((x, height), 1.8, point.contaminated, &label);
            }
        }
        drawing.raw(&format!("<path class=\"line\" d=\"{path}\"/></g>"));
    }
    Chart {
        caption: "time of one file by its size; lines join the medians, dots are runs".to_owned(),
        svg: drawing.finish("Time of one file by its size, a line for each target"),
        wide: true,
    }
}

/// Indices of the targets that occur, in order.
pub(super) fn targets(groups: &[&Group]) -> Vec<usize> {
    let mut found: Vec<usize> =
        groups.iter().flat_map(|group| group.rows.iter().map(|row| row.index)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// A ratio without needless zeros.
fn trimmed(value: f64) -> String {
    without_zeros(&significant(value))
}

/// A time as a mark on an axis: the zero needs no unit, round numbers no decimals.
fn time_tick(value: f64) -> String {
    let text = seconds(value);
    match text.split_once(' ') {
        Some((number, unit)) if value > 0.0 => format!("{} {unit}", without_zeros(number)),
        _ => "0".to_owned(),
    }
}

fn without_zeros(number: &str) -> String {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        number.to_owned()
    }
}

/// An SVG that is being drawn.
struct Drawing {
    body: String,
    width: f64,
    height: f64,
    /// Middle of the row that is open.
    middle: f64,
}

impl Drawing {
    fn new(width: f64, height: f64) -> Self {
        Self { body: String::new(), width, height, middle: 0.0 }
    }

    /// Rows over a common horizontal axis.
    fn rows(count: usize, scale: &Scale, label: impl Fn(f64) -> String) -> Self {
        let mut drawing = Self::new(WIDTH, ROW * count as f64 + FOOT);
        for tick in scale.ticks() {
            let place = scale.place(tick);
            drawing.vertical("grid", place);
            let anchor = match place {
                place if place < scale.start + 12.0 => "start",
                place if place > scale.start + scale.length - 12.0 => "end",
                _ => "middle",
            };
            let foot = drawing.height - 6.0;
            drawing.text("tick", anchor, (place, foot), &label(tick));
        }
        drawing
    }

    fn open_row(&mut self, index: usize, row: &Row, verdict: &str) {
        let top = ROW * index as f64;
        self.middle = top + 27.0;
        self.raw(&format!("<g class=\"{}\">", colour(row.index)));
        let baseline = if row.is_baseline { " (baseline)" } else { "" };
        self.text("name", "start", (MARGIN, top + 14.0), &format!("{}{baseline}", row.target));
        self.text("tick", "end", (self.width - MARGIN, top + 14.0), verdict);
    }

    fn close_row(&mut self) {
        self.raw("</g>");
    }

    fn dot(&mut self, x: f64, hollow: bool, label: &str) {
        self.dot_at((x, self.middle), 3.5, hollow, label);
    }

    /// A sample; hollow where the machine did other things.
    fn dot_at(&mut self, (x, y): (f64, f64), radius: f64, hollow: bool, label: &str) {
        let (class, more) = if hollow {
            ("dot hollow", ", while the machine did other things")
        } else {
            ("dot", "")
        };
        let label = escape(label);
        self.raw(&format!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\">\
             <title>{label}{more}</title></circle>"
        ));
    }

    fn median(&mut self, x: f64) {
        let (top, bottom) = (self.middle - 7.0, self.middle + 7.0);
        self.raw(&format!("<path class=\"bar\" d=\"M{x:.1} {top}V{bottom}\"/>"));
    }

    /// An interval with its estimate. An end that lies beyond the axis has no cap.
    fn interval(&mut self, scale: &Scale, [low, estimate, high]: [f64; 3]) {
        let (y, top, bottom) = (self.middle, self.middle - 5.0, self.middle + 5.0);
        let (left, right) = (scale.place(low), scale.place(high));
        let mut path = format!("M{left:.1} {y}H{right:.1}");
        for (value, x) in [(low, left), (high, right)] {
            if scale.holds(value) {
                path.push_str(&format!("M{x:.1} {top}V{bottom}"));
            }
        }
        let x = scale.place(estimate);
        self.raw(&format!(
            "<path class=\"bar\" d=\"{path}\"/>\
             <path class=\"mark\" d=\"M{x:.1} {}l4.5 4.5l-4.5 4.5l-4.5 -4.5z\"/>",
            y - 4.5
        ));
    }

    fn vertical(&mut self, class: &str, x: f64) {
        let bottom = self.height - FOOT;
        self.raw(&format!("<path class=\"{class}\" d=\"M{x:.1} 0V{bottom:.1}\"/>"));
    }

    fn horizontal(&mut self, left: f64, y: f64, label: &str) {
        let right = self.width;
        self.raw(&format!("<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>"));
        self.text("tick", "end", (left - 6.0, y + 4.0), label);
    }

    fn text(&mut self, class: &str, anchor: &str, (x, y): (f64, f64), text: &str) {
        let text = escape(text);
        self.raw(&format!(
            "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">\
             {text}</text>"
        ));
    }

    fn raw(&mut self, markup: &str) {
        self.body.push_str(markup);
    }

    fn finish(self, title: &str) -> String {
        let mut svg = String::new();
        let (width, height) = (self.width, self.height);
        let written = write!(
            svg,
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">{}</svg>",
            escape(title),
            self.body
        );
        debug_assert!(written.is_ok(), "writing to a string can't fail");
        svg
    }
}
