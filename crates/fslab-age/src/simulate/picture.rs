//! The block map of an aged volume as a picture: one row a group, light where space is free.

use super::volume::Simulator;

/// Cells of a row.
const COLUMNS: u32 = 128;

/// Pixels of a cell's width and height.
const CELL: u32 = 6;

/// An SVG of the volume: each cell is some blocks side by side, the darker the fuller.
#[must_use]
pub fn picture(simulator: &Simulator, title: &str) -> String {
    let geometry = simulator.geometry();
    let rows = geometry.groups;
    let (width, height) = (COLUMNS * CELL, rows * CELL + 24);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" shape-rendering=\"crispEdges\">\n<title>{}</title>\n\
         <text x=\"0\" y=\"16\" font-family=\"sans-serif\" font-size=\"13\">{}: a row a group, \
         dark where in use</text>\n",
        escape(title),
        escape(title),
    );
    for group in geometry.all_groups() {
        let blocks = geometry.blocks_in(group).max(1);
        let free = simulator.free_runs(group);
        for column in 0..COLUMNS {
            let part =
                |index: u32| (u64::from(index) * u64::from(blocks) / u64::from(COLUMNS)) as u32;
            let (from, to) = (part(column), part(column + 1).max(part(column) + 1));
            let overlap =
                |run: &std::ops::Range<u32>| run.end.min(to).saturating_sub(run.start.max(from));
            let empty: u32 = free.iter().map(overlap).sum();
            let light = 40 + 215 * empty.min(to - from) / (to - from);
            svg += &format!(
                "<rect x=\"{}\" y=\"{}\" width=\"{CELL}\" height=\"{CELL}\" \
                 fill=\"rgb({light},{light},{})\"/>\n",
                column * CELL,
                group.0 * CELL + 24,
                (light + 30).min(255),
            );
        }
    }
    svg + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
