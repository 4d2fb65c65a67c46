//! The text of a plan, or of another file of tables, and places in it.

use std::collections::HashSet;
use std::ops::Range;

use fslab_report::nearest;
use toml::Spanned;

/// What is wrong with a plan, or with a paper's claims, and where.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{file}:{line}:{column}: {message}")]
pub struct PlanError {
    /// The file.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// What is wrong, naming the key.
    pub message: String,
}

/// A file's text and what to call it.
pub struct Source<'a> {
    /// The name of the file in error messages.
    pub file: &'a str,
    /// The text.
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at a place of the text.
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

    /// Refuses a name that occurs twice; `advice` follows.
    ///
    /// # Errors
    /// Names the second of them.
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

    /// That `what` has no such name, with the nearest of those there are.
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

    /// What the TOML reader found wrong. It names an unknown key but not the key of a value of
    /// the wrong type: that is taken from the line.
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
