//! DuckDB must give the same rows for the same SQL text.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Sets, all_named, named};

/// A Python script that answers a list of queries with DuckDB. Numbers are compared as
/// floating-point numbers, because the engines choose different types for sums.
const SCRIPT: &str = "
import datetime, decimal, duckdb, json, sys
def plain(value):
    if isinstance(value, datetime.datetime):
        value = value.astimezone(datetime.timezone.utc)
        return value.strftime('%Y-%m-%dT%H:%M:%S.%f000Z')
    if isinstance(value, decimal.Decimal):
        return float(value)
    return value
for query in json.load(sys.stdin):
    database = duckdb.connect()
    for name, directory in query['tables'].items():
        files = directory + '/parts/*.parquet'
        database.execute(f\"CREATE VIEW {name} AS SELECT * FROM '{files}'\")
    answer = database.execute(query['sql'])
    names = [column[0] for column in answer.description]
    print(json.dumps([dict(zip(names, map(plain, row))) for row in answer.fetchall()]))
";

/// Returns a Python that has DuckDB: that of `cargo xtask setup`, or the system's.
fn python() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("FSLAB_CACHE").map(PathBuf::from);
    let own = cache.unwrap_or_else(|| home.join(".cache/fslab")).join("tools/python/bin/python3");
    [own, "python3".into()].into_iter().find(|python| {
        let output = Command::new(python).args(["-c", "import duckdb"]).output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// Returns the numbers of a value as floating-point numbers.
fn with_floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(values) => values.iter().map(with_floats).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), with_floats(value))).collect()
        }
        other => other.clone(),
    }
}

#[test]
fn duckdb_gives_the_same_rows_for_every_named_query() {
    let Some(python) = python() else {
        assert!(std::env::var_os("FSLAB_REQUIRE_ALL").is_none(), "DuckDB for Python is missing");
        println!("skipped: DuckDB for Python is missing; `cargo xtask setup` installs it");
        return;
    };
    let sets = Sets::of_all_kinds(4);
    let mut own = Vec::new();
    let mut queries = Vec::new();
    for name in all_named() {
        let (sql, tables) = named(&name);
        let names: Vec<_> = tables.iter().map(String::as_str).collect();
        own.push((name, Value::Array(sets.rows(&sql, &names))));
        let tables: serde_json::Map<_, _> = tables
            .iter()
            .map(|name| (name.clone(), json!(sets.path(name).to_str().unwrap())))
            .collect();
        queries.push(json!({"sql": sql, "tables": tables}));
    }
    assert_eq!(queries.len(), 10);
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let request = serde_json::to_vec(&queries).unwrap();
    child.stdin.take().unwrap().write_all(&request).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), own.len());
    for ((name, own), other) in own.iter().zip(&answers) {
        assert_eq!(with_floats(own), with_floats(other), "{name}");
    }
}
