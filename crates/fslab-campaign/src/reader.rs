//! Reads the record of a campaign and its plan.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::format::{FORMAT, Frozen, PLAN, RECORD};
use crate::hash;

/// The part of the record that all format versions share.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

/// Reads the record, and the text of the plan that belongs to it.
pub(crate) fn read(directory: &Path) -> Result<(Frozen, String)> {
    let path = directory.join(RECORD);
    let bytes = fs::read(&path).map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            Error::NoCampaign { path: directory.to_owned() }
        }
        _ => Error::File { path: path.clone(), source },
    })?;
    let damaged = |source| Error::Damaged { path: path.clone(), source };
    let Version { format } = serde_json::from_slice(&bytes).map_err(damaged)?;
    if format > FORMAT {
        return Err(Error::NewerFormat { path, format });
    }
    let frozen: Frozen = serde_json::from_slice(&bytes).map_err(damaged)?;
    let plan = directory.join(PLAN);
    let text = fs::read_to_string(&plan).map_err(Error::file(&plan))?;
    let found = hash::of_bytes(text.as_bytes());
    if found != frozen.plan_blake3 {
        return Err(Error::Changed { path: plan, found, frozen: frozen.plan_blake3 });
    }
    Ok((frozen, text))
}
