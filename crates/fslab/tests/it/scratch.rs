//! A directory with a plan, in which tests run the program.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::support::fslab;

/// The directory. It is removed on drop.
pub struct Scratch {
    folder: TempDir,
    /// An environment variable for the program. Its value is a directory inside this one.
    variable: (&'static str, &'static str),
}

impl Scratch {
    /// Makes a directory with `plan.toml`.
    pub fn with_plan(plan: &str, variable: (&'static str, &'static str)) -> Self {
        let scratch = Self { folder: TempDir::new().unwrap(), variable };
        fs::write(scratch.path("plan.toml"), plan).unwrap();
        scratch
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> String {
        self.folder().join(name).to_str().unwrap().to_owned()
    }

    /// Runs the program in the directory. Returns its exit code, standard output and standard
    /// error.
    #[track_caller]
    pub fn fslab(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = fslab(arguments);
        let (name, folder) = self.variable;
        command.current_dir(self.folder()).env(name, self.path(folder));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }

    /// Runs the program, which must succeed. Returns its output.
    #[track_caller]
    pub fn done(&self, arguments: &[&str]) -> String {
        let (code, output, messages) = self.fslab(arguments);
        assert_eq!(code, 0, "{arguments:?}: {messages}");
        output
    }
}
