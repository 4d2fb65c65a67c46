//! The project's files, and the results of checks.

use std::collections::{BTreeMap, BTreeSet};
use std::{fmt, fs};

use anyhow::{Context, Result};

use crate::environment;

/// Text files by their path from the project's root.
pub struct Tree {
    files: BTreeMap<String, String>,
    /// Paths of the files that are not text, such as pictures.
    others: BTreeSet<String>,
}

impl Tree {
    /// Reads all files that git tracks or would track. Keeps only the names of files that are not
    /// text.
    pub fn of_workspace() -> Result<Self> {
        let root = environment::workspace_root();
        let (mut files, mut others) = (BTreeMap::new(), BTreeSet::new());
        for path in environment::files()? {
            let bytes =
                fs::read(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
            match String::from_utf8(bytes) {
                Ok(text) => drop(files.insert(path, text)),
                Err(_) => drop(others.insert(path)),
            }
        }
        Ok(Self { files, others })
    }

    /// Returns all text files.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns all Rust sources.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// Returns README.md and the pages of the guide.
    pub fn files_for_users(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_guide = |path: &str| path.starts_with("docs/guide/") && path.ends_with(".md");
        self.files().filter(move |(path, _)| *path == "README.md" || is_guide(path))
    }

    /// Returns all manifests with the names of their crates: `crates/NAME/Cargo.toml` and others
    /// such as xtask's.
    pub fn manifests(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.files().filter_map(|(path, text)| {
            let folder = path.strip_suffix("/Cargo.toml")?;
            let name = folder.strip_prefix("crates/").unwrap_or(folder);
            Some((path, name, text))
        })
    }

    /// Whether a file with this path exists, text or not.
    pub fn has(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.others.contains(path)
    }

    /// Returns the text of a file; `None` if there is no such text file.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }
}

/// A violation of a rule: its place and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The file.
    pub path: String,
    /// The line, counted from 1; `None` for the whole file.
    pub line: Option<usize>,
    /// The message.
    pub message: String,
}

impl Violation {
    /// Makes a violation of a whole file.
    pub fn of_file(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, message: message.into() }
    }

    /// Makes a violation in a line; `index` counts from 0.
    pub fn of_line(path: &str, index: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: Some(index + 1), message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "{}:{line}: {}", self.path, self.message),
            None => write!(formatter, "{}: {}", self.path, self.message),
        }
    }
}

/// Returns the lines of files, each with its path and its index from 0.
pub fn lines_of<'a>(
    files: impl Iterator<Item = (&'a str, &'a str)>,
) -> impl Iterator<Item = (&'a str, usize, &'a str)> {
    files.flat_map(|(path, text)| {
        text.lines().enumerate().map(move |(index, line)| (path, index, line))
    })
}

/// The parts of a line of Rust.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RustLine {
    /// Code, with its strings emptied.
    pub code: String,
    /// The contents of the strings, separated by line feeds.
    pub strings: String,
    /// The text behind `//`, `///` or `//!`; `None` without a comment.
    pub comment: Option<String>,
}

impl RustLine {
    /// Splits a line. The later lines of a string of several lines are taken for code; the checks
    /// tolerate that.
    pub fn of(line: &str) -> Self {
        let mut parts = Self::default();
        let mut characters = line.char_indices().peekable();
        let mut in_string = false;
        while let Some((index, character)) = characters.next() {
            let next = characters.peek().map(|(_, next)| *next);
            match character {
                '\\' if in_string => {
                    characters.next();
                    parts.strings.push(' ');
                }
                '\'' if !in_string && next == Some('"') => drop(characters.next()),
                '"' => {
                    in_string = !in_string;
                    parts.code.push('"');
                    parts.strings.push_str(if in_string { "" } else { "\n" });
                }
                '/' if !in_string && next == Some('/') => {
                    let text = line[index + 2..].trim_start_matches(['/', '!']);
                    parts.comment = Some(text.trim().to_owned());
                    break;
                }
                _ if in_string => parts.strings.push(character),
                _ => parts.code.push(character),
            }
        }
        parts
    }
}

/// Whether `text` contains `word`, with no characters of a name directly before or after it.
pub fn has_word(text: &str, word: &str) -> bool {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(word).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + word.len()..].chars().next();
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Tree {
        /// Makes a tree for tests.
        pub fn of(files: &[(&str, &str)]) -> Self {
            let owned = |(path, text): &(&str, &str)| (path.to_string(), text.to_string());
            Self { files: files.iter().map(owned).collect(), others: BTreeSet::new() }
        }
    }

    #[test]
    fn a_line_is_split_into_code_strings_and_comment() {
        for (line, code, strings, comment) in [
            ("a // b", "a ", "", Some("b")),
            ("f(\"x // y\") // z", "f(\"\") ", "x // y\n", Some("z")),
            ("f(\"a\\\"b\", c)", "f(\"\", c)", "a b\n", None),
            ("'\"' => g(\"s\")", "' => g(\"\")", "s\n", None),
            ("f(\"can't\", \"b\")", "f(\"\", \"\")", "can't\nb\n", None),
            ("//! all", "", "", Some("all")),
        ] {
            let (code, strings) = (code.to_owned(), strings.to_owned());
            let comment = comment.map(str::to_owned);
            assert_eq!(RustLine::of(line), RustLine { code, strings, comment }, "{line}");
        }
    }

    #[test]
    fn only_whole_words_match() {
        assert!(has_word("use fuser::X", "fuser"));
        assert!(!has_word("fusermount3", "fuser"));
        assert!(!has_word("my_fuser", "fuser"));
        assert!(has_word("_fuser fuser", "fuser"));
    }
}
