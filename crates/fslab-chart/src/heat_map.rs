//! Heat maps: rows of cells. The fuller a cell is, the darker it is.

use crate::escape;

/// Cells in a row.
pub const COLUMNS: u32 = 128;

/// Width and height of a cell, in pixels.
const CELL: u32 = 6;

/// Pixels above the first row.
const HEAD: u32 = 24;

/// Returns a heat map as SVG. `filled` returns the fill of a cell, from 0 (light) to 1 (dark), for
/// its row and column.
#[must_use]
pub fn heat_map(title: &str, legend: &str, rows: u32, filled: &dyn Fn(u32, u32) -> f64) -> String {
    let (width, height, title) = (COLUMNS * CELL, rows * CELL + HEAD, escape(title));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" shape-rendering=\"crispEdges\">\n<title>{title}</title>\n\
         <text x=\"0\" y=\"16\" font-family=\"sans-serif\" font-size=\"13\">{title}: {legend}\
         </text>\n"
    );
    for row in 0..rows {
        for column in 0..COLUMNS {
            let light = 40 + (215.0 * (1.0 - filled(row, column).clamp(0.0, 1.0))) as u32;
            svg += &format!(
                "<rect x=\"{}\" y=\"{}\" width=\"{CELL}\" height=\"{CELL}\" \
                 fill=\"rgb({light},{light},{})\"/>\n",
                column * CELL,
                row * CELL + HEAD,
                (light + 30).min(255),
            );
        }
    }
    svg + "</svg>\n"
}
