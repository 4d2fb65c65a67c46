//! Charts as SVG: every sample is a dot, every ratio has its interval.

use super::super::format::{bytes, seconds, significant, without_zeros};
use super::super::model::{Against, Group, Point, Progress, Row, Verdict};
use super::super::words;
use fslab_chart::{Drawing, FOOT, MARGIN, Mark, Scale, colour};

const WIDTH: f64 = 380.0;
const WIDE: f64 = 640.0;
const ROW: f64 = 42.0;

/// Distance from the top of a row to the middle of its dots.
const MIDDLE: f64 = 29.0;

/// A chart and its caption.
pub(super) struct Chart {
    pub caption: String,
    pub svg: String,
    pub wide: bool,
    /// The index of the baseline to which the chart belongs, if any.
    pub baseline: Option<usize>,
}

/// Draws the times of one phase: a row of dots for each target, with a bar at its median. With
/// several machines, only the first is shown.
pub(super) fn times(group: &Group, machine: Option<&str>) -> Chart {
    let all: Vec<f64> = points(&group.rows).map(|point| point.seconds).collect();
    let mut drawing = Drawing::new(WIDTH, ROW * group.rows.len() as f64 + FOOT);
    drawing.on_both_axes(&all, MARGIN, WIDTH - 2.0 * MARGIN, |drawing, scale| {
        drawing.axis(scale, time_tick);
        for (index, row) in group.rows.iter().enumerate() {
            let middle = ROW * index as f64 + MIDDLE;
            let dots: Vec<_> = row
                .own_points()
                .enumerate()
                .map(|(place, point)| {
                    ((scale.place(point.seconds), middle + spread(place)), mark(point))
                })
                .collect();
            drawing.open(&colour(row.index));
            drawing.dots(&dots, false);
            drawing.bar(scale.place(row.seconds.median), middle);
            drawing.close();
        }
    });
    for (index, row) in group.rows.iter().enumerate() {
        let values = row.own_points().map(|point| seconds(point.seconds)).collect();
        name_row(&mut drawing, index, row, &seconds(row.seconds.median), values);
    }
    Chart {
        caption: machine.map_or_else(
            || "time of each run; the bar is the median".to_owned(),
            |machine| format!("time of each run on {machine}; the bar is the median"),
        ),
        svg: drawing.finish("Time of each run by target", Scale::is_wide(&all)),
        wide: false,
        baseline: None,
    }
}

/// Draws the ratios of one phase to a baseline. `None` if there is nothing to compare.
pub(super) fn ratios(group: &Group, baseline: usize, name: &str) -> Option<Chart> {
    let rows: Vec<(&Row, &Against)> = group
        .rows
        .iter()
        .filter_map(|row| Some((row, row.against.get(baseline)?)))
        .filter(|(_, against)| against.ratio.is_some())
        .collect();
    if rows.is_empty() {
        return None;
    }
    let scale = scale_of_ratios(&rows);
    let mut drawing = Drawing::new(WIDTH, ROW * rows.len() as f64 + FOOT);
    drawing.axis(&scale, |value| format!("{}\u{d7}", without_zeros(&significant(value))));
    drawing.vertical("one", scale.place(1.0));
    for (index, (row, against)) in rows.iter().enumerate() {
        let Some(ratio) = against.ratio else { continue };
        let middle = ROW * index as f64 + MIDDLE;
        let values = against.ratios.iter().zip(&row.points);
        let values: Vec<(f64, Mark)> =
            values.filter_map(|(ratio, point)| Some(((*ratio)?, mark(point)))).collect();
        let dots: Vec<_> = values
            .iter()
            .enumerate()
            .map(|(place, (value, mark))| ((scale.place(*value), middle + spread(place)), *mark))
            .collect();
        drawing.open(&colour(row.index));
        drawing.dots(&dots, false);
        drawing.interval(&scale, middle, [ratio.low, ratio.ratio, ratio.high]);
        drawing.close();
        let values = values.iter().map(|(value, _)| format!("{value:.3}\u{d7}")).collect();
        name_row(&mut drawing, index, row, &verdict(against), values);
    }
    Some(Chart {
        caption: format!("ratio to {name} in each round, with its interval; right is slower"),
        svg: drawing.finish(&format!("Ratio to {name} by target"), true),
        wide: false,
        baseline: Some(baseline),
    })
}

