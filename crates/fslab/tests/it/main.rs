//! The program as its users meet it: mounts, its command line, and its end.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod aging;
mod aging_churn;
mod appending;
mod boundary;
mod claims;
mod command_line;
mod comparing;
mod conformance;
mod ext2;
mod ext2_archives;
mod fault;
mod full_disk;
mod kill;
mod mounting;
mod observe;
mod probing;
mod reproducing;
mod sca_conversion;
mod sca_memory;
mod sca_tools;
mod services;
mod set_id;
mod support;
mod tier_answers;
mod tier_archives;
mod tier_faults;
mod tier_fsx;
mod tier_here;
mod tier_kills;
mod tier_open;
mod tier_restless;
mod tiering;
mod unmounting;
