//! The exit codes, defined in one place.

use std::error::Error;
use std::num::ParseIntError;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use fslab_vfs::Errno;

/// The result of a run of `fslab`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Success.
    Success = 0,
    /// An operation failed.
    Failure = 1,
    /// The arguments do not parse: one is unknown or missing.
    Usage = 2,
    /// The input can't be used: an unknown layer, a wrong key in a plan, a busy directory.
    BadInput = 3,
    /// The machine lacks a tool, a privilege, a kernel feature or a free device.
    Missing = 4,
    /// Everything was measured, and a gate of `--fail-if` failed.
    Regression = 5,
}

/// The exit codes, for man pages.
pub const TABLE: &[(u8, &str)] = &[
    (0, "Success."),
    (1, "An operation failed."),
    (2, "Wrong usage: an unknown option, or a missing argument."),
    (
        3,
        "Unusable input: an unknown layer or mount option, a wrong key in a plan, a missing or \
         busy directory.",
    ),
    (4, "The machine lacks something: a tool, a privilege, a kernel feature, a free device."),
    (5, "A gate (`--fail-if`) failed or, with `--fail-undecided`, is not decided."),
];

/// An error that states its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Coded {
    /// The exit code.
    pub code: Code,
    /// The message on one line: what failed, where, and what the user can do.
    pub message: String,
}

/// Returns from a function with an error that has an exit code. The arguments are the code, and a
/// message as in `bail!`.
macro_rules! bail_as {
    ($code:ident, $($text:tt)*) => {
        return Err($crate::exit::Code::$code.error(format!($($text)*)))
    };
}

/// The error for an image that another fslab process uses.
#[derive(Debug, thiserror::Error)]
#[error("the image {image} is in use by another fslab")]
pub struct InUse {
    /// The image, as given by the user.
    pub image: String,
}

impl Code {
    /// Makes an error with this code and a message of one line.
    pub fn error(self, message: impl Into<String>) -> anyhow::Error {
        Coded { code: self, message: message.into() }.into()
    }

    /// Returns the exit code of an error.
    pub fn of(error: &anyhow::Error) -> Self {
        error.chain().find_map(code_of_cause).unwrap_or(Self::Failure)
    }

    /// Returns the exit code for an I/O error of a file or directory that the user named.
    pub fn of_io(error: &std::io::Error) -> Self {
        Errno::from_io_error(error).map_or(Self::Failure, of_errno)
    }

    /// Returns the code with this number, or [`Self::Failure`] if no code has this number.
    pub fn numbered(number: u8) -> Self {
        let codes = [Self::Success, Self::Usage, Self::BadInput, Self::Missing, Self::Regression];
        codes.into_iter().find(|code| *code as u8 == number).unwrap_or(Self::Failure)
    }

    /// Returns the exit code for an error of the argument parser. An invalid value is bad input; a
    /// missing value or an unknown option is wrong usage.
    pub fn of_usage(error: &clap::Error) -> Self {
        let value = error.get(ContextKind::InvalidValue);
        let is_given = matches!(value, Some(ContextValue::String(text)) if !text.is_empty());
        match error.kind() {
            ErrorKind::ValueValidation => Self::BadInput,
            ErrorKind::InvalidValue if is_given => Self::BadInput,
            _ => Self::Usage,
        }
    }
}

/// Returns the exit code of one error in a chain, if this error determines the code.
fn code_of_cause(cause: &(dyn Error + 'static)) -> Option<Code> {
    fn of<E: Error + 'static>(
        cause: &(dyn Error + 'static),
        code: impl Fn(&E) -> Option<Code>,
    ) -> Option<Code> {
        cause.downcast_ref().and_then(code)
    }
    of(cause, |error: &Coded| Some(error.code))
        .or_else(|| of(cause, |_: &InUse| Some(Code::BadInput)))
        .or_else(|| of(cause, of_layers))
        .or_else(|| of(cause, of_sca))
        .or_else(|| of(cause, |error| Some(of_trace(error))))
        .or_else(|| of(cause, |error| Some(of_tier(error))))
        .or_else(|| of(cause, |error| Some(of_fuse(error))))
        .or_else(|| of(cause, of_age))
        .or_else(|| of(cause, |error| Some(of_dataset(error))))
        .or_else(|| of(cause, |error| Some(of_ext2(error))))
        .or_else(|| of(cause, code_of_report))
        .or_else(|| of(cause, code_of_comparison))
        .or_else(|| of(cause, code_of_campaign))
}

/// Returns whether the error means that another fslab uses the requested file or directory.
pub fn is_in_use(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let layers = match cause.downcast_ref() {
            Some(fslab_sca::Error::Layers(error)) => Some(error),
            _ => cause.downcast_ref::<fslab_layers::Error>(),
        };
        let tier = cause.downcast_ref::<fslab_tier::Error>();
        cause.is::<InUse>()
            || matches!(layers, Some(fslab_layers::Error::InUse { .. }))
            || matches!(tier, Some(fslab_tier::Error::InUse))
    })
}

