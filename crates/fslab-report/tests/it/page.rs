//! Tests the page in a browser by operating all its controls.

use fslab_report::Report;
use serde_json::Value;

use crate::browser::{has_browser, look, picture};
use crate::reports::{large, records};

/// A script that operates the controls of the page, such as those for the axes and the order of a
/// table. It sends its findings to the surrounding page.
const PROBE: &str = r#"
const all = (selector) => [...document.querySelectorAll(selector)];
const visible = (part) =>
  part.getClientRects().length > 0 && getComputedStyle(part).display !== "none";
const press = (id, value) => {
  const choice = document.getElementById(id);
  choice.value = value;
  choice.dispatchEvent(new Event("change"));
};
const seen = {
  width: innerWidth,
  overflow: document.documentElement.scrollWidth - innerWidth,
  resources: performance.getEntriesByType("resource").length,
  charts: all("figure svg").length,
  tables: all("details.data table").length,
};
for (const details of all("details")) details.open = true;
press("axes", "log");
seen.linear_when_log = all("svg .lin").filter(visible).length;
seen.log_when_log = all("svg .log").filter(visible).length;
press("axes", "lin");
seen.log_when_linear = all("svg .log").filter(visible).length;
press("axes", "");
const table = document.querySelector("details.data table");
const heading = [...table.querySelectorAll("th button")].find((b) => b.textContent === "median");
const column = heading.closest("th").cellIndex;
const value = (row) => Number(row.cells[column].dataset.value);
const values = () => [...table.tBodies[0].rows].map(value);
// These numbers would be in another order if they were sorted as text.
[...table.tBodies[0].rows].forEach((row, index) => {
  row.cells[column].dataset.value = [10, 9, 100][index % 3];
});
heading.click();
seen.ascending = values();
heading.click();
seen.descending = values();
if (document.getElementById("baseline")) {
  press("baseline", "1");
  seen.shown = all(".scroll[data-baseline]").filter(visible).map((part) => part.dataset.baseline);
  press("baseline", "0");
}
press("theme", "dark");
seen.dark = getComputedStyle(document.body).backgroundColor;
press("theme", "light");
seen.light = getComputedStyle(document.body).backgroundColor;
press("theme", "");
if (document.getElementById("find")) {
  const find = document.getElementById("find");
  find.value = "load-29";
  find.dispatchEvent(new Event("input"));
  seen.found = all(".workload").filter(visible).map((part) => part.dataset.name);
}
seen.overflow_open = document.documentElement.scrollWidth - innerWidth;
parent.postMessage(JSON.stringify(seen), "*");
"#;

#[track_caller]
fn check(name: &str, report: &Report, width: u32) -> Value {
    let directory = tempfile::tempdir_in(".").unwrap();
    let page = fslab_report::html(report).unwrap();
    picture(name, &page, width, directory.path());
    let (seen, console) = look(&page, PROBE, width, directory.path());
    assert_eq!(console, Vec::<String>::new(), "{name} at {width}");
    assert_eq!(seen["width"], width);
    assert_eq!(seen["resources"], 0, "{name} asks for something");
    for overflow in ["overflow", "overflow_open"] {
        let beyond = seen[overflow].as_i64().unwrap();
        assert!(beyond <= 0, "{name} at {width}: {beyond} pixels beyond the edge ({overflow})");
    }
    assert_eq!(seen["linear_when_log"], 0);
    assert_eq!(seen["log_when_linear"], 0);
    assert!(seen["log_when_log"].as_u64().unwrap() > 0);
    let numbers = |key: &str| -> Vec<f64> { serde_json::from_value(seen[key].clone()).unwrap() };
    assert!(numbers("ascending").is_sorted() && numbers("ascending").len() > 1);
    assert!(numbers("descending").iter().rev().is_sorted());
    assert_ne!(seen["dark"], seen["light"]);
    seen
}

#[test]
fn the_page_works_at_two_widths_without_errors() {
    if !has_browser("the page in a browser") {
        return;
    }
    let baselines = ["base".to_owned(), "slow".to_owned()];
    let report = Report::against(&records(), &baselines, None).unwrap();
    for width in [1280, 390] {
        let seen = check("report", &report, width);
        assert_eq!(seen["shown"], serde_json::json!(["1"]), "one baseline at a time");
        assert_eq!(seen["charts"], 1 + 2 + 1, "times, two ratios, a sweep");
        assert_eq!(seen["tables"], 2, "figures and metrics");
    }
}

#[test]
fn a_large_page_works_at_two_widths() {
    if !has_browser("a large page in a browser") {
        return;
    }
    let report = Report::new(&large());
    for width in [1280, 390] {
        let seen = check("large", &report, width);
        assert_eq!(seen["found"], serde_json::json!(["workload-29"]));
    }
}