fn scale_of_ratios(rows: &[(&Row, &Against)]) -> Scale {
    let ends = rows.iter().filter_map(|(_, against)| against.ratio);
    let ends = ends.flat_map(|ratio| [ratio.low, ratio.high]);
    let points = rows.iter().flat_map(|(_, against)| against.ratios.iter().filter_map(|r| *r));
    // An interval from too few rounds may be nearly unbounded. It must not determine the scale,
    // because all other intervals would be too small to read.
    let near: Vec<f64> = points.chain(ends.filter(|end| (0.02..50.0).contains(end))).collect();
    Scale::of_ratios(&near, MARGIN, WIDTH - 2.0 * MARGIN)
}

fn verdict(against: &Against) -> String {
    match against.verdict {
        verdict @ (Verdict::NotShown | Verdict::Equal | Verdict::NotDecided) => {
            format!("{} {}", verdict.mark(), words::verdict(against))
        }
        _ => words::against(against).trim().to_owned(),
    }
}

/// The figures and texts of a chart over the points of a sweep.
struct Sweep {
    /// Computes the figure of a run from its time.
    figure: fn(&Row, f64) -> f64,
    tick: fn(f64) -> String,
    /// Returns the label of a point.
    label: fn(&Group) -> String,
    caption: &'static str,
    title: &'static str,
}

/// Draws the points of a sweep: median time per operation over size, a line for each target.
pub(super) fn sweep(groups: &[&Group]) -> Chart {
    over_points(
        groups,
        &Sweep {
            figure: each,
            tick: time_tick,
            label: |group| bytes(group.size_bytes.unwrap_or(0)),
            caption: "time of one file by its size; lines join the medians, dots are runs",
            title: "Time of one file by its size, a line for each target",
        },
    )
}

/// Draws the scaling of a phase: operations per second over the number of threads, a line for each
/// target.
pub(super) fn scaling(groups: &[&Group]) -> Chart {
    over_points(
        groups,
        &Sweep {
            figure: |row, seconds| each(row, seconds).recip(),
            tick: |value| format!("{}/s", without_zeros(&significant(value))),
            label: |group| group.threads.unwrap_or(1).to_string(),
            caption: "operations a second by the number of threads; lines join the medians, \
                      dots are runs",
            title: "Operations a second by the number of threads, a line for each target",
        },
    )
}

fn over_points(groups: &[&Group], sweep: &Sweep) -> Chart {
    let all: Vec<f64> = groups
        .iter()
        .flat_map(|group| &group.rows)
        .flat_map(|row| row.own_points().map(move |point| (sweep.figure)(row, point.seconds)))
        .collect();
    let (left, bottom) = (64.0, 250.0);
    let step = (WIDE - left - 2.0 * MARGIN) / (groups.len().max(2) - 1) as f64;
    let column = |index: usize| left + MARGIN + step * index as f64;
    let mut drawing = Drawing::new(WIDE, bottom + FOOT);
    drawing.on_both_axes(&all, 0.0, bottom - MARGIN, |drawing, scale| {
        for tick in scale.ticks() {
            drawing.horizontal(left, bottom - scale.place(tick), &(sweep.tick)(tick));
        }
        for target in targets(groups) {
            let rows = groups.iter().enumerate().filter_map(|(index, group)| {
                Some((index, group.rows.iter().find(|row| row.index == target)?))
            });
            let rows: Vec<(usize, &Row)> = rows.collect();
            let place = |index: usize, row: &Row, seconds: f64| {
                (column(index), bottom - scale.place((sweep.figure)(row, seconds)))
            };
            let line: Vec<_> =
                rows.iter().map(|(index, row)| place(*index, row, row.seconds.median)).collect();
            let dots = rows.iter().flat_map(|(index, row)| {
                row.own_points().map(|point| (place(*index, row, point.seconds), mark(point)))
            });
            drawing.open(&colour(target));
            drawing.title(rows.first().map_or("", |(_, row)| &row.target));
            drawing.dots(&dots.collect::<Vec<_>>(), true);
            drawing.line(&line);
            drawing.close();
        }
    });
    let every = groups.len().div_ceil(9).max(1);
    for (index, group) in groups.iter().enumerate().filter(|(index, _)| index % every == 0) {
        let label = (sweep.label)(group);
        drawing.text("tick", "middle", (column(index), bottom + 16.0), &label);
    }
    Chart {
        caption: sweep.caption.to_owned(),
        svg: drawing.finish(sweep.title, true),
        wide: true,
        baseline: None,
    }
}

