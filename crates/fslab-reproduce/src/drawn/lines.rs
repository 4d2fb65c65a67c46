//! Draws line charts.

use super::{BOTTOM, Drawn, LEFT, PLOT, RIGHT, WIDTH, colour, dot, of_axis, short};
use fslab_chart::{Drawing, Scale};

/// Maximum number of points of a line with dots of normal size. If there are more, the dots are
/// small.
const DOTS_MOST: usize = 30;

/// Maximum number of labels on an axis of sizes.
const TICKS_MOST: usize = 9;

/// Draws the plot, without title and legend.
pub(super) fn plot(drawn: &Drawn) -> String {
    let mut drawing = Drawing::new(WIDTH - RIGHT, PLOT);
    let xs = horizontal(drawn, &mut drawing);
    let ys = drawn.vertical(&mut drawing);
    for (index, figures) in drawn.series() {
        let mut points: Vec<_> =
            figures.iter().filter_map(|one| Some((one.at?.value, one))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        drawing.open(&colour(drawn.colour_of(index)));
        drawing.title(&drawn.chart.lines[index].name);
        let place = |x: f64, y: f64| {
            (xs.place(of_axis(&drawn.chart.x, x)), ys.place(of_axis(&drawn.chart.y, y)))
        };
        for (x, figure) in &points {
            drawn.whisker(&mut drawing, "whisker on-line", place(*x, 0.0).0, figure, &ys);
        }
        let line: Vec<_> = points.iter().map(|(x, figure)| place(*x, figure.value)).collect();
        drawing.line(&line);
        let small = line.len() > DOTS_MOST;
        drawing.dots(&line.into_iter().map(dot).collect::<Vec<_>>(), small);
        drawing.close();
    }
    drawing.into_body()
}

/// Draws the horizontal axis. It is labelled with round numbers. A logarithmic axis is labelled
/// with the positions of points, as in papers whose sizes double from point to point.
fn horizontal(drawn: &Drawn, drawing: &mut Drawing) -> Scale {
    let places = drawn.series().flat_map(|(_, figures)| figures).filter_map(|figure| figure.at);
    let mut values: Vec<f64> = places.map(|at| of_axis(&drawn.chart.x, at.value)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let (start, length) = (LEFT + 8.0, WIDTH - RIGHT - LEFT - 24.0);
    if !drawn.chart.x.logarithmic {
        let scale = Scale::spanning(&values, start, length);
        drawing.axis(&scale, short);
        return scale;
    }
    values.retain(|value| *value > 0.0);
    let scale = Scale::logarithmic(&values, start, length);
    let every = values.len().div_ceil(TICKS_MOST).max(1);
    for value in values.iter().step_by(every) {
        let place = scale.place(*value);
        drawing.vertical("grid", place);
        drawing.text("tick", "middle", (place, BOTTOM + 16.0), &short(*value));
    }
    scale
}
