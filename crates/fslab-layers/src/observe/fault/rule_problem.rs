//! Errors in a rule of a script.

use crate::nearest::{Nearest, suggest};
use crate::observe::operation::Operation;

/// An error in a rule.
#[derive(Debug, thiserror::Error)]
pub enum RuleProblem {
    /// The first word is not an operation.
    #[error("unknown operation '{word}'{}", suggest(.nearest))]
    UnknownOperation {
        /// The word.
        word: String,
        /// Names that were probably meant.
        nearest: Nearest,
    },
    /// A word is neither a condition nor an action.
    #[error("unknown condition or action '{word}'{}", suggest(.nearest))]
    UnknownWord {
        /// The word.
        word: String,
        /// Names that were probably meant.
        nearest: Nearest,
    },
    /// The rule ends too early.
    #[error("'{after}' should be followed by {expected}")]
    Missing {
        /// The last word.
        after: String,
        /// The word that is missing.
        expected: &'static str,
    },
    /// A value does not parse or is out of range.
    #[error("'{keyword}' needs {expected}, not '{word}'")]
    BadValue {
        /// The condition or action.
        keyword: &'static str,
        /// The value given.
        word: String,
        /// The values that it accepts.
        expected: &'static str,
    },
    /// No error has this name.
    #[error("unknown error '{word}'{}", suggest(.nearest))]
    UnknownErrno {
        /// The name given.
        word: String,
        /// Names that were probably meant.
        nearest: Nearest,
    },
    /// A pattern does not parse.
    #[error("pattern '{word}': {}", source.kind())]
    BadPattern {
        /// The pattern.
        word: String,
        /// The error in it.
        source: globset::Error,
    },
    /// The action does not apply to an operation.
    #[error("'{action}' can't be applied to {operation}")]
    Misfit {
        /// The action.
        action: &'static str,
        /// The operation.
        operation: Operation,
    },
    /// Something follows the action.
    #[error("nothing should follow the action, but '{word}' does")]
    Trailing {
        /// The word that follows.
        word: String,
    },
    /// A quote is not closed.
    #[error("a quote is not closed")]
    OpenQuote,
}
