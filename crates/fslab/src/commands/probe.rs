//! `fslab probe`: finds out from outside what a file system is.

mod cells;
mod reproduce;
mod show;
mod verify;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fslab_probe::matrix::How;
use fslab_probe::timing::validation::Extent;
use fslab_probe::timing::{Clock, MakeCold, Timing};
use fslab_probe::{ATTRIBUTES, Answer, Attribute, Ground, Options, find, plot};
use fslab_sys::memory_bound::MemoryBound;
use fslab_sys::signals::Interrupt;
use fslab_vfs::Size;

use crate::commands::compare::host::Binary;
use crate::exit::{Code, Coded};
use crate::output::output;

/// Arguments of `fslab probe`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A directory on the file system; everything happens in a new one below it
    #[arg(required_unless_present_any = ["verify_matrix", "reproduce"])]
    path: Option<PathBuf>,
    /// Only these attributes, separated by commas; `fslab list` shows all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Time too what can be timed, by a validated cycle counter, and put it beside what was
    /// counted
    #[arg(long)]
    timing: bool,
    /// For --timing: empty the caches of the whole machine when the file system must forget where
    /// blocks are (root)
    #[arg(long, requires = "timing")]
    drop_caches: bool,
    /// Print JSON, with the evidence
    #[arg(long)]
    json: bool,
    /// Say how each value was found
    #[arg(long)]
    explain: bool,
    /// Draw the evidence into an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Judge the answers by what superblocks, sysfs and statx say; an error where one is wrong
    #[arg(long, conflicts_with_all = ["only", "json", "explain", "plot"])]
    verify: bool,
    /// Make file systems of every kind on images in PATH (else in memory and the directory for
    /// temporary files) and judge the answers on each
    #[arg(long, conflicts_with_all = ["only", "json", "explain", "plot", "verify", "drop_caches"])]
    verify_matrix: bool,
    /// For --verify-matrix: the shorter form
    #[arg(long, requires = "verify_matrix")]
    short: bool,
    /// For --verify-matrix: only cells whose names contain this
    #[arg(long, value_name = "TEXT", requires = "verify_matrix")]
    cells: Option<String>,
    /// Find the four results of Hu and Bursum again on ext2, ext3 and ext4, counted and timed, and
    /// show them beside the paper's claims
    #[arg(long, conflicts_with_all = [
        "only", "explain", "plot", "verify", "verify_matrix", "drop_caches", "memory"
    ])]
    reproduce: bool,
    /// Leave out what makes many files or flushes the device often
    #[arg(long)]
    gentle: bool,
    /// Bytes that the prober's files may take at one time
    #[arg(long, value_name = "SIZE", default_value = "128MiB")]
    budget: Size,
    /// Bound the memory of the prober, and with it the cache of files, by a control group (root)
    #[arg(long, value_name = "SIZE", conflicts_with = "verify_matrix")]
    memory: Option<Size>,
    /// Seed of the draws that judge what was timed
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Less room than this shows no read-ahead window at all.
const BUDGET_LEAST: Size = Size::mib(16);

/// Where images are in memory on most machines.
const MEMORY_DIRECTORY: &str = "/dev/shm";

/// Where images are made.
struct Places {
    /// On a disk, or where the user said.
    work: PathBuf,
    /// In memory, where there is room for that.
    fast: PathBuf,
}

impl Args {
    /// Probes.
    pub fn run(self) -> Result<()> {
        let attributes = self.chosen()?;
        if self.budget < BUDGET_LEAST {
            bail!(bad_input(format!("--budget {}: must be at least 16 MiB", self.budget)));
        }
        if self.drop_caches && !rustix::process::geteuid().is_root() {
            let message = "--drop-caches: only root may empty the caches of the machine".to_owned();
            bail!(Coded { code: Code::Missing, message });
        }
        let path = self.path.clone().unwrap_or_else(std::env::temp_dir);
        if !path.is_dir() {
            bail!(bad_input(format!(
                "{}: no directory; name one on the file system to probe",
                path.display()
            )));
        }
        let clock = match self.clock() {
            Err(error) if self.reproduce => {
                eprintln!("not timed: {error:#}");
                Err(format!("{error:#}"))
            }
            known => Ok(known?),
        };
        let not_timed = clock.as_ref().err().cloned();
        let clock = clock.unwrap_or_default();
        let drop_caches: MakeCold<'_> = &drop_caches;
        let timing = clock.as_ref().map(|clock| Timing {
            clock,
            make_cold: self.drop_caches.then_some(drop_caches),
            seed: self.seed,
        });
        let interrupt = Interrupt::on_signals().context("taking over SIGINT and SIGTERM")?;
        let bound = self.bound()?;
        let done = if self.reproduce {
            self.reproduce(&path, timing, not_timed.as_deref(), &interrupt)
        } else {
            self.go(&path, attributes, timing, &interrupt)
        };
        bound.map(MemoryBound::leave).transpose()?;
        done
    }

