//! The text of a plan or of another TOML file, and errors with a position in the text.

use std::collections::HashSet;
use std::ops::Range;

use fslab_report::nearest;
use toml::Spanned;

/// An error in a plan or in the claims of a paper, with its position.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{file}:{line}:{column}: {message}")]
pub struct PlanError {
    /// The file.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// The error message, with the key.
    pub message: String,
}

/// The text of a file and its name.
pub struct Source<'a> {
    /// The name of the file in error messages.
    pub file: &'a str,
    /// The text.
    pub text: &'a str,
}

impl Source<'_> {
    /// Returns an error at a position of the text.
    #[must_use]
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> PlanError {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        PlanError {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
        }
    }

    /// Checks that names are unique. The error message ends with `advice`.
    ///
    /// # Errors
    /// Reports the second of two equal names.
    pub fn unique<'n>(
        &self,
        key: &str,
        names: impl Iterator<Item = (&'n str, Range<usize>)>,
        advice: &str,
    ) -> Result<(), PlanError> {
        let mut seen = HashSet::new();
        for (name, span) in names {
            if !seen.insert(name) {
                return Err(self.error(span, format!("`{key}`: `{name}` is used twice{advice}")));
            }
        }
        Ok(())
    }

    /// Returns an error for an unknown name, with the most similar known name.
    #[must_use]
    pub fn unknown<'n>(
        &self,
        what: &str,
        name: &Spanned<String>,
        known: impl IntoIterator<Item = &'n str>,
    ) -> PlanError {
        let nearest = nearest(name.get_ref(), known);
        self.error(name.span(), format!("{what} `{}`; nearest: {nearest}", name.get_ref()))
    }

    /// Converts an error of the TOML reader. For a value of the wrong type, that error does not
    /// state the key, so the key is taken from the value's line.
    #[must_use]
    pub fn syntax_error(&self, error: &toml::de::Error) -> PlanError {
        let span = error.span().unwrap_or(0..0);
        let mut message = error.message().lines().collect::<Vec<_>>().join(", ");
        if let Some(key) = self.key_before(span.start) {
            message = format!("`{key}`: {message}");
        }
        self.error(span, message)
    }

    fn key_before(&self, offset: usize) -> Option<&str> {
        let before = self.text.get(..offset)?;
        let line = before.rsplit('\n').next()?;
        line.split_once('=').map(|(key, _)| key.trim())
    }
}
