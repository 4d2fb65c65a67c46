//! The errors of the engine, and their exit codes.

use std::io;
use std::path::PathBuf;

use datafusion::error::DataFusionError;

/// The result of operations in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Standard input is not a query.
    #[error("standard input is not a query of `fslab sql`: {0}; run `fslab sql` instead")]
    Request(String),
    /// A data set can't be used.
    #[error(transparent)]
    DataSet(#[from] fslab_dataset::Error),
    /// A data set was refused while the engine planned the statement. The text is the message of
    /// the error.
    #[error("{0}")]
    Refused(String),
    /// A part of a data set can't be used.
    #[error("{}: {what}", path.display())]
    Part {
        /// The file.
        path: PathBuf,
        /// The problem, and what to do.
        what: String,
    },
    /// The statement is invalid or not allowed.
    #[error("{0}")]
    Statement(String),
    /// The engine failed.
    #[error("the query failed: {}", one_line(.0))]
    Engine(DataFusionError),
    /// The engine or a library panicked.
    #[error("the query failed inside the SQL engine: {0}")]
    Panic(String),
    /// The query needs more memory than its limit.
    #[error(
        "the query needs more than {limit_bytes} bytes of memory; set a higher limit with --memory"
    )]
    Memory {
        /// The memory limit of the query.
        limit_bytes: u64,
    },
    /// Temporary files can't be used.
    #[error("temporary files in {}: {source}", directory.display())]
    Temporary {
        /// The directory.
        directory: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The answer can't be written.
    #[error("standard output: {0}")]
    Output(#[source] io::Error),
    /// The process can't start a thread, or can't set its own limits.
    #[error("can't start {what}: {source}")]
    Start {
        /// The words that follow "can't start" in the message.
        what: &'static str,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Returns the exit code, as in the guide's page on exit codes.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Request(_) => 2,
            Self::DataSet(_) | Self::Refused(_) | Self::Part { .. } | Self::Statement(_) => 3,
            Self::Temporary { source, .. } if source.kind() == io::ErrorKind::NotFound => 3,
            Self::Start { .. } => 4,
            _ => 1,
        }
    }

    /// Returns whether a damaged file may be the cause.
    pub(crate) fn may_be_damage(&self) -> bool {
        matches!(self, Self::Engine(_) | Self::Panic(_))
    }

    /// Classifies an error of the engine.
    pub(crate) fn of_engine(error: DataFusionError, limit_bytes: u64) -> Self {
        if let Some(own) = Self::own_within(&error) {
            return own;
        }
        match error.find_root() {
            DataFusionError::SQL(..)
            | DataFusionError::Plan(_)
            | DataFusionError::SchemaError(..)
            | DataFusionError::NotImplemented(_) => {
                Self::Statement(format!("the statement is not valid: {}", one_line(&error)))
            }
            DataFusionError::ResourcesExhausted(_) => Self::Memory { limit_bytes },
            _ => Self::Engine(error),
        }
    }

    /// Finds an error of a temporary file or of a data set inside the errors in which the engine
    /// wrapped it.
    fn own_within(error: &DataFusionError) -> Option<Self> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(one) = cause {
            match one.downcast_ref() {
                Some(Self::Temporary { directory, source }) => {
                    let source = io::Error::new(source.kind(), source.to_string());
                    return Some(Self::Temporary { directory: directory.clone(), source });
                }
                Some(Self::DataSet(error)) => return Some(Self::Refused(error.to_string())),
                _ => {}
            }
            // The error inside an `io::Error` is returned by `get_ref`, not by `source`.
            let inner = one.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            cause = inner.map(|inner| inner as _).or_else(|| one.source());
        }
        None
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        Self::External(Box::new(error))
    }
}

/// Formats an error of the engine on one line, without the prefixes that name the engine's layers.
fn one_line(error: &DataFusionError) -> String {
    let text = error.strip_backtrace();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let layers = ["Error during planning: ", "Execution error: ", "External error: "];
    let inner =
        layers.iter().fold(text.as_str(), |text, layer| text.strip_prefix(layer).unwrap_or(text));
    inner.trim_end_matches('.').to_owned()
}
