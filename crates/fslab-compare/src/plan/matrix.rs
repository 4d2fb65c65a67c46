//! Matrices, `matrix = { block = [1024, 4096], ... }`: one table describes many targets or
//! workloads.

use std::collections::BTreeMap;

use toml::{Spanned, Value};

use super::checks::Result;
use super::source::Source;

/// The lists of values of a matrix, by key.
pub(super) type RawMatrix = BTreeMap<Spanned<String>, Spanned<Vec<Value>>>;

/// One value for each key of a matrix.
#[derive(Clone, Debug, Default)]
pub(super) struct Combination {
    pub values: Vec<(String, Value)>,
}

/// Returns all combinations. The value of the last key changes fastest. Without a matrix there is
/// one empty combination.
pub(super) fn combinations(
    source: &Source<'_>,
    matrix: Option<&Spanned<RawMatrix>>,
) -> Result<Vec<Combination>> {
    let mut combinations = vec![Combination::default()];
    for (key, list) in matrix.into_iter().flat_map(Spanned::get_ref) {
        if list.get_ref().is_empty() {
            let message = format!("`matrix`: `{}` has no values", key.get_ref());
            return Err(source.error(list.span(), message));
        }
        let mut longer = Vec::new();
        for combination in &combinations {
            for value in list.get_ref() {
                let mut combination = combination.clone();
                combination.values.push((key.get_ref().clone(), value.clone()));
                longer.push(combination);
            }
        }
        combinations = longer;
    }
    Ok(combinations)
}

impl Combination {
    /// Returns `text` with every `{key}` replaced by its value.
    pub fn fill_in(&self, text: &str) -> String {
        self.values
            .iter()
            .fold(text.to_owned(), |text, (key, value)| text.replace(&place(key), &shown(value)))
    }

    /// Returns a name with its placeholders filled in. Values without a placeholder are appended.
    pub fn name(&self, name: &str) -> String {
        let filled = self.fill_in(name);
        let unnamed = self.values.iter().filter(|(key, _)| !name.contains(&place(key)));
        unnamed.fold(filled, |name, (key, value)| format!("{name} {key}={}", shown(value)))
    }
}

/// Returns the placeholder of a key.
pub(super) fn place(key: &str) -> String {
    format!("{{{key}}}")
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
