//! Tests writing and reading data sets.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod damage;
mod manifests;
mod round_trips;
mod support;
