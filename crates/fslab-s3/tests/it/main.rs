//! Archives in stores: real servers, and an in-memory store behind a proxy that injects faults.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod checksums;
mod cold;
mod costs;
mod faults;
mod retention;
mod servers;
mod support;
mod writers;
