//! The named queries, which are part of the program.

use anyhow::Result;

use crate::output::{plain_table, print_table};

/// A named query. Its text begins with two comments: the question that it answers, and its tables.
pub struct NamedQuery {
    pub name: &'static str,
    pub text: &'static str,
}

/// Includes the SQL files with these names.
macro_rules! queries {
    ($($name:literal),+ $(,)?) => {
        &[$(NamedQuery {
            name: $name,
            text: include_str!(concat!("../../../queries/", $name, ".sql")),
        }),+]
    };
}

/// The named queries, in the order of `fslab sql --list`.
pub const QUERIES: &[NamedQuery] = queries!(
    "top-users",
    "largest-directories",
    "largest-growth",
    "duplicate-sizes",
    "cold-bytes-by-age",
    "layout-by-size",
    "diff",
    "operations-by-program",
    "slowest-calls",
    "tier-state",
);

/// The start of the comment line with the tables.
const TABLES: &str = "-- Tables: ";

impl NamedQuery {
    /// Returns the question that the query answers: the comment lines before the line with the
    /// tables.
    pub fn question(&self) -> String {
        let lines = self.text.lines().take_while(|line| !line.starts_with(TABLES));
        lines.filter_map(|line| line.strip_prefix("-- ")).collect::<Vec<_>>().join(" ")
    }

    /// Returns the names of the needed tables.
    pub fn tables(&self) -> Vec<&'static str> {
        let line = self.text.lines().find_map(|line| line.strip_prefix(TABLES));
        line.unwrap_or_default().split(", ").filter(|name| !name.is_empty()).collect()
    }
}

/// Returns the query of this name.
///
/// # Errors
/// Fails if there is no such query.
pub fn find(name: &str) -> Result<&'static NamedQuery> {
    match QUERIES.iter().find(|query| query.name == name) {
        Some(query) => Ok(query),
        None => bail_as!(
            BadInput,
            "there is no named query '{name}'; `fslab sql --list` lists the named queries"
        ),
    }
}

/// Prints the names, the needed tables and the questions.
pub fn list(as_json: bool) -> Result<()> {
    if as_json {
        let row = |query: &NamedQuery| {
            serde_json::json!({
                "name": query.name, "tables": query.tables(), "question": query.question(),
            })
        };
        let rows: Vec<_> = QUERIES.iter().map(row).collect();
        say!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    let mut table = plain_table(["name", "tables", "question"]);
    for query in QUERIES {
        table.add_row([query.name.to_owned(), query.tables().join(", "), query.question()]);
    }
    print_table(&table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_states_its_question_and_its_tables() {
        for query in QUERIES {
            assert!(query.question().ends_with('.'), "{}", query.name);
            assert!(!query.tables().is_empty(), "{}", query.name);
            let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase());
            assert!(query.tables().into_iter().all(is_plain), "{}", query.name);
        }
    }

    #[test]
    fn every_file_of_the_folder_is_a_named_query() {
        assert_eq!(std::fs::read_dir("queries").unwrap().count(), QUERIES.len());
    }
}