fn of_layers(error: &fslab_layers::Error) -> Option<Code> {
    use fslab_layers::Error;
    match error {
        Error::Leaf { source, .. } => Some(of_errno(source.errno())),
        Error::Layer { .. } | Error::Threads { .. } => Some(Code::Failure),
        // The exit code depends on the cause of this error.
        Error::ForeignLeaf { .. } | Error::ForeignLayer { .. } => None,
        _ => Some(Code::BadInput),
    }
}

fn of_sca(error: &fslab_sca::Error) -> Option<Code> {
    use fslab_sca::Error;
    match error {
        Error::Layers(error) => of_layers(error),
        Error::Incomplete { .. } => Some(Code::Failure),
        Error::StoredFile { source, .. } if source.errno() != Errno::BUSY => {
            Some(of_errno(source.errno()))
        }
        _ => Some(Code::BadInput),
    }
}

fn of_trace(error: &fslab_trace::Error) -> Code {
    use fslab_trace::Error;
    match error {
        Error::Lost { .. } | Error::Populate { .. } => Code::Failure,
        Error::Dataset(error) => of_dataset(error),
        _ => Code::BadInput,
    }
}

fn of_tier(error: &fslab_tier::Error) -> Code {
    use fslab_tier::Error;
    match error {
        Error::NoArchive { .. }
        | Error::NoRemoteArchive { .. }
        | Error::Key { .. }
        | Error::TooFewArchives { .. }
        | Error::TooFewCopies { .. }
        | Error::Settings { .. }
        | Error::Unwritable { .. }
        | Error::Refused { .. }
        | Error::InUse
        | Error::NotNow { .. }
        | Error::NoDryRun
        | Error::Busy { .. }
        | Error::Foreign { .. } => Code::BadInput,
        Error::Missing { .. } => Code::Missing,
        Error::Remote { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Code::Missing
        }
        Error::Below { source, .. } => of_errno(source.errno()),
        Error::File { source, .. } => Code::of_io(source),
        Error::Archive { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Code::Missing
        }
        _ => Code::Failure,
    }
}

/// Returns the exit code for a system error. If a file is missing, already exists or has the wrong
/// type, this is bad input. A missing privilege is [`Code::Missing`].
fn of_errno(errno: Errno) -> Code {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::EXIST => Code::BadInput,
        Errno::ACCESS | Errno::PERM => Code::Missing,
        _ => Code::Failure,
    }
}

fn of_ext2(error: &fslab_ext2::Error) -> Code {
    use fslab_ext2::Error;
    match error {
        Error::NotExt2(_) | Error::UnknownFeatures(_) | Error::BadParameters(_) => Code::BadInput,
        Error::Vfs(_) | Error::Damaged(_) | Error::NotKept => Code::Failure,
    }
}

fn of_age(error: &fslab_age::Error) -> Option<Code> {
    use fslab_age::Error;
    match error {
        Error::Target { .. } | Error::Volume { .. } => Some(Code::Failure),
        Error::NoProgram { .. } => Some(Code::Missing),
        // The exit code depends on the cause of this error.
        Error::Engine(_) => None,
        Error::Dataset(error) => Some(of_dataset(error)),
        _ => Some(Code::BadInput),
    }
}

fn of_dataset(error: &fslab_dataset::Error) -> Code {
    match error {
        fslab_dataset::Error::File { source, .. } => Code::of_io(source),
        _ => Code::BadInput,
    }
}

fn of_fuse(error: &fslab_fuse::Error) -> Code {
    use fslab_fuse::Error;
    match error {
        Error::NoDevice => Code::Missing,
        // Only errors of fusermount3 have a text; errors of the kernel have none. These kinds of
        // error mean that fusermount3 is not installed, or that this user may not mount.
        Error::Mount { source, .. } if source.get_ref().is_some() => match source.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => Code::Missing,
            _ => Code::Failure,
        },
        _ => Code::Failure,
    }
}

