//! Tests of reports: from samples alone, of one machine and of several, and in a browser.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod browser;
mod gates;
mod machines;
mod page;
mod reports;
