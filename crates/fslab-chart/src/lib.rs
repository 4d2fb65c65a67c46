//! Charts as SVG.
//!
//! A [`Scale`] maps values to positions, and a [`Drawing`] collects lines, dots and texts.
//! [`standalone`] makes an SVG file from a drawing, with colours for light and dark pages.
//! [`heat_map()`] draws rows of shaded cells, and [`stripes()`] draws rows of coloured stripes.
//!
//! ```
//! use fslab_chart::{Drawing, Scale, standalone};
//!
//! let scale = Scale::linear(&[1.0, 2.0, 3.0], 40.0, 200.0);
//! let mut drawing = Drawing::new(260.0, 80.0);
//! drawing.axis(&scale, |value| value.to_string());
//! drawing.line(&[(scale.place(1.0), 40.0), (scale.place(3.0), 10.0)]);
//! let file = standalone("growth", 260.0, 80.0, &drawing.into_body());
//! assert!(file.contains("<title>growth</title>"));
//! ```

mod drawing;
mod heat_map;
mod scale;
mod standalone;
mod stripes;

pub use drawing::{Drawing, FOOT, MARGIN, Mark};
pub use heat_map::{COLUMNS, heat_map};
pub use scale::Scale;
pub use standalone::standalone;
pub use stripes::{Stripe, stripes};

/// Style sheet with the colours of the series, for light and dark pages.
pub const COLOURS: &str = include_str!("../templates/colours.css");

/// Style sheet with the lines, dots and texts of the drawings.
pub const DRAWING: &str = include_str!("../templates/drawing.css");

/// Escapes text for use within markup.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Returns the CSS class that gives a target or a series its colour.
#[must_use]
pub fn colour(index: usize) -> String {
    format!("t{}", index % 8)
}