    fn go(
        &self,
        path: &Path,
        attributes: Vec<&'static Attribute>,
        timing: Option<Timing<'_>>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let places = self.places(path);
        match timing {
            timing if self.verify_matrix => {
                let how = How {
                    work_directory: &places.work,
                    fast_directory: &places.fast,
                    host: &Binary::new()?,
                    options: self.options(),
                    timing,
                    interrupt,
                };
                let only = verify::Only { short: self.short, cells: self.cells.as_deref() };
                verify::matrix(&how, &only)
            }
            timing if self.verify => {
                verify::directory(path, self.options(), timing.as_ref(), interrupt)
            }
            timing => self.probe(path, attributes, timing.as_ref(), interrupt),
        }
    }

    fn reproduce(
        &self,
        path: &Path,
        timing: Option<Timing<'_>>,
        not_timed: Option<&str>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let places = self.places(path);
        let how = How {
            work_directory: &places.work,
            fast_directory: &places.fast,
            host: &Binary::new()?,
            options: Options::default(),
            timing,
            interrupt,
        };
        let clock = timing.map(|timing| timing.clock.validation());
        reproduce::run(&how, clock.ok_or(not_timed.unwrap_or_default()), self.json)
    }

    /// Images go where the user says, else into memory as far as they may.
    fn places(&self, path: &Path) -> Places {
        let memory = PathBuf::from(MEMORY_DIRECTORY);
        let fast = if self.path.is_none() && memory.is_dir() { memory } else { path.to_owned() };
        Places { work: path.to_owned(), fast }
    }

    fn options(&self) -> Options {
        // This process does nothing else, so that it may be bounded.
        Options { budget: self.budget.bytes(), gentle: self.gentle, bound_memory: true }
    }

    fn clock(&self) -> Result<Option<Clock>> {
        if !self.timing && !self.reproduce {
            return Ok(None);
        }
        let extent = if self.reproduce { reproduce::EXTENT } else { Extent::default() };
        match Clock::new(extent) {
            Ok(clock) => Ok(Some(clock)),
            Err(error) => {
                let message = format!("nothing can be timed here: {error}");
                Err(Coded { code: Code::Missing, message }.into())
            }
        }
    }

    fn bound(&self) -> Result<Option<MemoryBound>> {
        let Some(memory) = self.memory else { return Ok(None) };
        let bound = MemoryBound::enter(memory.bytes()).map_err(|error| Coded {
            code: Code::Missing,
            message: format!("--memory {memory}: {error}"),
        });
        Ok(Some(bound?))
    }

    fn probe(
        &self,
        path: &Path,
        attributes: Vec<&'static Attribute>,
        timing: Option<&Timing<'_>>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let ground = Ground::prepare(path, self.options())?;
        let mut answers = Vec::new();
        for attribute in attributes {
            if interrupt.is_raised() {
                return Err(fslab_compare::Error::Interrupted.into());
            }
            answers.push(find(attribute, &ground, timing));
        }
        let file_system = ground.file_system().to_owned();
        ground.clear()?;
        self.show(path, &file_system, &answers, timing)
    }

    fn show(
        &self,
        path: &Path,
        file_system: &str,
        answers: &[Answer],
        timing: Option<&Timing<'_>>,
    ) -> Result<()> {
        let title = format!("{file_system} at {}", path.display());
        if let Some(file) = &self.plot {
            std::fs::write(file, plot(&title, answers))
                .with_context(|| format!("--plot {}", file.display()))?;
        }
        let validation = timing.map(|timing| timing.clock.validation());
        let mut out = output();
        if self.json {
            writeln!(out, "{:#}", show::as_json(file_system, path, answers, validation))?;
            return Ok(());
        }
        writeln!(out, "{title}\n")?;
        writeln!(out, "{}", show::as_table(answers, self.explain))?;
        if let Some(validation) = validation {
            writeln!(out, "\n{}", show::clock(validation))?;
        }
        Ok(())
    }

    fn chosen(&self) -> Result<Vec<&'static Attribute>> {
        if self.only.is_empty() {
            return Ok(ATTRIBUTES.to_vec());
        }
        let named = |name: &String| {
            ATTRIBUTES.iter().copied().find(|attribute| attribute.name == name).ok_or_else(|| {
                let names: Vec<_> = ATTRIBUTES.iter().map(|attribute| attribute.name).collect();
                bad_input(format!("no attribute '{name}'; there is: {}", names.join(", "))).into()
            })
        };
        self.only.iter().map(named).collect()
    }
}

fn bad_input(message: String) -> Coded {
    Coded { code: Code::BadInput, message }
}

/// Empties the caches of the whole machine, of data and of metadata.
fn drop_caches() -> std::io::Result<()> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3")
}
