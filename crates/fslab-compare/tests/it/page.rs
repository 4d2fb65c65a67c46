//! The page in a browser: headless Chromium loads it, a script of the test presses what can be
//! pressed, and nothing is left to complain about on the console.
//!
//! With `FSLAB_SCREENSHOTS=FOLDER` pictures of the pages are kept there.

use std::fs;
use std::path::Path;
use std::process::Command;

use fslab_report::Report;
use serde_json::Value;

use crate::reports::{large, records};
use crate::support::has_program;

/// Looks at the page from within, and tells the page around it. The axes of all charts and the
/// order of a table are changed on the way.
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
// Numbers that would stand in another order as text.
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

/// Loads a page in a frame of a width; what the probe saw, and what the console said.
fn look(page: &str, probe: &str, width: u32, directory: &Path) -> (Value, Vec<String>) {
    let nonce = page.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    let probed =
        page.replace("</body>", &format!("<script nonce=\"{nonce}\">{{{probe}}}</script></body>"));
    fs::write(directory.join("probed.html"), probed).unwrap();
    let around = format!(
        "<!doctype html><pre id=\"seen\"></pre>\
         <script>addEventListener('message', (event) => \
         {{ document.getElementById('seen').textContent = event.data; }});</script>\
         <iframe src=\"probed.html\" width=\"{width}\" height=\"900\"></iframe>"
    );
    fs::write(directory.join("around.html"), around).unwrap();
    let address = format!("file://{}/around.html", directory.canonicalize().unwrap().display());
    let output = browser(directory).args(["--dump-dom", &address]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let seen = text.split("<pre id=\"seen\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let seen =
        seen.unwrap_or_default().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let console = messages.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned);
    let value = serde_json::from_str(&seen);
    (value.unwrap_or_else(|error| panic!("{error}: {seen:?}\n{messages}")), console.collect())
}

/// Chromium without a window, for at most a minute.
fn browser(directory: &Path) -> Command {
    let mut command = Command::new("timeout");
    let profile = format!("--user-data-dir={}", directory.join("profile").display());
    command.args(["60", "chromium", "--headless", "--no-sandbox", "--disable-gpu", &profile]);
    command.args(["--hide-scrollbars", "--enable-logging=stderr", "--virtual-time-budget=5000"]);
    command
}

/// Keeps a picture of a page where that is asked for.
fn picture(name: &str, page: &str, width: u32, directory: &Path) {
    let Some(folder) = std::env::var_os("FSLAB_SCREENSHOTS") else { return };
    fs::create_dir_all(&folder).unwrap();
    fs::write(directory.join("report.html"), page).unwrap();
    let frame = format!(
        "<!doctype html><body style=\"margin:0\"><iframe src=\"report.html\" width=\"{width}\" \
         height=\"1400\" style=\"border:0;display:block\"></iframe>"
    );
    fs::write(directory.join("frame.html"), frame).unwrap();
    let address = format!("file://{}/frame.html", directory.canonicalize().unwrap().display());
    let file = Path::new(&folder).join(format!("{name}-{width}.png"));
    let shot = format!("--screenshot={}", file.display());
    let size = format!("--window-size={},1400", width.max(500));
    let status = browser(directory).args([&shot, &size, &address]).output().unwrap().status;
    assert!(status.success(), "{status}");
}

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
    if !has_program("the page in a browser", "chromium") {
        return;
    }
    let baselines = ["base".to_owned(), "slow".to_owned()];
    let report = Report::against(&records(), &baselines, None).unwrap();
    for width in [1280, 390] {
        let seen = check("report", &report, width);
        assert_eq!(seen["shown"], serde_json::json!(["1"]), "one baseline at a time");
        assert_eq!(seen["charts"], 1 + 2 + 1, "times, two ratios, a sweep");
        assert_eq!(seen["tables"], 1);
    }
}

#[test]
fn a_large_page_works_too() {
    if !has_program("a large page in a browser", "chromium") {
        return;
    }
    let report = Report::new(&large());
    for width in [1280, 390] {
        let seen = check("large", &report, width);
        assert_eq!(seen["found"], serde_json::json!(["workload-29"]));
    }
}

/// Looks at the page of a paper: what is drawn, and how wide it is.
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
    if !has_program("the page of a paper in a browser", "chromium") {
        return;
    }
    let page = crate::reproduce::charted().html().unwrap();
    // The page has no scripts, and admits none but that of this test.
    let admitting = page.replace("; base-uri", "; script-src 'nonce-probe'; base-uri");
    for width in [1280, 390] {
        let directory = tempfile::tempdir_in(".").unwrap();
        picture("paper", &page, width, directory.path());
        let (seen, console) = look(&admitting, PAPER_PROBE, width, directory.path());
        assert_eq!(console, Vec::<String>::new(), "at {width}");
        assert_eq!((&seen["drawn"], &seen["resources"]), (&2.into(), &0.into()), "{seen}");
        assert!(seen["overflow"].as_i64().unwrap() <= 0, "{width}: {seen}");
        // Two bars and two samples of the legend; a line and two samples, one of a missing series.
        assert_eq!((&seen["columns"], &seen["lines"]), (&4.into(), &3.into()), "{seen}");
        assert_ne!(seen["colour"], "rgb(0, 0, 0)", "colours are missing: {seen}");
        assert!(seen["smallest"].as_f64().unwrap() > 300.0, "too small to read: {seen}");
    }
}
