//! Mounts served by this process, over file systems that deliberately misbehave.
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
