//! Tests refused statements, and queries that exceed their memory limit.

use fslab_sql::Error;

use crate::support::{Sets, file, named, rows};

#[test]
fn only_select_statements_over_the_given_tables_run() {
    let sets = Sets::of_all_kinds(1);
    let outside = sets.path("outside");
    let path = outside.display();
    let part = sets.path("after/parts/part-00000.parquet");
    for (sql, part) in [
        (format!("COPY snapshot TO '{path}' STORED AS CSV"), "COPY is not allowed"),
        (
            format!("CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{path}'"),
            "CREATE is not allowed",
        ),
        ("CREATE TABLE t AS SELECT 1".into(), "CREATE is not allowed"),
        ("SET datafusion.execution.batch_size = 1".into(), "SET is not allowed"),
        ("INSERT INTO snapshot SELECT * FROM snapshot".into(), "INSERT is not allowed"),
        ("DELETE FROM snapshot".into(), "DELETE is not allowed"),
        ("DROP TABLE snapshot".into(), "DROP is not allowed"),
        ("EXPLAIN SELECT 1".into(), "EXPLAIN is not allowed"),
        ("SELECT 1; SELECT 2".into(), "one statement"),
        (String::new(), "empty"),
        ("SELECT 1 INTO t".into(), ""),
        ("WITH t AS (INSERT INTO snapshot SELECT 1) SELECT 1".into(), ""),
        (format!("SELECT * FROM '{}'", part.display()), "not found"),
        (format!("SELECT * FROM read_parquet('{}')", part.display()), "read_parquet"),
        ("SELECT * FROM after".into(), "after"),
        ("SELECT * FROM information_schema.tables".into(), ""),
        ("SELECT nothing FROM snapshot".into(), "nothing"),
        ("SELEC 1".into(), "not valid"),
        (format!("SELECT {}", "(".repeat(60_000)), "not valid"),
        ("SELECT inode AS a, size AS a FROM snapshot".into(), ""),
    ] {
        let error = rows(&sets.query(&sql, &["snapshot"])).unwrap_err();
        let message = error.to_string();
        assert_eq!(error.code(), 3, "{sql:.80}: {message}");
        assert!(message.contains(part), "{sql:.80}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    assert!(!outside.exists());
}

/// The parser turns a long chain of operators into a deep tree.
#[test]
fn deeply_nested_statement_does_not_overflow_the_stack() {
    let sets = Sets::of_all_kinds(1);
    let sql = format!("SELECT max(inode{}) AS sum FROM snapshot", "+1".repeat(400));
    assert_eq!(rows(&sets.query(&sql, &["snapshot"])).unwrap()[0]["sum"], 412);
    let sql = format!("SELECT 1{}", "+1".repeat(40_000));
    let error = rows(&sets.query(&sql, &["snapshot"])).unwrap_err();
    assert!(error.to_string().contains("64 KiB"), "{error}");
}

/// Data sets with the same number of parts are joined part by part, at most one in each thread.
#[test]
fn corresponding_parts_are_joined_without_an_exchange_of_rows() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (diff, _) = named("diff");
    let sets = large([8, 8]);
    let query = sets.query(&diff, &["before", "after"]);
    let plan = runtime.block_on(fslab_sql::plan_text(&query)).unwrap();
    assert!(plan.contains("Chain: streams=2"), "{plan}");
    assert!(plan.contains("HashJoinExec: mode=Partitioned"), "{plan}");
    assert!(!plan.contains("RepartitionExec"), "{plan}");
    // Without corresponding parts, the engine exchanges rows.
    let sets = large([2, 3]);
    let query = sets.query(&diff, &["before", "after"]);
    let plan = runtime.block_on(fslab_sql::plan_text(&query)).unwrap();
    assert!(plan.contains("RepartitionExec") && !plan.contains("Chain"), "{plan}");
}

const ROWS: i64 = 400_000;

fn large(parts: [usize; 2]) -> Sets {
    let sets = Sets::new();
    let entries = |extra: i64| (1..=ROWS).map(move |inode| file(inode, 0, inode % 977 + extra, 1));
    sets.snapshot("before", parts[0], entries(0));
    sets.snapshot("after", parts[1], entries(1));
    sets
}

#[test]
fn sorts_and_joins_beyond_the_memory_limit_use_temporary_files() {
    let sets = large([2, 3]);
    let (diff, _) = named("diff");
    let sort = "SELECT max(n) AS n FROM (SELECT name, row_number() OVER (ORDER BY name DESC) AS n \
                FROM before)";
    for (sql, column, expected) in [(diff.as_str(), "grown", ROWS), (sort, "n", ROWS)] {
        let mut query = sets.query(sql, &["before", "after"]);
        query.memory_bytes = 64 << 20;
        let found = rows(&query).unwrap();
        assert_eq!(found[0][column], expected, "{sql}");
        // The query fails without a directory for temporary files, so it did use them above.
        query.temporary = sets.path("missing");
        let error = rows(&query).unwrap_err();
        assert!(matches!(error, Error::Temporary { .. }), "{error}");
        assert_eq!(error.code(), 3);
    }
    let left = std::fs::read_dir(sets.scratch.path()).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["after", "before"]);
}

#[test]
fn query_that_can_not_use_temporary_files_reports_its_memory_limit() {
    let sets = large([2, 3]);
    let sql = "SELECT length(string_agg(name || name || name || name, ',')) FROM before, \
               (VALUES (1), (2), (3), (4), (5), (6)) AS v (n) GROUP BY uid";
    let mut query = sets.query(sql, &["before"]);
    query.memory_bytes = 64 << 20;
    match rows(&query) {
        // The engine does not count all memory, so the query may succeed. In that case `restrict`
        // limits the memory of the process.
        Ok(rows) => assert_eq!(rows.len(), 1),
        Err(error) => {
            assert!(matches!(error, Error::Memory { .. }), "{error}");
            assert!(error.to_string().contains("--memory"), "{error}");
        }
    }
}
