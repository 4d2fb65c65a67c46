//! The query on standard input, and the limits of the process that answers it.

use std::io::Read;

use fslab_dataset::Query;
use rustix::process::{Resource, Rlimit, Signal};

use crate::engine::WORKER_STACK_BYTES;
use crate::error::{Error, Result};

/// Maximum length of a query in bytes.
const BYTES_MAX: u64 = 4 << 20;

/// Memory for the program itself, in bytes. The limit of the process is the sum of this, twice the
/// query's memory limit, and the stacks.
const BASE_BYTES: u64 = 1 << 30;

/// Reads a query.
///
/// # Errors
/// [`Error::Request`] if the input is not a query.
pub fn read(input: impl Read) -> Result<Query> {
    let mut text = Vec::new();
    let read = input.take(BYTES_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| Error::Request(error.to_string()))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(Error::Request("it has more than 4 MiB".to_owned()));
    }
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(Error::Request("it is empty".to_owned()));
    }
    serde_json::from_slice(&text).map_err(|error| Error::Request(error.to_string()))
}

/// Restricts this process, so that a bug in the engine can't use all memory of the machine. The
/// kernel limits the memory of the process, and kills it when its parent ends.
///
/// # Errors
/// Fails if the kernel refuses a restriction.
pub fn restrict(query: &Query) -> Result<()> {
    let failed =
        |error: rustix::io::Errno| Error::Start { what: "with limits", source: error.into() };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    let stacks = (3 * WORKER_STACK_BYTES as u64).saturating_mul(query.threads as u64);
    let wanted = query.memory_bytes.saturating_mul(2).saturating_add(stacks);
    let wanted = wanted.saturating_add(BASE_BYTES);
    let maximum = rustix::process::getrlimit(Resource::Data).maximum;
    let limit = Some(maximum.map_or(wanted, |maximum| wanted.min(maximum)));
    rustix::process::setrlimit(Resource::Data, Rlimit { current: limit, maximum: limit })
        .map_err(failed)
}
