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

/// Makes the file systems of these names (cells of the prober's matrix), and asks the prober. A
/// file system that can't be made says why.
#[must_use]
pub fn probe<'a>(cells: impl IntoIterator<Item = &'a str>, how: &How<'_>) -> Probes {
    let mut probes = Probes::new();
    let known = native();
    for name in cells {
        if probes.contains_key(name) {
            continue;
        }
        let Some(cell) = known.iter().find(|cell| cell.name() == name) else { continue };
        let answers = cell.verify(how).map_err(|error| error.to_string());
        let by_name = answers.map(|answers| {
            answers.iter().map(|one| (one.attribute.to_owned(), probed(&one.finding))).collect()
        });
        probes.insert(name.to_owned(), by_name);
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
