//! Tests the page of a paper in a browser.

use crate::browser::{has_browser, look, picture};
use crate::claims::charted;

/// A script that examines the drawings and the width of the page.
const PAPER_PROBE: &str = r#"
const all = (selector) => [...document.querySelectorAll(selector)];
for (const details of all("details")) details.open = true;
parent.postMessage(JSON.stringify({
  overflow: document.documentElement.scrollWidth - innerWidth,
  resources: performance.getEntriesByType("resource").length,
  drawn: all("figure svg").length,
  lines: all("figure .line").length,
  columns: all("figure rect.column").length,
  colour: getComputedStyle(document.querySelector("figure rect.column")).fill,
  smallest: Math.min(...all("figure svg").map((svg) => svg.getBoundingClientRect().width)),
}), "*");
"#;

#[test]
fn the_page_of_a_paper_works_at_two_widths_without_errors() {
    if !has_browser("the page of a paper in a browser") {
        return;
    }
    let page = charted().html().unwrap();
    // The page has no scripts. Its security policy is changed so that the script of this test may
    // run.
    let admitting = page.replace("; base-uri", "; script-src 'nonce-probe'; base-uri");
    for width in [1280, 390] {
        let directory = tempfile::tempdir_in(".").unwrap();
        picture("paper", &page, width, directory.path());
        let (seen, console) = look(&admitting, PAPER_PROBE, width, directory.path());
        assert_eq!(console, Vec::<String>::new(), "at {width}");
        assert_eq!((&seen["drawn"], &seen["resources"]), (&2.into(), &0.into()), "{seen}");
        assert!(seen["overflow"].as_i64().unwrap() <= 0, "{width}: {seen}");
        // The bar chart has two bars and two bars in the legend. The line chart has one line and
        // two lines in the legend, one of which is for a missing series.
        assert_eq!((&seen["columns"], &seen["lines"]), (&4.into(), &3.into()), "{seen}");
        assert_ne!(seen["colour"], "rgb(0, 0, 0)", "colours are missing: {seen}");
        assert!(seen["smallest"].as_f64().unwrap() > 300.0, "too small to read: {seen}");
    }
}
