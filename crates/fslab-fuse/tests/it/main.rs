//! Tests of mounts that are served by the test's own process. Some of the file systems misbehave on
//! purpose.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod caching;
mod deferring;
mod features;
mod id_maps;
mod interrupts;
mod misbehaviour;
mod support;
mod time_limits;
mod uring;
mod watched;
