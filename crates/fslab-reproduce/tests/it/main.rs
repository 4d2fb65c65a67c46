//! Tests of papers. Claims are read, compared with the results of a real run, and shown on a page
//! in a browser.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../fslab-report/tests/it/browser.rs"]
mod browser;
mod claims;
mod page;
mod support;
