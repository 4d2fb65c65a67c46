//! Tests of papers: claims are read, looked up in a real run and judged, and their page is shown in
//! a browser.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../fslab-report/tests/it/browser.rs"]
mod browser;
mod claims;
mod page;
mod support;
