//! `cargo xtask demo`: the main job on real input, from a fresh clone to a report.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::{environment, process, setup};

/// Options of the demo.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for samples and report
    #[arg(long, default_value = "fslab-report")]
    out: String,
}

const WHAT_IT_DOES: &str = "\
demo: compares ext4, xfs, btrfs and ext4 under fslab's null layer, each freshly made on a sparse
image in the temporary folder and mounted through a loop device. Nothing of yours is touched, and
images, devices and mounts are gone at the end. It takes about three minutes after the build;
without root or /dev/fuse it compares file systems inside the process and says so.";

impl Args {
    /// Sets up, builds, compares, and says where the report is.
    pub fn run(&self) -> Result<ExitCode> {
        println!("{WHAT_IT_DOES}");
        // What is missing has been said; the comparison leaves it out and says so in its report.
        setup::install(setup::Purpose::Demo)?;
        process::run_ok(environment::cargo().args([
            "build",
            "--release",
            "--locked",
            "--package",
            "fslab",
        ]))?;
        self.compare()
    }

    fn compare(&self) -> Result<ExitCode> {
        let root = environment::workspace_root();
        let mut command = Command::new(environment::target_directory()?.join("release/fslab"));
        command.current_dir(&root).args(["compare", "--quick", "--out", &self.out]);
        println!("demo: {}", process::line_of(&command));
        process::run_ok(&mut command)?;
        let report = root.join(&self.out).join("report.html");
        println!("demo: the report is {}; open it in any browser", report.display());
        Ok(ExitCode::SUCCESS)
    }
}
