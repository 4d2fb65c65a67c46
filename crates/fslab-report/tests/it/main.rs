//! Tests of reports: from samples of one or several machines, and in a browser.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod browser;
mod gates;
mod machines;
mod page;
mod reports;
