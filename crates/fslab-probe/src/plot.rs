//! Draws the measured points of answers: one SVG, with a panel for each method that has enough
//! points.

use super::Answer;
use super::finding::{Method, Point};
use fslab_chart::{Drawing, FOOT, Mark, Scale, escape, standalone};

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 76.0;
const HEAD: f64 = 46.0;
const GAP: f64 = 20.0;
const TITLE: f64 = 40.0;
const COLUMNS: usize = 2;

/// Minimum number of points of a panel.
const PAIRS_LEAST: usize = 3;

/// Draws the measured points of all methods of these answers. Methods with few points are left out.
#[must_use]
pub fn plot(title: &str, answers: &[Answer]) -> String {
    let panels: Vec<String> = answers
        .iter()
        .flat_map(|answer| {
            let methods = answer.finding.methods.iter().chain(&answer.timing);
            methods.map(|method| (answer.attribute.name, method))
        })
        .filter(|(_, method)| method.series.len() >= PAIRS_LEAST)
        .map(|(attribute, method)| panel(attribute, method))
        .collect();
    let rows = panels.len().div_ceil(COLUMNS);
    let width = COLUMNS as f64 * (WIDTH + GAP) + GAP;
    let height = TITLE + rows as f64 * (HEIGHT + GAP) + GAP;
    let placed: String =
        panels.iter().enumerate().map(|(index, panel)| place(index, panel)).collect();
    let head = format!("<text class=\"name\" x=\"{GAP}\" y=\"26\">{}</text>", escape(title));
    standalone(title, width, height, &format!("<g class=\"t0\">{head}{placed}</g>"))
}

fn place(index: usize, panel: &str) -> String {
    let x = GAP + (index % COLUMNS) as f64 * (WIDTH + GAP);
    let y = TITLE + (index / COLUMNS) as f64 * (HEIGHT + GAP);
    format!("<g transform=\"translate({x} {y})\">{panel}</g>")
}

fn panel(attribute: &str, method: &Method) -> String {
    let mut drawing = Drawing::new(WIDTH, HEIGHT);
    let outcome = match &method.outcome {
        Ok(value) => value.to_string(),
        Err(reason) => format!("no answer: {reason}"),
    };
    drawing.title(&format!("{attribute}: {}: {outcome}", method.name));
    drawing.text("name", "start", (0.0, 12.0), &shortened(&format!("{attribute}: {outcome}")));
    drawing.text("tick", "start", (0.0, 28.0), &shortened(method.name));
    let all = || method.series.iter().chain(&method.samples);
    let xs = scale(all().map(|point| point.x), LEFT, WIDTH - LEFT);
    let ys = scale(all().map(|point| point.y), HEIGHT - FOOT, HEAD - HEIGHT + FOOT);
    drawing.axis(&xs, number);
    for tick in ys.ticks() {
        drawing.horizontal(LEFT, ys.place(tick), &number(tick));
    }
    let at = |point: &Point| (xs.place(point.x as f64), ys.place(point.y as f64));
    let mut line: Vec<Point> = method.series.clone();
    // The points are sorted, because a search does not measure them in the order of the axis.
    line.sort_by_key(|point| point.x);
    let dots = |points: &[Point]| -> Vec<_> {
        points.iter().map(|point| (at(point), Mark::default())).collect()
    };
    drawing.dots(&dots(&method.samples), true);
    drawing.line(&line.iter().map(at).collect::<Vec<_>>());
    drawing.dots(&dots(&line), false);
    drawing.into_body()
}

/// Returns an axis that contains all values. It is logarithmic if they differ much and none is 0.
fn scale(values: impl Iterator<Item = u64>, start: f64, length: f64) -> Scale {
    let values: Vec<f64> = values.map(|value| value as f64).collect();
    if Scale::is_wide(&values) {
        Scale::logarithmic(&values, start, length)
    } else {
        Scale::linear(&values, start, length)
    }
}

/// Formats a number with a binary prefix, such as "64 Ki".
fn number(value: f64) -> String {
    const LETTERS: [&str; 5] = ["", " Ki", " Mi", " Gi", " Ti"];
    let mut rest = value;
    let mut letter = 0;
    while rest >= 10_240.0 && letter + 1 < LETTERS.len() {
        rest /= 1024.0;
        letter += 1;
    }
    if rest < 10.0 && rest.fract() != 0.0 {
        format!("{rest:.1}{}", LETTERS[letter])
    } else {
        format!("{rest:.0}{}", LETTERS[letter])
    }
}

/// Cuts a text to the width of a panel.
fn shortened(text: &str) -> String {
    const FITS: usize = 72;
    match text.char_indices().nth(FITS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ATTRIBUTES;
    use crate::finding::{Finding, Value};

    fn answer(name: &'static str, pairs: u64) -> Answer {
        let series = (0..pairs).map(|x| Point { x, y: 1 + x * x * 1000 }).collect();
        let finding = Finding::by(Method::found(name, Value::Count(1), series));
        Answer { attribute: ATTRIBUTES[0], finding, timing: None }
    }

    #[test]
    fn methods_with_pairs_have_panels_and_text_is_escaped() {
        let svg = plot("ext4 at /a&b", &[answer("a < b", 9), answer("too few", 2)]);
        assert_eq!(svg.matches("<g transform").count(), 1);
        assert!(svg.contains("a &lt; b") && svg.contains("/a&amp;b") && !svg.contains("too few"));
        assert!(svg.starts_with("<svg xmlns") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn numbers_are_shown_with_binary_prefixes() {
        assert_eq!(number(512.0), "512");
        assert_eq!(number(65_536.0), "64 Ki");
        assert_eq!(number((64_u64 << 20) as f64), "64 Mi");
    }
}
