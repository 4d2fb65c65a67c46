//! Builds an SVG drawing.
//!
//! Marks whose position depends on the axis are drawn twice. A group of class `lin` contains the
//! marks for a linear axis, and a group of class `log` the marks for a logarithmic axis. The page
//! shows one of the two groups.

use super::scale::Scale;
use crate::escape;

/// Pixels left free at each side of the drawing.
pub const MARGIN: f64 = 8.0;
/// Pixels below the drawing, for the marks of the axis.
pub const FOOT: f64 = 22.0;

/// The look of a sample's dot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    /// Draws a hollow dot: the machine was busy with other work during this sample.
    pub hollow: bool,
    /// Draws a ring around the dot: the value is an outlier.
    pub ringed: bool,
}

/// An SVG drawing under construction.
pub struct Drawing {
    body: String,
    /// Width in pixels.
    pub width: f64,
    /// Height in pixels.
    pub height: f64,
}

impl Drawing {
    /// Makes an empty drawing of this width and height in pixels.
    #[must_use]
    pub fn new(width: f64, height: f64) -> Self {
        Self { body: String::new(), width, height }
    }

    /// Opens a group of this class.
    pub fn open(&mut self, class: &str) {
        self.raw(&format!("<g class=\"{class}\">"));
    }

    /// Closes the group that was opened last.
    pub fn close(&mut self) {
        self.raw("</g>");
    }

    /// Sets the title of the open group. It is shown when a pointer rests on the group, and screen
    /// readers read it.
    pub fn title(&mut self, text: &str) {
        self.raw(&format!("<title>{}</title>", escape(text)));
    }

    /// Draws the tick labels of a horizontal axis at the bottom, with a vertical grid line at each
    /// tick.
    pub fn axis(&mut self, scale: &Scale, label: impl Fn(f64) -> String) {
        for tick in scale.ticks() {
            let place = scale.place(tick);
            self.vertical("grid", place);
            let anchor = match place {
                place if place < scale.start + 12.0 => "start",
                place if place > scale.start + scale.length - 12.0 => "end",
                _ => "middle",
            };
            self.text("tick", anchor, (place, self.height - 6.0), &label(tick));
        }
    }

    /// Calls `draw` twice: with a linear axis for `values`, and with a logarithmic one. The page
    /// shows one of the two drawings.
    pub fn on_both_axes(
        &mut self,
        values: &[f64],
        start: f64,
        length: f64,
        draw: impl Fn(&mut Self, &Scale),
    ) {
        let linear = Scale::linear(values, start, length);
        for (class, scale) in [("lin", linear), ("log", Scale::logarithmic(values, start, length))]
        {
            self.open(class);
            draw(self, &scale);
            self.close();
        }
    }

    /// Draws samples as dots. All dots of the same look share one path element, because a large
    /// report would otherwise have hundreds of thousands of elements. Each dot is a line of length
    /// 0, which its round line caps make visible.
    pub fn dots(&mut self, dots: &[((f64, f64), Mark)], small: bool) {
        let path = |wanted: fn(&Mark) -> bool| -> String {
            let chosen = dots.iter().filter(|(_, mark)| wanted(mark));
            chosen.map(|((x, y), _)| format!("M{x:.1} {y:.1}h0")).collect()
        };
        let size = if small { " small" } else { "" };
        let paths = [
            ("ring", path(|mark| mark.ringed)),
            ("dot", path(|mark| !mark.hollow)),
            ("dot", path(|mark| mark.hollow)),
            ("hole", path(|mark| mark.hollow)),
        ];
        for (class, path) in paths.into_iter().filter(|(_, path)| !path.is_empty()) {
            self.raw(&format!("<path class=\"{class}{size}\" d=\"{path}\"/>"));
        }
    }

    /// Draws a vertical bar 16 pixels high.
    pub fn bar(&mut self, x: f64, middle: f64) {
        let (top, bottom) = (middle - 8.0, middle + 8.0);
        self.raw(&format!("<path class=\"bar\" d=\"M{x:.1} {top}V{bottom}\"/>"));
    }

    /// Draws an interval with its estimate. An end that lies beyond the axis has no cap.
    pub fn interval(&mut self, scale: &Scale, y: f64, [low, estimate, high]: [f64; 3]) {
        let (top, bottom) = (y - 5.0, y + 5.0);
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

    /// Draws a vertical line from the top to the axis.
    pub fn vertical(&mut self, class: &str, x: f64) {
        let bottom = self.height - FOOT;
        self.raw(&format!("<path class=\"{class}\" d=\"M{x:.1} 0V{bottom:.1}\"/>"));
    }

    /// Draws a horizontal grid line from `left` to the right border, with a label to its left.
    pub fn horizontal(&mut self, left: f64, y: f64, label: &str) {
        let right = self.width;
        self.raw(&format!("<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>"));
        self.text("tick", "end", (left - 6.0, y + 4.0), label);
    }

    /// Draws a line through points.
    pub fn line(&mut self, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (x, y) in points {
            let verb = if path.is_empty() { 'M' } else { 'L' };
            path.push_str(&format!("{verb}{x:.1} {y:.1}"));
        }
        self.raw(&format!("<path class=\"line\" d=\"{path}\"/>"));
    }

    /// Draws a bar of a bar chart.
    pub fn column(&mut self, left: f64, width: f64, top: f64, bottom: f64) {
        let height = (bottom - top).max(0.0);
        self.raw(&format!(
            "<rect class=\"column\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"/>"
        ));
    }

    /// Draws a vertical interval with a cap at each end.
    pub fn whisker(&mut self, class: &str, x: f64, (from, to): (f64, f64)) {
        let (left, right) = (x - 3.0, x + 3.0);
        self.raw(&format!(
            "<path class=\"{class}\" d=\"M{x:.1} {from:.1}V{to:.1}M{left:.1} {from:.1}H{right:.1}\
             M{left:.1} {to:.1}H{right:.1}\"/>"
        ));
    }

    /// Draws a text at a position, anchored at its `start`, `middle` or `end`.
    pub fn text(&mut self, class: &str, anchor: &str, (x, y): (f64, f64), text: &str) {
        let text = escape(text);
        self.raw(&format!(
            "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">\
             {text}</text>"
        ));
    }

    fn raw(&mut self, markup: &str) {
        self.body.push_str(markup);
    }

    /// Returns the markup without the `svg` element, for use in a larger drawing.
    #[must_use]
    pub fn into_body(self) -> String {
        self.body
    }

    /// Returns the complete `svg` element. `title` is its description for screen readers.
    /// `logarithmic` chooses the axis that the page shows by default.
    #[must_use]
    pub fn finish(self, title: &str, logarithmic: bool) -> String {
        let (width, height, title) = (self.width, self.height, escape(title));
        let axis = if logarithmic { "log" } else { "lin" };
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" data-auto=\"{axis}\" \
             aria-label=\"{title}\">{}</svg>",
            self.body
        )
    }
}
