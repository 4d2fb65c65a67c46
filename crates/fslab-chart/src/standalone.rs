//! Makes separate SVG files, which contain the colours for light and dark pages.

use crate::{COLOURS, DRAWING, escape};

const ALONE: &str = "svg{font:12px system-ui,sans-serif}.paper{fill:var(--page)}";

/// Returns a complete SVG file with the given markup, such as that of
/// [`Drawing::into_body`](crate::Drawing::into_body).
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
