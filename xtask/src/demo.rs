//! `cargo xtask demo`: a real comparison, from a fresh clone to a report.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{environment, process, setup};

/// Options of the demo.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for samples and report [default: fslab-report, with a number if it exists]
    #[arg(long)]
    out: Option<PathBuf>,
}

const WHAT_IT_DOES: &str = "\
demo: compares ext4, xfs, btrfs, and ext4 under fslab's null layer. Each file system is newly made
on an image, and mounted through a loop device. The image is in memory if it fits, otherwise in the
report's folder. The demo installs the packages that it lists. At the end, it removes images,
devices and mounts. After the build, it takes about three minutes. Without root or /dev/fuse, it
compares file systems inside the process, and reports this.";

impl Args {
    /// Installs packages, builds, compares, and prints the path of the report.
    pub fn run(&self) -> Result<bool> {
        println!("{WHAT_IT_DOES}");
        // Setup lists missing programs. The comparison skips the targets that need them, and its
        // report lists these targets.
        setup::install(setup::Purpose::Demo)?;
        println!("demo: building fslab (some minutes the first time)");
        let build = ["build", "--profile", "demo", "--locked", "--package", "fslab"];
        process::run_ok(environment::cargo().args(build))?;
        self.compare()
    }

    fn compare(&self) -> Result<bool> {
        let out = self.out.clone().unwrap_or_else(free_folder);
        let mut command = Command::new(environment::target_directory()?.join("demo/fslab"));
        command.args(["compare", "--quick", "--out"]).arg(&out);
        println!("demo: {}", process::line_of(&command));
        process::run_ok(&mut command)?;
        let report = out.join("report.html");
        println!("demo: the report is {}; open it in any browser", report.display());
        Ok(true)
    }
}

/// Returns a path in the workspace that does not exist yet, so that samples of an earlier demo are
/// never overwritten.
fn free_folder() -> PathBuf {
    let name = |number| match number {
        1 => "fslab-report".to_owned(),
        number => format!("fslab-report-{number}"),
    };
    let root = environment::workspace_root();
    let mut folders = (1_u32..).map(|number| root.join(name(number)));
    folders.find(|folder| !folder.exists()).unwrap_or(root)
}
