//! The program `fslab-sql`: its input, output and exit codes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fslab_dataset::Query;

use crate::support::{Sets, file};

fn start(query: &[u8]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fslab-sql"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(query).unwrap();
    child
}

fn bytes(query: &Query) -> Vec<u8> {
    serde_json::to_vec(query).unwrap()
}

/// Returns the exit code, standard output and standard error.
fn ended(child: Child) -> (Option<i32>, String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn program_answers_a_query_on_standard_input() {
    let sets = Sets::of_all_kinds(2);
    let query = sets.query("SELECT count(*) AS n FROM tier", &["tier"]);
    let (code, output, message) = ended(start(&bytes(&query)));
    assert_eq!((code, output.as_str(), message.as_str()), (Some(0), "{\"n\":4}\n", ""));
}

#[test]
fn input_that_is_not_a_query_names_the_right_command() {
    for input in ["", "  \n", "SELECT 1", "{}", "{\"sql\": 1}"] {
        let (code, output, message) = ended(start(input.as_bytes()));
        assert_eq!((code, output.as_str()), (Some(2), ""), "{input}");
        assert!(message.contains("run `fslab sql` instead"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn errors_are_one_line_with_the_exit_code() {
    let sets = Sets::of_all_kinds(1);
    let query = sets.query("SELECT x FROM tier", &["tier"]);
    let (code, _, message) = ended(start(&bytes(&query)));
    assert_eq!((code, message.lines().count()), (Some(3), 1), "{message}");
    let query = sets.query("SELECT 1 / (inode - inode) FROM tier", &["tier"]);
    let (code, _, message) = ended(start(&bytes(&query)));
    assert_eq!((code, message.lines().count()), (Some(1), 1), "{message}");
    assert!(message.contains("ivide by zero"), "{message}");
}

/// The answer is written while it is computed, and a closed pipe ends the program quietly.
#[test]
fn closed_pipe_ends_the_program_without_an_error() {
    let sets = Sets::new();
    sets.snapshot("snapshot", 2, (1..100_000).map(|inode| file(inode, 0, inode, 1)));
    let sql = "SELECT one.inode, two.name FROM snapshot AS one, snapshot AS two";
    let mut child = start(&bytes(&sets.query(sql, &["snapshot"])));
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("inode"), "{line}");
    let begun = Instant::now();
    let (code, _, message) = ended(child);
    assert_eq!((code, message.as_str()), (Some(0), ""));
    assert!(begun.elapsed() < Duration::from_secs(20));
}
