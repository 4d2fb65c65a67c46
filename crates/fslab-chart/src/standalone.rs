//! Drawings as separate files, which contain their light and dark colours.

use crate::{COLOURS, DRAWING, escape};

const ALONE: &str = "svg{font:12px system-ui,sans-serif}.paper{fill:var(--page)}";

/// Makes a complete SVG file of a drawing's markup.
#[must_use]
pub fn standalone(title: &str, width: f64, height: f64, body: &str) -> String {
    let title = escape(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <style>\n{COLOURS}{DRAWING}{ALONE}\n</style>\n<title>{title}</title>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{body}\n</svg>\n"
    )
}
