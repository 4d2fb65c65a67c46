//! Draws rows of coloured stripes, such as a map of the blocks of a volume.

use crate::escape;

/// Width and height of a row, in pixels.
const WIDTH: f64 = 1024.0;
const HEIGHT: u32 = 12;

/// Pixels above the first row.
const HEAD: u32 = 20;

/// A part of a row in one colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Stripe {
    /// The row, from 0.
    pub row: u32,
    /// The start of the stripe, as a share of the row's width from 0 to 1.
    pub from: f64,
    /// The end of the stripe, as a share of the row's width from 0 to 1.
    pub to: f64,
    /// A CSS colour.
    pub colour: String,
}

/// Returns an SVG with this number of rows. Later stripes are drawn over earlier ones.
#[must_use]
pub fn stripes(title: &str, rows: u32, stripes: &[Stripe]) -> String {
    let (height, title) = (HEAD + rows * HEIGHT, escape(title));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<text x=\"0\" y=\"14\">{title}</text>\n"
    );
    for stripe in stripes {
        svg += &format!(
            "<rect x=\"{:.2}\" y=\"{}\" width=\"{:.2}\" height=\"{}\" fill=\"{}\"/>\n",
            stripe.from * WIDTH,
            HEAD + stripe.row * HEIGHT,
            (stripe.to - stripe.from).max(0.0) * WIDTH,
            HEIGHT - 2,
            escape(&stripe.colour),
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_lie_in_their_rows() {
        let stripe = Stripe { row: 1, from: 0.25, to: 0.5, colour: "#444".to_owned() };
        let svg = stripes("a & b", 2, &[stripe]);
        let rect = "<rect x=\"256.00\" y=\"32\" width=\"256.00\" height=\"10\" fill=\"#444\"/>";
        assert!(svg.contains("a &amp; b") && svg.contains(rect), "{svg}");
    }
}
