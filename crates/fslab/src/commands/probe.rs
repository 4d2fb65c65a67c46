//! `fslab probe`: determines the attributes of a file system by observing its behaviour.

mod cells;
mod reproduce;
mod show;
mod verify;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_probe::matrix::How;
use fslab_probe::timing::validation::Extent;
use fslab_probe::timing::{Clock, MakeCold, Timing};
use fslab_probe::{ATTRIBUTES, Attribute, Ground, Options, find, plot};
use fslab_sys::memory_bound::MemoryBound;
use fslab_sys::signals::Interrupt;
use fslab_vfs::Size;

use crate::commands::candidates;
use crate::commands::compare::host::Binary;
use crate::exit::Code;

/// Arguments of `fslab probe`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A directory on the file system; a new directory is made and removed in it
    #[arg(required_unless_present_any = ["verify_matrix", "reproduce"])]
    path: Option<PathBuf>,
    /// Determine only these attributes, separated by commas; `fslab list attributes` lists them
    #[arg(long, value_name = "NAME", value_delimiter = ',',
          add = candidates::of_section("attributes"))]
    only: Vec<String>,
    /// Explain how each value was found
    #[arg(long)]
    explain: bool,
    /// Print JSON, with the evidence
    #[arg(long)]
    json: bool,
    /// Draw the evidence into an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Skip checks that make many files or flush the device often
    #[arg(long)]
    gentle: bool,
    /// Maximum space that the files of the probe use at any time
    #[arg(long, value_name = "SIZE", default_value = "128MiB")]
    budget: Size,
    /// Limit the memory and the page cache that the probe uses, with a control group (needs root)
    #[arg(long, value_name = "SIZE", conflicts_with = "verify_matrix")]
    memory: Option<Size>,
    /// Measure by timing too, with a validated cycle counter
    #[arg(long, help_heading = "Timing")]
    timing: bool,
    /// Drop the caches of the whole machine before timed reads that must not find block addresses
    /// in memory (needs root)
    #[arg(long, requires = "timing", help_heading = "Timing")]
    drop_caches: bool,
    /// Seed of the statistical tests on timed values
    #[arg(long, default_value_t = 1, help_heading = "Timing")]
    seed: u64,
    /// Compare the answers with superblock, sysfs and statx; fail if one is wrong
    #[arg(long, conflicts_with_all = ["only", "json", "explain", "plot"], help_heading = VERIFYING)]
    verify: bool,
    /// Make file systems of many kinds on images in PATH, and verify the answers on each [default:
    /// memory and the directory for temporary files]
    #[arg(long, conflicts_with_all = ["only", "json", "explain", "plot", "verify", "drop_caches"],
          help_heading = VERIFYING)]
    verify_matrix: bool,
    /// With --verify-matrix: only a short list of file systems
    #[arg(long, requires = "verify_matrix", help_heading = VERIFYING)]
    short: bool,
    /// With --verify-matrix: only file systems whose names contain this text
    #[arg(long, value_name = "TEXT", requires = "verify_matrix", help_heading = VERIFYING)]
    cells: Option<String>,
    /// Reproduce the four results of Hu and Bursum on ext2, ext3 and ext4, by counting and by
    /// timing
    #[arg(long, conflicts_with_all = [
        "only", "explain", "plot", "verify", "verify_matrix", "drop_caches", "memory"
    ], help_heading = "The paper")]
    reproduce: bool,
}

const VERIFYING: &str = "Verifying the prober";

/// Minimum budget of a probe. With less space, no read-ahead window can be detected.
const BUDGET_LEAST: Size = Size::mib(16);

/// The probed directory, with the clock and the interrupt flag of the run.
struct Work<'a> {
    path: &'a Path,
    timing: Option<Timing<'a>>,
    interrupt: &'a Interrupt,
}

