//! The project's files, and the violations that checks find.

use std::collections::{BTreeMap, BTreeSet};
use std::{fmt, fs};

use anyhow::{Context, Result};

use crate::environment;

/// The project's text files, by their path from the root.
pub struct Tree {
    files: BTreeMap<String, String>,
    /// Paths of the files that are not text, such as pictures.
    others: BTreeSet<String>,
}

impl Tree {
    /// Reads all files that git tracks or would track. Of files that are not text, keeps only the
    /// names.
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

    /// Returns all manifests with the names of their crates. Manifests outside `crates`, such as
    /// xtask's, are included.
    pub fn manifests(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.files().filter_map(|(path, text)| {
            let folder = path.strip_suffix("/Cargo.toml")?;
            let name = folder.strip_prefix("crates/").unwrap_or(folder);
            Some((path, name, text))
        })
    }

    /// Returns whether a file with this path exists, text or not.
    pub fn has(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.others.contains(path)
    }

    /// Returns the text of a file; `None` if there is no such text file.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }
}

/// A violation of a rule: its location and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The path of the file.
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
    /// Code, with the contents of its strings removed.
    pub code: String,
    /// The contents of the strings.
    pub strings: Vec<String>,
    /// Whether the first string began in an earlier line.
    pub continues_string: bool,
    /// The text after `//`, `///` or `//!`; `None` without a comment.
    pub comment: Option<String>,
}

/// Splits each line of a Rust source into its parts. The lines must be passed in order.
#[derive(Default)]
pub struct RustLexer {
    /// The string that the last line left open.
    open: Option<Quote>,
}

/// The delimiter that ends a string: a quote that is not escaped, or a quote and this number of
/// `#`.
#[derive(Clone, Copy)]
enum Quote {
    Plain,
    Raw(usize),
}

impl RustLexer {
    /// Splits the next line.
    pub fn split(&mut self, line: &str) -> RustLine {
        let mut parts = RustLine { continues_string: self.open.is_some(), ..RustLine::default() };
        if parts.continues_string {
            parts.strings.push(String::new());
        }
        let mut rest = line;
        while !rest.is_empty() {
            rest = match (self.open, rest.strip_prefix("//")) {
                (Some(quote), _) => self.in_string(quote, rest, &mut parts),
                (None, None) => self.in_code(rest, &mut parts),
                (None, Some(comment)) => {
                    parts.comment = Some(comment.trim_start_matches(['/', '!']).trim().to_owned());
                    ""
                }
            };
        }
        parts
    }

    /// Consumes code up to a character that may begin a string or a comment; returns the rest.
    fn in_code<'a>(&mut self, rest: &'a str, parts: &mut RustLine) -> &'a str {
        if let Some(rest) = rest.strip_prefix("'\"'") {
            return rest;
        }
        if let Some((quote, length)) = opening(rest, &parts.code) {
            self.open = Some(quote);
            parts.code.push('"');
            parts.strings.push(String::new());
            return &rest[length..];
        }
        let mut bytes = rest.bytes().skip(1);
        let next = bytes.position(|byte| matches!(byte, b'/' | b'"' | b'\'' | b'r'));
        let (code, rest) = rest.split_at(next.map_or(rest.len(), |position| position + 1));
        parts.code.push_str(code);
        rest
    }

    /// Consumes a string up to its end or its first escaped character; returns the rest.
    fn in_string<'a>(&mut self, quote: Quote, rest: &'a str, parts: &mut RustLine) -> &'a str {
        let special = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\'));
        let (text, rest) = rest.split_at(special.unwrap_or(rest.len()));
        let string = parts.strings.last_mut();
        if let Some(rest) = quote.strip_end(rest) {
            string.into_iter().for_each(|string| string.push_str(text));
            self.open = None;
            parts.code.push('"');
            return rest;
        }
        let mut characters = rest.chars();
        let mut character = characters.next();
        if character == Some('\\') && matches!(quote, Quote::Plain) {
            // An escaped character separates words, as a blank does.
            characters.next();
            character = Some(' ');
        }
        if let Some(string) = string {
            string.push_str(text);
            string.extend(character);
        }
        characters.as_str()
    }
}

impl Quote {
    /// Returns the text after the string's closing delimiter, if `rest` begins with that delimiter.
    fn strip_end(self, rest: &str) -> Option<&str> {
        let rest = rest.strip_prefix('"')?;
        match self {
            Self::Plain => Some(rest),
            Self::Raw(count) => {
                let hashes = rest.bytes().take(count).take_while(|byte| *byte == b'#').count();
                (hashes == count).then(|| &rest[count..])
            }
        }
    }
}

/// Returns the kind and length of the beginning of a string.
fn opening(rest: &str, code: &str) -> Option<(Quote, usize)> {
    if rest.starts_with('"') {
        return Some((Quote::Plain, 1));
    }
    let before = code.strip_suffix('b').unwrap_or(code);
    let raw = rest.strip_prefix('r').filter(|_| !before.ends_with(is_name_character))?;
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    raw[hashes..].starts_with('"').then_some((Quote::Raw(hashes), hashes + 2))
}

/// Returns whether a character may be part of a name.
pub fn is_name_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Returns whether `text` contains `word` as a whole word.
pub fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + word.len()..].chars().next();
        !before.is_some_and(is_name_character) && !after.is_some_and(is_name_character)
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
            ("a // b", "a ", &[][..], Some("b")),
            ("f(\"x // y\") // z", "f(\"\") ", &["x // y"], Some("z")),
            ("f(\"a\\\"b\", c)", "f(\"\", c)", &["a b"], None),
            ("'\"' => g(\"s\")", " => g(\"\")", &["s"], None),
            ("f(\"can't\", \"b\")", "f(\"\", \"\")", &["can't", "b"], None),
            ("f(r#\"a\"b\"#, br\"\\\")", "f(\"\", b\"\")", &["a\"b", "\\"], None),
            ("//! all", "", &[], Some("all")),
        ] {
            let parts = RustLexer::default().split(line);
            assert_eq!((parts.code.as_str(), parts.strings.as_slice()), (code, &own(strings)[..]));
            assert_eq!(parts.comment.as_deref(), comment, "{line}");
        }
    }

    fn own(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn strings_continue_in_later_lines() {
        let mut lexer = RustLexer::default();
        let lines = ["f(\"one \\", "two\", x) // c", "g(r#\"//", "\"#, y)"];
        let parts = lines.map(|line| lexer.split(line));
        assert_eq!(parts[1].strings, ["two"]);
        assert_eq!((parts[1].continues_string, parts[1].code.as_str()), (true, "\", x) "));
        assert_eq!((parts[2].strings.as_slice(), &parts[2].comment), (&own(&["//"])[..], &None));
        assert_eq!((parts[3].continues_string, parts[3].code.as_str()), (true, "\", y)"));
    }

    #[test]
    fn only_whole_words_match() {
        assert!(has_word("use fuser::X", "fuser"));
        assert!(!has_word("fusermount3", "fuser"));
        assert!(!has_word("my_fuser", "fuser"));
        assert!(has_word("_fuser fuser", "fuser"));
    }
}
