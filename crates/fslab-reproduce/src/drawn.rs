//! A paper's chart, redrawn with the figures found here. Axes, series and order are the paper's.

mod bars;
mod lines;

use serde::Serialize;

use super::claims::{Axis, Chart, Form, Kind};
use super::figure::{Figure, Outcome};
use super::look_up::Runs;
use super::marks;
use fslab_chart::{Drawing, FOOT, Mark, Scale, colour, escape, standalone};
use fslab_report::{distinct, significant, without_zeros};

const WIDTH: f64 = 680.0;
/// Height of the plot, including the numbers below the horizontal axis.
const PLOT: f64 = 300.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 20.0;
/// Vertical position of the plot's lower end.
const BOTTOM: f64 = PLOT - FOOT;
const LINE: f64 = 18.0;

/// A chart with the outcome of each series.
#[derive(Debug, Serialize)]
pub struct Drawn {
    /// The chart.
    pub chart: Chart,
    /// Outcome of each series, in their order.
    pub outcomes: Vec<Outcome>,
    /// Remarks on the figures of each series.
    pub marks: Vec<Vec<String>>,
    /// Caption of the chart, which is also part of the drawing.
    pub caption: String,
}

impl Drawn {
    /// Finds the outcome of every series of a chart.
    pub(super) fn new(chart: Chart, runs: &Runs) -> Self {
        let outcomes: Vec<Outcome> =
            chart.lines.iter().map(|line| runs.outcome(&line.basis)).collect();
        let lines = chart.lines.iter().zip(&outcomes);
        let marks = lines.map(|(line, outcome)| marks::marks(runs, &line.basis, outcome)).collect();
        let caption = format!("{}; {}", chart.place, kinds(&chart));
        Self { chart, outcomes, marks, caption }
    }