impl Args {
    /// Probes the file system, or verifies the prober.
    pub fn run(self) -> Result<()> {
        let attributes = self.chosen()?;
        if self.budget < BUDGET_LEAST {
            bail_as!(BadInput, "--budget {}: must be at least 16 MiB", self.budget);
        }
        if self.drop_caches && !rustix::process::geteuid().is_root() {
            bail_as!(Missing, "--drop-caches: only root may drop the caches of the machine");
        }
        let path = self.path.clone().unwrap_or_else(std::env::temp_dir);
        if !path.is_dir() {
            bail_as!(
                BadInput,
                "{} is not a directory; give a directory on the file system to probe",
                path.display()
            );
        }
        let mut not_timed = None;
        let clock = match self.clock() {
            Err(error) if self.reproduce => {
                eprintln!("not timed: {error:#}");
                not_timed = Some(format!("{error:#}"));
                None
            }
            known => known?,
        };
        let make_cold = self.drop_caches.then_some(&drop_caches as MakeCold<'_>);
        let timing = clock.as_ref().map(|clock| Timing { clock, make_cold, seed: self.seed });
        let interrupt =
            &Interrupt::on_signals().context("can't install handlers for SIGINT and SIGTERM")?;
        let bound = self.bound()?;
        let work = Work { path: &path, timing, interrupt };
        let done = if self.reproduce {
            self.reproduce(&work, not_timed.as_deref())
        } else if self.verify_matrix {
            self.verify_matrix(&work)
        } else if self.verify {
            verify::directory(&path, self.options(), timing.as_ref(), interrupt)
        } else {
            self.probe(&work, attributes)
        };
        bound.map(MemoryBound::leave).transpose()?;
        done
    }

    fn verify_matrix(&self, &Work { path, timing, interrupt }: &Work<'_>) -> Result<()> {
        let how = How {
            work_directory: path,
            fast_directory: self.fast_directory(path),
            host: &Binary::new()?,
            options: self.options(),
            timing,
            interrupt,
        };
        verify::matrix(&how, self.short, self.cells.as_deref().unwrap_or_default())
    }

    fn reproduce(&self, work: &Work<'_>, not_timed: Option<&str>) -> Result<()> {
        let &Work { path, timing, interrupt } = work;
        let how = How {
            work_directory: path,
            fast_directory: self.fast_directory(path),
            host: &Binary::new()?,
            options: Options::default(),
            timing,
            interrupt,
        };
        let clock = timing.map(|timing| timing.clock.validation());
        reproduce::run(&how, clock.ok_or(not_timed.unwrap_or_default()), self.json)
    }

    /// Returns the directory for images: the path from the command line, or else /dev/shm if it
    /// exists.
    fn fast_directory<'a>(&self, path: &'a Path) -> &'a Path {
        let memory = Path::new("/dev/shm");
        if self.path.is_none() && memory.is_dir() { memory } else { path }
    }

    fn options(&self) -> Options {
        // This process only probes, so a memory limit affects nothing else.
        Options { budget: self.budget.bytes(), gentle: self.gentle, bound_memory: true }
    }

    fn clock(&self) -> Result<Option<Clock>> {
        if !self.timing && !self.reproduce {
            return Ok(None);
        }
        let extent = if self.reproduce { reproduce::EXTENT } else { Extent::default() };
        let cant =
            |error| Code::Missing.error(format!("can't measure times on this machine: {error}"));
        Clock::new(extent).map(Some).map_err(cant)
    }

    fn bound(&self) -> Result<Option<MemoryBound>> {
        let bound = |memory: Size| {
            let cant = |error| Code::Missing.error(format!("--memory {memory}: {error}"));
            MemoryBound::enter(memory.bytes()).map_err(cant)
        };
        self.memory.map(bound).transpose()
    }

    fn probe(&self, work: &Work<'_>, attributes: Vec<&'static Attribute>) -> Result<()> {
        let &Work { path, timing, interrupt } = work;
        let ground = Ground::prepare(path, self.options())?;
        let mut answers = Vec::new();
        for attribute in attributes {
            if interrupt.is_raised() {
                return Err(fslab_compare::Error::Interrupted.into());
            }
            answers.push(find(attribute, &ground, timing.as_ref()));
        }
        let file_system = ground.file_system().to_owned();
        ground.clear()?;
        let title = format!("{file_system} at {}", path.display());
        if let Some(file) = &self.plot {
            std::fs::write(file, plot(&title, &answers))
                .with_context(|| format!("--plot {}", file.display()))?;
        }
        let validation = timing.map(|timing| timing.clock.validation());
        if self.json {
            say!("{:#}", show::as_json(&file_system, path, &answers, validation));
            return Ok(());
        }
        say!("{title}\n");
        say!("{}", show::as_table(&answers, self.explain));
        if let Some(validation) = validation {
            say!("\n{}", show::clock(validation));
        }
        Ok(())
    }

    fn chosen(&self) -> Result<Vec<&'static Attribute>> {
        if self.only.is_empty() {
            return Ok(ATTRIBUTES.to_vec());
        }
        let mut chosen = Vec::new();
        for name in &self.only {
            let Some(attribute) = ATTRIBUTES.iter().find(|attribute| attribute.name == name) else {
                let names: Vec<_> = ATTRIBUTES.iter().map(|attribute| attribute.name).collect();
                bail_as!(
                    BadInput,
                    "no attribute '{name}' (`fslab list attributes` lists all){}",
                    fslab_report::suggestion(name, names.iter().copied())
                );
            };
            chosen.push(*attribute);
        }
        Ok(chosen)
    }
}

/// Drops the caches of the whole machine, for data and metadata.
fn drop_caches() -> std::io::Result<()> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3")
}