/// Draws the time per operation during the phase, a line for each target. `None` if it was not
/// measured.
pub(super) fn along(group: &Group) -> Option<Chart> {
    let places = || group.rows.iter().flat_map(|row| &row.along);
    let most = places().map(|place| place.operations).max()? as f64;
    let all: Vec<f64> = places().map(|place| place.seconds_each).collect();
    let (left, bottom) = (64.0, 250.0);
    let x = Scale::linear(&[most / 1.05], left + MARGIN, WIDE - left - 2.0 * MARGIN);
    let mut drawing = Drawing::new(WIDE, bottom + FOOT);
    drawing.axis(&x, |value| format!("{value:.0}"));
    drawing.on_both_axes(&all, 0.0, bottom - MARGIN, |drawing, scale| {
        for tick in scale.ticks() {
            drawing.horizontal(left, bottom - scale.place(tick), &time_tick(tick));
        }
        for row in &group.rows {
            let point = |place: &Progress| {
                (x.place(place.operations as f64), bottom - scale.place(place.seconds_each))
            };
            drawing.open(&colour(row.index));
            drawing.title(&row.target);
            drawing.line(&row.along.iter().map(point).collect::<Vec<_>>());
            drawing.close();
        }
    });
    Some(Chart {
        caption: "time per operation during the phase, by the number of finished operations; \
                  medians of the runs"
            .to_owned(),
        svg: drawing.finish("Time per operation during the phase", Scale::is_wide(&all)),
        wide: true,
        baseline: None,
    })
}

/// Returns the time of one operation.
fn each(row: &Row, value: f64) -> f64 {
    value / row.operations.max(1) as f64
}

/// Returns the sorted indices of the targets that occur.
fn targets(groups: &[&Group]) -> Vec<usize> {
    let mut found: Vec<usize> =
        groups.iter().flat_map(|group| group.rows.iter().map(|row| row.index)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn points(rows: &[Row]) -> impl Iterator<Item = &Point> {
    rows.iter().flat_map(Row::own_points)
}

fn mark(point: &Point) -> Mark {
    Mark { hollow: point.contaminated, ringed: point.outlier }
}

/// Returns the distance of a dot from the middle of its row. It varies, so that dots of equal
/// values do not cover each other.
fn spread(place: usize) -> f64 {
    ((place * 5) % 9) as f64 - 4.0
}

/// Draws the name of a row with its verdict; its values are shown on hover.
fn name_row(drawing: &mut Drawing, index: usize, row: &Row, verdict: &str, values: Vec<String>) {
    let top = ROW * index as f64;
    drawing.open("name");
    drawing.title(&format!("{}: {}", row.target, values.join(", ")));
    drawing.text("", "start", (MARGIN, top + 14.0), &row.target);
    drawing.text("tick", "end", (drawing.width - MARGIN, top + 14.0), verdict);
    drawing.close();
}

/// Formats a time for an axis: zero without a unit, round numbers without decimals.
fn time_tick(value: f64) -> String {
    let text = seconds(value);
    match text.split_once(' ') {
        Some((number, unit)) if value > 0.0 => format!("{} {unit}", without_zeros(number)),
        _ => "0".to_owned(),
    }
}