    /// Whether there is anything to draw.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series().next().is_none()
    }

    /// Returns the series with figures, with their indices in the chart.
    fn series(&self) -> impl Iterator<Item = (usize, &[Figure])> {
        self.outcomes.iter().enumerate().filter_map(|(index, outcome)| match outcome {
            Outcome::Figures(figures) => Some((index, figures.as_slice())),
            _ => None,
        })
    }

    /// Returns the names in the legend, each once. The colour of a series is determined by its
    /// position in this list.
    fn names(&self) -> Vec<&str> {
        distinct(self.chart.lines.iter().map(|line| line.name.as_str()))
    }

    fn colour_of(&self, index: usize) -> usize {
        let name = self.chart.lines.get(index).map(|line| line.name.as_str());
        self.names().iter().position(|known| Some(*known) == name).unwrap_or_default()
    }

    /// Returns the reasons why series have no figures, each once.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let reason = |outcome: &Outcome| match outcome {
            Outcome::Figures(_) => None,
            Outcome::Missing(reason) | Outcome::NotReproduced(reason) => Some(reason.clone()),
            Outcome::Words(words) => Some(format!("texts were found instead of numbers: {words}")),
        };
        self.of_series(|index| reason(&self.outcomes[index]).into_iter().collect())
    }

    /// Returns the remarks on series with figures, each once.
    #[must_use]
    pub fn marked(&self) -> Vec<String> {
        self.of_series(|index| self.marks[index].clone())
    }

    /// Combines equal texts of several series, and adds the names of the series.
    fn of_series(&self, texts: impl Fn(usize) -> Vec<String>) -> Vec<String> {
        let mut told: Vec<(String, Vec<&str>)> = Vec::new();
        for (index, line) in self.chart.lines.iter().enumerate() {
            for text in texts(index) {
                match told.iter_mut().find(|(known, _)| *known == text) {
                    Some((_, names)) => names.push(&line.name),
                    None => told.push((text, vec![&line.name])),
                }
            }
        }
        told.into_iter().map(|(text, names)| format!("{}: {text}", names.join(", "))).collect()
    }

    /// Returns the figures of the chart as rows of a table: the series, the position, and the
    /// figure with its interval.
    #[must_use]
    pub fn table(&self) -> Vec<[String; 3]> {
        let mut rows = Vec::new();
        for (index, figures) in self.series() {
            let line = &self.chart.lines[index];
            for figure in figures {
                let place = figure.at.map(|at| at.to_string()).or_else(|| line.category.clone());
                rows.push([line.name.clone(), place.unwrap_or_default(), self.told(figure)]);
            }
        }
        rows
    }

    fn told(&self, figure: &Figure) -> String {
        let number = |base: f64| significant(of_axis(&self.chart.y, base));
        let unit = self.chart.y.unit.map_or("", |unit| unit.name);
        let interval =
            figure.interval.map(|(low, high)| format!(" [{}, {}]", number(low), number(high)));
        format!("{}{} {unit}", number(figure.value), interval.unwrap_or_default())
    }

    /// Returns the drawing for a page that has the style sheet of drawings; empty if there are no
    /// figures.
    #[must_use]
    pub fn inline(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let (body, height) = self.body();
        let title = escape(&self.chart.title);
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">{body}</svg>"
        )
    }

    /// Returns the drawing as a complete SVG file.
    #[must_use]
    pub fn svg(&self) -> String {
        let (body, height) = self.body();
        standalone(&self.chart.title, WIDTH, height, &body)
    }

    /// Draws the title, the legend, the plot and the name of the horizontal axis, from top to
    /// bottom.
    fn body(&self) -> (String, f64) {
        let mut head = Drawing::new(WIDTH, 0.0);
        head.text("name", "start", (8.0, 18.0), &self.chart.title);
        head.text("tick", "start", (8.0, 34.0), &self.caption);
        let legend = self.legend(&mut head, 54.0);
        let y_label = with_unit(&self.chart.y);
        head.text("tick", "start", (8.0, legend + 10.0), &y_label);
        let top = legend + 18.0;
        let foot = top + PLOT + 12.0;
        head.text("tick", "middle", (LEFT + (WIDTH - LEFT) / 2.0, foot), &with_unit(&self.chart.x));
        let plot = match self.chart.form {
            Form::Lines => lines::plot(self),
            Form::Bars => bars::plot(self),
        };
        (format!("{}<g transform=\"translate(0 {top})\">{plot}</g>", head.into_body()), foot + 10.0)
    }

    /// Returns the remark that follows a name in the legend.
    fn remark(&self, colour: usize) -> &'static str {
        let mut series = self.series().filter(|(series, _)| self.colour_of(*series) == colour);
        match series.next() {
            None => " (missing)",
            Some((first, _)) => {
                let mut all = std::iter::once(first).chain(series.map(|(index, _)| index));
                if all.any(|index| !self.marks[index].is_empty()) { " (marked)" } else { "" }
            }
        }
    }

    /// Draws the legend below the vertical position `from`, and returns the position of its lower
    /// end.
    fn legend(&self, drawing: &mut Drawing, from: f64) -> f64 {
        let (mut x, mut y) = (8.0, from);
        for (index, name) in self.names().iter().enumerate() {
            let name = format!("{name}{}", self.remark(index));
            // The width of the text depends on the font. 7 pixels per character are a little more
            // than usual.
            let width = 40.0 + 7.0 * name.chars().count() as f64;
            if x > 8.0 && x + width > WIDTH {
                (x, y) = (8.0, y + LINE);
            }
            drawing.open(&colour(index));
            match self.chart.form {
                Form::Lines => drawing.line(&[(x, y - 4.0), (x + 24.0, y - 4.0)]),
                Form::Bars => drawing.column(x + 6.0, 12.0, y - 10.0, y + 2.0),
            }
            drawing.close();
            drawing.text("", "start", (x + 30.0, y), &name);
            x += width;
        }
        y + LINE - 6.0
    }

    /// Draws the vertical axis. It includes all figures, and the ends of intervals that are near
    /// their figures.
    fn vertical(&self, drawing: &mut Drawing) -> Scale {
        let mut values = Vec::new();
        for figure in self.series().flat_map(|(_, figures)| figures) {
            values.push(of_axis(&self.chart.y, figure.value));
            // If the axis included the ends of a very wide interval, everything else would be too
            // small.
            let ends = figure.interval.into_iter().flat_map(|(low, high)| [low, high]);
            let near = ends.filter(|end| *end < 3.0 * figure.value && *end > figure.value / 3.0);
            values.extend(near.map(|end| of_axis(&self.chart.y, end)));
        }
        let length = -(BOTTOM - 8.0);
        let scale = if self.chart.y.logarithmic {
            Scale::logarithmic(&values, BOTTOM, length)
        } else {
            Scale::spanning(&values, BOTTOM, length)
        };
        for tick in scale.ticks() {
            drawing.horizontal(LEFT, scale.place(tick), &short(tick));
        }
        scale
    }

    /// Draws the interval of a figure.
    fn whisker(&self, drawing: &mut Drawing, class: &str, x: f64, figure: &Figure, scale: &Scale) {
        if let Some((low, high)) = figure.interval {
            let place = |end: f64| scale.place(of_axis(&self.chart.y, end));
            drawing.whisker(class, x, (place(low), place(high)));
        }
    }
}

/// Converts a base value to the unit of an axis.
fn of_axis(axis: &Axis, base: f64) -> f64 {
    axis.unit.map_or(base, |unit| unit.of_base(base))
}

fn with_unit(axis: &Axis) -> String {
    match axis.unit {
        Some(unit) if !axis.label.ends_with(unit.name) => format!("{}, {}", axis.label, unit.name),
        _ => axis.label.clone(),
    }
}

/// Returns text on how the figures of a chart were obtained.
fn kinds(chart: &Chart) -> String {
    let of = |kind: Kind| chart.lines.iter().any(|line| line.kind == kind).then(|| kind.name());
    let kinds = [Kind::Measured, Kind::Simulated, Kind::Modelled].map(of);
    format!("{} by fslab", kinds.into_iter().flatten().collect::<Vec<_>>().join(" and "))
}

/// Returns a number for an axis without trailing zeros. Long numbers are written with a power of
/// ten.
fn short(value: f64) -> String {
    const LONG: f64 = 1e7;
    if value.abs() >= LONG {
        return format!("{value:e}");
    }
    without_zeros(&significant(value))
}

fn dot(place: (f64, f64)) -> ((f64, f64), Mark) {
    (place, Mark::default())
}
