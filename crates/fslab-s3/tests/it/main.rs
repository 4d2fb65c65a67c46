//! Archives in stores: real ones, and one in memory behind a proxy that makes faults.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod faults;
mod servers;
mod support;
mod writers;
