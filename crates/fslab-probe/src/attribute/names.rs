//! `name-length-max`, `path-length-max`, `case`, `normalisation`: how long names and paths may be,
//! and which names are treated as equal.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;

use super::{Attribute, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::Ground;
use crate::search::first_true;

pub(super) static LENGTH: Attribute =
    in_directory("name-length-max", "maximum length of a name in bytes", length);

pub(super) static PATH: Attribute =
    in_directory("path-length-max", "maximum length of a path in one system call, in bytes", path);

pub(super) static CASE: Attribute = in_directory(
    "case",
    "sensitive: File and FILE are two names; insensitive: they are one",
    |ground| same(ground, "Case", "cASE", ["insensitive", "sensitive"]),
);

pub(super) static NORMALISATION: Attribute = in_directory(
    "normalisation",
    "bytes: names are compared byte by byte; folded: different Unicode forms of a name are one \
     name",
    |ground| same(ground, "caf\u{e9}", "cafe\u{301}", ["folded", "bytes"]),
);

/// Maximum name length that is tried.
const LONGEST: u64 = 4096;

/// Maximum path length that is tried.
const LONGEST_PATH: u64 = 64 << 10;

fn length(ground: &Ground) -> io::Result<Finding> {
    let longest = |name: &'static str, letter: &str| -> io::Result<Method> {
        let mut series = Vec::new();
        let width = letter.len() as u64;
        let first_refused = first_true(0, LONGEST / width, |count| {
            let path = ground.directory().join(letter.repeat(count as usize));
            let refused = make(&path)?.is_err();
            series.push(Point { x: count * width, y: (!refused).into() });
            Ok(refused)
        })?;
        Ok(match first_refused {
            Some(first) => Method::found(name, Value::Bytes((first - 1) * width), series),
            None => {
                Method::failed(name, format!("even names of {LONGEST} bytes are accepted"), series)
            }
        })
    };
    // The limit may count bytes or letters. With three-byte letters, only a limit in bytes gives
    // the same number of bytes, provided that the limit is a multiple of three.
    let plain = longest("longest name of one-byte letters", "n")?;
    let wide = longest("longest name of three-byte letters", "\u{20ac}")?;
    let fits = |method: &Method| match method.outcome {
        Ok(Value::Bytes(bytes)) => bytes % 3 == 0,
        _ => false,
    };
    if fits(&plain) {
        return Ok(Finding::conclude(vec![plain, wide]));
    }
    Ok(Finding::by(plain))
}

/// Makes and removes a file. The inner error means that the name is too long. The outer error is
/// any other error.
fn make(path: &std::path::Path) -> io::Result<Result<(), io::Error>> {
    match File::create_new(path) {
        Ok(_file) => fs::remove_file(path).map(Ok),
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

/// Probes the path length. Slashes before the file's name make the path longer, so no deep tree is
/// needed.
fn path(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "longest path by which a file is found";
    let scratch = ground.fresh()?;
    let path = scratch.path().as_os_str().as_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let least = path.len() as u64;
    let mut series = Vec::new();
    let first_refused = first_true(least, LONGEST_PATH, |length| {
        // Adds slashes before the name until the path has this length.
        let directory = &path[..path.len() - name.len()];
        let slashes = vec![b'/'; (length - least) as usize];
        let long = [directory, &slashes, name].concat();
        let refused = match fs::symlink_metadata(OsStr::from_bytes(&long)) {
            Ok(_status) => false,
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => true,
            Err(error) => return Err(error),
        };
        series.push(Point { x: length, y: (!refused).into() });
        Ok(refused)
    })?;
    Ok(Finding::by(match first_refused {
        Some(first) => Method::found(NAME, Value::Bytes(first - 1), series),
        None => Method::found(NAME, Value::BytesAtLeast(LONGEST_PATH), series),
    }))
}

/// Probes whether a file that was created as `made` is found by the name `asked`. The value is the
/// first of `words` if the file is found, otherwise the second.
fn same(ground: &Ground, made: &str, asked: &str, words: [&'static str; 2]) -> io::Result<Finding> {
    const NAME: &str = "lookup of one spelling after a file was created with the other";
    let directory = ground.fresh_path();
    fs::create_dir(&directory)?;
    if let Err(error) = File::create_new(directory.join(made)) {
        return Ok(Finding::none(NAME, format!("the name {made:?} can't be created ({error})")));
    }
    let found = directory.join(asked).exists();
    let word = if found { words[0] } else { words[1] };
    Ok(Finding::by(Method::found(NAME, Value::Word(word), Vec::new())))
}