fn code_of_comparison(error: &fslab_compare::Error) -> Option<Code> {
    use fslab_compare::Error;
    match error {
        Error::Plan(_)
        | Error::UnreadablePlan { .. }
        | Error::NoServedTarget { .. }
        | Error::NotResumable { .. } => Some(Code::BadInput),
        Error::Report(error) => code_of_report(error),
        Error::NoTargets { .. } | Error::NoSpace { .. } => Some(Code::Missing),
        lacking if lacking.is_missing_prerequisite() => Some(Code::Missing),
        _ => None,
    }
}

fn code_of_campaign(error: &fslab_campaign::Error) -> Option<Code> {
    use fslab_campaign::Error;
    match error {
        Error::Compare(error) => code_of_comparison(error),
        Error::Samples(error) => code_of_report(error),
        Error::NoLockPlace { .. } | Error::NoDevice { .. } | Error::NoSlurm { .. } => {
            Some(Code::Missing)
        }
        Error::File { source, .. } => Some(Code::of_io(source)),
        Error::Encode(_) | Error::Slurm { .. } => None,
        _ => Some(Code::BadInput),
    }
}

fn code_of_report(error: &fslab_report::Error) -> Option<Code> {
    use fslab_report::Error;
    match error {
        Error::UnreadableSamples { .. }
        | Error::Record { .. }
        | Error::NoProvenance { .. }
        | Error::NewerFormat { .. }
        | Error::SamplesInUse { .. }
        | Error::SamplesExist { .. }
        | Error::Unknown { .. }
        | Error::NoSuchRow { .. } => Some(Code::BadInput),
        Error::Dataset(error) => Some(of_dataset(error)),
        _ => None,
    }
}

/// Formats an error with its causes on one line. Skips a cause if the line already ends with it.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let told = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() {
            line = told;
        } else if !line.ends_with(&told) {
            line = format!("{line}: {told}");
        }
    }
    without_numbers(&line)
}

/// Removes the error numbers that the standard library appends to system errors.
fn without_numbers(line: &str) -> String {
    let mut parts = line.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => text + rest,
        _ => format!("{text} (os error {part}"),
    })
}

/// Formats a usage error on one line, without clap's usage text and hints.
pub fn line_of_usage(error: &clap::Error) -> String {
    let told = error.render().to_string();
    let told = told.strip_prefix("error: ").unwrap_or(&told);
    let lines = told.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_of_use = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more info");
    // clap explains how to pass an unknown option as a value, which is not what the user intended.
    let is_advice = |line: &&str| !line.starts_with("tip: to pass ");
    let lines = lines.take_while(is_of_use).filter(is_advice);
    let line = lines.collect::<Vec<_>>().join(" ").replace(" tip: ", "; ");
    let number = error.source().and_then(|cause| cause.downcast_ref());
    match number.map(ParseIntError::to_string) {
        Some(technical) => {
            line.replace(&technical, "it is not a whole number in the allowed range")
        }
        None if Code::of_usage(error) == Code::Usage => {
            format!("{line}; see `{} --help`", command_of(error))
        }
        None => line,
    }
}

/// Returns the command that the user ran, taken from the usage line of an error.
fn command_of(error: &clap::Error) -> String {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let is_name = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_lowercase());
    let words = usage.split_whitespace().skip_while(|word| *word != "fslab").take_while(is_name);
    let command = words.collect::<Vec<_>>().join(" ");
    if command.is_empty() { "fslab".to_owned() } else { command }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn missing_mount_helper_has_the_exit_code_missing() {
        let mount = |source| fslab_fuse::Error::Mount { mount_point: "/mnt".into(), source };
        let missing = std::io::Error::new(std::io::ErrorKind::NotFound, "fusermount3: not there");
        assert_eq!(Code::of(&mount(missing).into()), Code::Missing);
        let answered = rustix::io::Errno::NOENT.into();
        assert_eq!(Code::of(&mount(answered).into()), Code::Failure);
    }

    #[test]
    fn error_prints_each_cause_once_on_one_line() {
        let file = std::path::PathBuf::from("layers.toml");
        let source = std::io::Error::other("no\n  such  thing");
        let error = fslab_layers::Error::UnreadableFile { path: file, source };
        let error = Err::<(), _>(error).context("outer").unwrap_err();
        assert_eq!(one_line(&error), "outer: layers.toml: no such thing");
    }

    #[test]
    fn numbers_of_system_errors_are_not_shown() {
        let missing = std::io::Error::from_raw_os_error(2);
        let error = Err::<(), _>(missing).context("plan.toml").unwrap_err();
        assert_eq!(one_line(&error), "plan.toml: No such file or directory");
        assert_eq!(without_numbers("a (os error 2): b (os error x)"), "a: b (os error x)");
    }
}
