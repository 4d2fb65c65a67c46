//! Compares the answers of the named queries with answers that were computed by hand.

use serde_json::{Value, json};

use crate::support::{Sets, named, text};

/// Checks the answer of a named query, for data sets with 1, 3 and 8 parts.
#[track_caller]
fn check(name: &str, expected: Value) {
    for parts in [1, 3, 8] {
        let sets = Sets::of_all_kinds(parts);
        let (sql, tables) = named(name);
        let tables: Vec<_> = tables.iter().map(String::as_str).collect();
        assert_eq!(Value::Array(sets.rows(&sql, &tables)), expected, "{name}, {parts} parts");
    }
}

#[test]
fn diff_counts_every_kind_of_change_and_reused_inodes() {
    let expected = json!([{
        "unchanged": 3, "created": 4, "deleted": 4, "modified": 1, "grown": 1, "truncated": 1,
        "renamed": 2, "attributes": 1, "created_bytes": 5316, "deleted_bytes": 185,
    }]);
    check("diff", expected);
}

#[test]
fn top_users_are_ordered_by_allocated_bytes() {
    let row = |uid: i64, files: i64, size: i64, allocated: i64| {
        json!({"uid": uid, "files": files, "size_bytes": size,
               "allocated_bytes": allocated})
    };
    let rows = [row(2, 5, 5185, 24576), row(1, 3, 5101, 16384), row(0, 2, 8192, 8192)];
    check("top-users", json!([rows[0], rows[1], rows[2], row(3, 1, 10, 0)]));
}

#[test]
fn largest_directories_have_their_names_and_own_bytes() {
    let row = |directory: i64, name: Option<&str>, entries: i64, size: i64| {
        json!({"directory": directory, "name": name, "entries": entries,
               "size_bytes": size})
    };
    let rows = [row(11, Some("e"), 6, 5195), row(10, Some("d"), 4, 5101), row(0, None, 1, 0)];
    check("largest-directories", json!(rows));
}

#[test]
fn largest_growth_leaves_out_directories_that_shrank() {
    let expected = json!([{
        "directory": 11, "name": "e", "growth_bytes": 1035, "more_files": -1, "size_bytes": 6230,
    }]);
    check("largest-growth", expected);
}

#[test]
fn duplicate_sizes_count_files_and_possible_waste() {
    let row = |size: i64, files: i64, waste: i64| {
        json!({
            "size_bytes": size, "files": files, "waste_max_bytes": waste,
        })
    };
    check("duplicate-sizes", json!([row(5000, 2, 5000), row(100, 2, 100)]));
}

#[test]
fn cold_bytes_are_grouped_by_age() {
    let row = |days: i64, files: i64, size: i64, allocated: i64| {
        json!({"days_min": days, "files": files, "size_bytes": size,
               "allocated_bytes": allocated})
    };
    let rows = [row(0, 1, 100, 4096), row(7, 1, 5000, 8192), row(730, 6, 5186, 28672)];
    check("cold-bytes-by-age", json!(rows));
}

#[test]
fn layout_has_pieces_and_breaks_by_power_of_two() {
    let row = |size: i64, files: i64, blocks: i64, pieces: f64, share: Option<f64>| {
        json!({
            "size_min_bytes": size, "files": files, "blocks": blocks, "pieces_per_file": pieces,
            "breaks_share": share,
        })
    };
    let small = [1, 4, 8].map(|size| row(size, 1, 1, 1.0, None));
    let rows = [row(64, 3, 3, 1.0, None), row(4096, 2, 4, 1.5, Some(0.5))];
    check("layout-by-size", json!([small[0], small[1], small[2], rows[0], rows[1]]));
}

#[test]
fn operations_are_summed_by_program() {
    let expected = json!([
        {"program": "cat", "process": 31, "operation": "read", "calls": 2, "errors": 0,
         "size_bytes": 150, "duration_ns": 1400, "duration_max_ns": 900},
        {"program": null, "process": 31, "operation": "open", "calls": 1, "errors": 1,
         "size_bytes": null, "duration_ns": 700, "duration_max_ns": 700},
    ]);
    check("operations-by-program", expected);
}

#[test]
fn slowest_calls_come_first() {
    let sets = Sets::of_all_kinds(1);
    let (sql, _) = named("slowest-calls");
    let rows = sets.rows(&sql, &["trace"]);
    let durations: Vec<_> = rows.iter().map(|row| row["duration_ns"].as_i64().unwrap()).collect();
    assert_eq!(durations, [900, 700, 500]);
    assert_eq!(rows[0]["time"], "2024-10-04T00:00:00.000900000Z");
    assert_eq!(rows[1]["error"], "ENOENT");
}

#[test]
fn tier_state_is_grouped_by_user_and_state() {
    let row = |uid: i64, state: &str, files: i64, size: i64, allocated: i64| {
        json!({
            "uid": uid, "state": state, "files": files, "size_bytes": size,
            "allocated_bytes": allocated,
        })
    };
    let rows = [row(1, "released", 1, 7, 0), row(5, "dual", 1, 10, 4096)];
    check("tier-state", json!([rows[0], rows[1], row(5, "released", 2, 3000, 0)]));
}

#[test]
fn table_has_a_header_and_escapes_control_characters() {
    let sets = Sets::of_all_kinds(1);
    let sql = "SELECT inode, 'a' || chr(27) AS text, NULL AS nothing, name_bytes \
               FROM after WHERE inode IN (3, 12) ORDER BY inode";
    let mut query = sets.query(sql, &["after"]);
    query.output = fslab_dataset::Output::Table;
    let expected = "inode  text     nothing  name_bytes\n    3  a\\u{1b}           ff\n   \
                    12  a\\u{1b}           663132\n";
    assert_eq!(text(&query).unwrap(), expected);
    query.output = fslab_dataset::Output::Csv;
    query.sql = "SELECT inode, 'a,\"b' AS text, NULL AS nothing FROM after WHERE inode = 3".into();
    assert_eq!(text(&query).unwrap(), "inode,text,nothing\n3,\"a,\"\"b\",\n");
}
