//! Compares name hashes with those of debugfs.

use std::io::Write;
use std::process::{Command, Stdio};

use fslab_ext2::dir::{HashVersion, Hasher};

use crate::support::has;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// Returns names of all lengths. They are ASCII, because debugfs hashes signed characters and
/// accepts only ASCII in requests.
fn names() -> Vec<String> {
    let mut names: Vec<String> = (1..=255).map(|length| "n".repeat(length)).collect();
    names.extend((0..400).map(|number| format!("{number:x}-{}", number * 7919)));
    names
}

#[test]
fn name_hashes_match_debugfs() {
    if !has("debugfs") {
        return;
    }
    for (seed, words) in
        [("", [0; 4]), (UUID, [0x6745_2301, 0xefcd_ab89, 0x6745_2301, 0xefcd_ab89])]
    {
        for version in HashVersion::ALL {
            let hasher = Hasher::new(version, true, words);
            let (names, answers) = ask_debugfs(version, seed);
            assert_eq!(names.len(), answers.len());
            for (name, answer) in names.iter().zip(answers) {
                let hash = hasher.hash(name.as_bytes());
                assert_eq!((hash.major, hash.minor), answer, "{name} by {version:?}");
            }
        }
    }
}

/// Asks debugfs for the hash and minor hash of all names.
fn ask_debugfs(version: HashVersion, seed: &str) -> (Vec<String>, Vec<(u32, u32)>) {
    let mut debugfs = Command::new("debugfs")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let names = names();
    let seed = if seed.is_empty() { String::new() } else { format!("-s {seed}") };
    let commands: String =
        names.iter().map(|name| format!("dx_hash -h {} {seed} {name}\n", version.name())).collect();
    let mut input = debugfs.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(commands.as_bytes()).unwrap());
    let output = debugfs.wait_with_output().unwrap();
    writer.join().unwrap();
    // The output has the form "Hash of NAME is 0x1234 (minor 0x5678)".
    let text = String::from_utf8(output.stdout).unwrap();
    let number = |word: &str| {
        u32::from_str_radix(word.trim_matches(['(', ')']).trim_start_matches("0x"), 16)
    };
    let answers = text.lines().filter(|line| line.starts_with("Hash of")).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let minor = words.last().unwrap();
        let major = words[words.len() - 3];
        (number(major).unwrap(), number(minor).unwrap())
    });
    (names, answers.collect())
}
