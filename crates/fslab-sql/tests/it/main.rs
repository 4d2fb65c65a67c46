//! Tests of the SQL engine over small data sets.

mod damage;
mod duckdb;
mod limits;
mod program;
mod queries;
mod support;
