//! Draws bar charts. The bars of different series at the same position are side by side.

use super::{BOTTOM, Drawn, LEFT, PLOT, RIGHT, WIDTH, colour, of_axis, short};
use crate::figure::{At, Figure};
use fslab_chart::Drawing;
use fslab_report::distinct;

/// Share of the width of a position that its bars use.
const FILLED: f64 = 0.76;

/// Draws the plot, without title and legend.
pub(super) fn plot(drawn: &Drawn) -> String {
    let mut drawing = Drawing::new(WIDTH - RIGHT, PLOT);
    let places = places(drawn);
    let scale = drawn.vertical(&mut drawing);
    let room = (WIDTH - RIGHT - LEFT) / places.len().max(1) as f64;
    let width = room * FILLED / drawn.names().len().max(1) as f64;
    for (number, place) in places.iter().enumerate() {
        let left = LEFT + room * (number as f64 + (1.0 - FILLED) / 2.0);
        for (index, figure) in at_place(drawn, place) {
            let series = drawn.colour_of(index);
            let from = left + width * series as f64;
            let top = scale.place(of_axis(&drawn.chart.y, figure.value));
            drawing.open(&colour(series));
            drawing.title(&format!("{}, {place}", drawn.chart.lines[index].name));
            drawing.column(from, width * 0.92, top, BOTTOM);
            drawing.close();
            drawn.whisker(&mut drawing, "whisker", from + width * 0.46, figure, &scale);
        }
        let middle = LEFT + room * (number as f64 + 0.5);
        drawing.text("tick", "middle", (middle, BOTTOM + 16.0), place);
    }
    drawing.into_body()
}

/// Returns the texts below the bars, each once and in order.
fn places<'d>(drawn: &'d Drawn) -> Vec<String> {
    let of = |(index, figures): (usize, &'d [Figure])| {
        figures.iter().map(move |figure| name(drawn, index, figure))
    };
    distinct(drawn.series().flat_map(of))
}

fn at_place<'d>(drawn: &'d Drawn, place: &str) -> impl Iterator<Item = (usize, &'d Figure)> {
    let all =
        drawn.series().flat_map(|(index, figures)| figures.iter().map(move |one| (index, one)));
    all.filter(move |(index, figure)| name(drawn, *index, figure) == place)
}

/// Returns the text below a bar.
fn name(drawn: &Drawn, index: usize, figure: &Figure) -> String {
    let number = |at: At| short(of_axis(&drawn.chart.x, at.value));
    let category = drawn.chart.lines[index].category.clone();
    category.or_else(|| figure.at.map(number)).unwrap_or_default()
}
