//! Tests of the SQL engine over small data sets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod damage;
mod duckdb;
mod limits;
mod program;
mod queries;
mod support;
