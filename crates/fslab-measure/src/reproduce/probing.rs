//! Answers of the prober on file systems made for it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::probe::matrix::{How, native};
use crate::probe::{Finding, Value};

/// What was found of one attribute.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Probed {
    /// A number: of bytes or of things.
    Number(u64),
    /// Something else, in words.
    Words(String),
    /// Nothing, and why.
    Nothing(String),
}

/// What was found, by file system and attribute; or why nothing was.
pub type Probes = BTreeMap<String, std::result::Result<BTreeMap<String, Probed>, String>>;

/// Makes the file systems of these names (cells of the prober's matrix), and asks the prober. One
/// that can't be made says why.
#[must_use]
pub fn probe<'a>(cells: impl IntoIterator<Item = &'a str>, how: &How<'_>) -> Probes {
    let matrix = native();
    let mut probes = Probes::new();
    for name in cells {
        let Some(cell) = matrix.iter().find(|cell| cell.name() == name) else { continue };
        probes.entry(name.to_owned()).or_insert_with(|| {
            let answers = cell.verify(how).map_err(|error| error.to_string())?;
            let named = answers.iter().map(|one| (one.attribute.to_owned(), probed(&one.finding)));
            Ok(named.collect())
        });
    }
    probes
}

fn probed(finding: &Finding) -> Probed {
    match &finding.answer {
        Ok((Value::Bytes(number) | Value::Count(number), _)) => Probed::Number(*number),
        Ok((other, _)) => Probed::Words(other.to_string()),
        Err(reason) => Probed::Nothing(reason.clone()),
    }
}
