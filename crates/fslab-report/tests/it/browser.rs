//! Tests pages in headless Chromium: a test script examines a loaded page, and the console must
//! remain empty.
//!
//! With `FSLAB_SCREENSHOTS=FOLDER`, screenshots are stored in that folder.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Whether there is a browser; otherwise reports a skip, or fails if skips are not permitted.
pub fn has_browser(what: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join("chromium").exists());
    if !is_there {
        fslab_vfs_testing::skip::skip(what, "chromium is not installed");
    }
    is_there
}

/// Loads a page in a frame of a given width and runs the script `probe` in it. Returns the script's
/// result and the console messages.
pub fn look(page: &str, probe: &str, width: u32, directory: &Path) -> (Value, Vec<String>) {
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

/// Starts headless Chromium for at most a minute.
fn browser(directory: &Path) -> Command {
    let mut command = Command::new("timeout");
    let profile = format!("--user-data-dir={}", directory.join("profile").display());
    command.args(["60", "chromium", "--headless", "--no-sandbox", "--disable-gpu", &profile]);
    command.args(["--hide-scrollbars", "--enable-logging=stderr", "--virtual-time-budget=5000"]);
    command
}

/// Stores a screenshot of a page if requested.
pub fn picture(name: &str, page: &str, width: u32, directory: &Path) {
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
