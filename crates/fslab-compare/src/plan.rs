//! Plans: targets, workloads and the number of rounds of a comparison.
//!
//! A plan is read from TOML once and checked as a whole, so every [`Plan`] can be run. Errors state
//! file, line, column and key.

mod checks;
mod inputs;
mod matrix;
mod raw;
mod source;
mod targets;
mod workloads;

use std::path::{Path, PathBuf};

use fslab_sys::make_file_system::Kind;

use crate::error::{Error, Result};
use crate::workload::{Parameters, Spec, command};
use fslab_report::{Cells, command_line};
use fslab_stats::{Margin, Margins};

pub use fslab_report::Form;
pub use source::{PlanError, Source};

/// The plan of a comparison.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Title of the report.
    pub name: String,
    /// Seed of the plan, unless the command line gives another.
    pub seed: Option<u64>,
    /// Minimum number of times that every target runs every workload.
    pub rounds: u32,
    /// Maximum number of rounds. After `rounds` rounds, a workload gets further rounds until each
    /// of its intervals is as narrow as requested.
    pub rounds_max: u32,
    /// Maximum half width of an interval, as a share of the ratio.
    pub half_width: f64,
    /// Maximum number of times that a block of runs is repeated because of interference. The
    /// command line may override it.
    pub reruns_max: Option<u32>,
    /// Size of each image, in bytes.
    pub image_size: u64,
    /// Time limit of all rounds in seconds. After the first round, a round begins only if there is
    /// time for a round as long as the longest one so far.
    pub time_limit_seconds: Option<u64>,
    /// A run of one workload on one target is aborted after this many seconds.
    pub run_limit_seconds: u64,
    /// The processors to which the comparison is pinned; empty for all.
    pub processors: Vec<usize>,
    /// Name of the target that the others are compared with.
    pub baseline: String,
    /// Whether a hidden second copy of the baseline runs in every round, for the noise floor.
    pub noise_floor: bool,
    /// The margin of rows for which neither the workload nor the target states one.
    pub margin: Option<Margin>,
    /// The targets; names are unique.
    pub targets: Vec<TargetPlan>,
    /// The workloads; labels are unique.
    pub workloads: Vec<WorkloadPlan>,
    /// The text of the plan.
    pub text: String,
    /// The form in which the plan was read: full or quick.
    pub form: Form,
    /// The command that is measured instead of the plan's workloads; empty if there is none.
    pub command: Vec<String>,
    /// The two programs that are compared instead of the plan's targets; empty if there are none.
    pub programs: Vec<PathBuf>,
}

/// One target.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetPlan {
    /// Its name in samples and reports.
    pub name: String,
    /// Its kind.
    pub kind: TargetKind,
    /// Limit of the run's memory in bytes, including the page cache.
    pub memory: Option<u64>,
    /// A requirement that this build of fslab may lack, as written in the plan.
    pub needs: Option<String>,
    /// The program that mounts the target, such as another build of fslab. `None` for this program.
    pub program: Option<PathBuf>,
    /// Its margin for all workloads.
    pub margin: Option<Margin>,
    /// Lengthens each operation by this fraction of its duration. The self-test must detect this
    /// delay; plans can't set it. `None` means no wait at all, and 0 means waits of length zero.
    pub slowed: Option<f64>,
}

/// The kind of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "most targets are images, which are the largest variant"
)]
pub enum TargetKind {
    /// A file system on a new or recorded image, on a device or in memory, optionally with
    /// something mounted over it.
    Image {
        /// The file system.
        base: ImagePlan,
        /// The file system mounted over it.
        over: Over,
    },
    /// An existing directory. Workloads use a new subdirectory. The directory is never remounted.
    Directory {
        /// The directory.
        path: PathBuf,
        /// Whether its files are dropped from the page cache before cold phases.
        cold: bool,
    },
    /// A file system within this process, measured without a mount.
    InProcess {
        /// The specification from which the host makes it.
        specification: String,
    },
}

impl TargetPlan {
    /// Whether fslab mounts the target.
    fn is_served(&self) -> bool {
        let calls_program = |words: &[String]| words.iter().any(|word| word.contains("{fslab}"));
        match &self.kind {
            TargetKind::Image { over, .. } => match over {
                Over::Layers(_) | Over::Engine(_) => true,
                Over::Command(command) => calls_program(&command.mount),
                Over::Nothing | Over::Overlay(_) => false,
            },
            TargetKind::Directory { .. } | TargetKind::InProcess { .. } => false,
        }
    }
}

impl TargetKind {
    /// Returns the plan of the file system that is made for the target; `None` if none is made.
    #[must_use]
    pub fn image(&self) -> Option<&ImagePlan> {
        match self {
            Self::Image { base, .. } => Some(base),
            Self::Directory { .. } | Self::InProcess { .. } => None,
        }
    }
}

/// The plan of an image's file system: how it is made and mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePlan {
    /// The kind of file system.
    pub kind: Base,
    /// The block device on which it is made, instead of an image.
    pub device: Option<DevicePlan>,
    /// Options of mkfs.
    pub mkfs: Vec<String>,
    /// Mount options as in fstab.
    pub mount: String,
    /// A directory whose content is copied into the new file system.
    pub source: Option<PathBuf>,
    /// An image to copy instead of making one, such as an aged file system.
    pub recorded: Option<PathBuf>,
    /// The first digits of the hash of the workload that aged the recorded image, if the plan
    /// states them.
    pub aged_workload: Option<String>,
    /// The percentage of the file system's space that is filled before a run.
    pub fill_percent: Option<u64>,
}

/// The block device on which a target is made. All data on it are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicePlan {
    /// Its path in /dev/disk/by-id. Names there identify the device, not its port.
    pub path: PathBuf,
    /// Serial numbers that the user typed. A device with one of these numbers may be erased, even
    /// if it contains data. The numbers come from the command line, never from a plan.
    pub erase: Vec<String>,
}

/// A file system at the bottom of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A file system on an image or block device, made by a mkfs tool.
    Device(Kind),
    /// tmpfs, in memory.
    Memory,
}

impl ImagePlan {
    /// Whether the file system is on an image, rather than in memory or on a device.
    #[must_use]
    pub fn is_on_image(&self) -> bool {
        self.kind != Base::Memory && self.device.is_none()
    }
}

impl Base {
    /// Returns the name of the file system for mount(2).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Device(kind) => kind.name(),
            Self::Memory => "tmpfs",
        }
    }

    /// Returns the names of all supported file systems.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        Kind::ALL.into_iter().map(Kind::name).chain([Self::Memory.name()])
    }

    /// Finds a file system by its name.
    pub(crate) fn find(name: &str) -> Option<Self> {
        if name == Self::Memory.name() {
            return Some(Self::Memory);
        }
        name.parse().ok().map(Self::Device)
    }

    /// Whether the file system is read-only, so that it must be made from a source.
    pub(crate) fn is_read_only(self) -> bool {
        matches!(self, Self::Device(kind) if kind.is_read_only())
    }
}

/// The mount over the file system of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// Nothing.
    Nothing,
    /// Layers, the top one first.
    Layers(Vec<String>),
    /// A file system mounted by another program's command.
    Command(ForeignMount),
    /// The kernel's overlay with an empty upper directory; the value contains its mount options.
    Overlay(String),
    /// No further mount. An engine of the [`Host`](crate::Host) serves the file system instead of
    /// the kernel. The value contains the engine's options, in the syntax of the options after `?`
    /// in a leaf.
    Engine(String),
}

/// A foreign file system, mounted by a command. `{lower}` and `{mountpoint}` stand for the two
/// directories, `{fslab}` for this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignMount {
    /// The command and its arguments.
    pub mount: Vec<String>,
    /// The command that unmounts it; `None` for umount(2).
    pub unmount: Option<Vec<String>>,
    /// A command whose first line of output is the version.
    pub version: Option<Vec<String>>,
}

/// One workload with its parameters.
#[derive(Clone, Debug)]
pub struct WorkloadPlan {
    /// Its name in samples and reports.
    pub label: String,
    /// The specification of the workload.
    pub spec: &'static Spec,
    /// The parameters that the plan sets.
    pub parameters: Parameters,
    /// The margin for targets that state none.
    pub margin: Option<Margin>,
}

impl WorkloadPlan {
    /// Returns the names of the phases that its samples may have.
    #[must_use]
    pub fn phases(&self) -> Vec<String> {
        let workload = (self.spec.construct)(&self.parameters, 0);
        workload.phases().unwrap_or_else(|| self.spec.phase_names())
    }
}

impl Plan {
    /// Checks that the plan contains all targets and workloads of a choice of cells.
    ///
    /// # Errors
    /// Reports the first missing target or workload, and the most similar existing name.
    pub fn check_cells(&self, cells: &Cells) -> Result<()> {
        let targets: Vec<_> = self.targets.iter().map(|target| &*target.name).collect();
        let workloads: Vec<_> = self.workloads.iter().map(|workload| &*workload.label).collect();
        Ok(cells.check(&targets, &workloads)?)
    }

    /// Reads a plan from a file.
    ///
    /// # Errors
    /// Fails if the file can't be read or the plan is invalid.
    pub fn read(path: &Path, form: Form) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::UnreadablePlan { path: path.to_owned(), source })?;
        Ok(Self::parse(&path.display().to_string(), &text, form)?)
    }

    /// Replaces the targets of the plan by two: `old`, the baseline, and `new`. Both are copies of
    /// the first target that fslab mounts. The first program mounts `old`, the second one `new`.
    ///
    /// # Errors
    /// Fails if fslab mounts none of the targets.
    pub fn of_programs(mut self, programs: [PathBuf; 2]) -> Result<Self> {
        let Some(served) = self.targets.iter().find(|target| target.is_served()).cloned() else {
            return Err(Error::NoServedTarget { plan: self.name });
        };
        self.programs = programs.to_vec();
        let target = |(name, program): (&str, PathBuf)| TargetPlan {
            name: name.to_owned(),
            program: Some(program),
            ..served.clone()
        };
        self.targets = ["old", "new"].into_iter().zip(programs).map(target).collect();
        "old".clone_into(&mut self.baseline);
        Ok(self)
    }

    /// Replaces the workloads of the plan by one that runs a command.
    #[must_use]
    pub fn with_command(mut self, words: Vec<String>) -> Self {
        self.command.clone_from(&words);
        self.workloads = vec![WorkloadPlan {
            label: command_line(&words),
            spec: &command::SPEC,
            parameters: command::parameters_for(words),
            margin: None,
        }];
        self
    }

    /// Returns the second copy of the baseline, which runs in every round and has no row in the
    /// report. Its difference from the baseline is the noise floor. `None` if the plan turns it off
    /// or there is only one target.
    #[must_use]
    pub fn second_copy(&self) -> Option<TargetPlan> {
        let is_named = |name: &str| self.targets.iter().any(|target| target.name == name);
        let baseline = self.targets.iter().find(|target| target.name == self.baseline)?;
        let mut name = format!("{}, second copy", self.baseline);
        while is_named(&name) {
            name.push_str(" for the noise floor");
        }
        (self.noise_floor && self.targets.len() > 1)
            .then(|| TargetPlan { name, ..baseline.clone() })
    }

    /// Sets the serial numbers of devices that may be erased.
    #[must_use]
    pub fn erasing(mut self, serials: &[String]) -> Self {
        for device in self.images_mut().filter_map(|image| image.device.as_mut()) {
            device.erase = serials.to_vec();
        }
        self
    }

    /// Looks in `folder` for images of targets and file lists of workloads. A path that does not
    /// exist is replaced by the same path relative to `folder`, if that exists.
    pub fn look_in(&mut self, folder: &Path) {
        let found = |path: &Path| {
            let there = folder.join(path);
            (!path.exists() && there.exists()).then_some(there)
        };
        for image in self.images_mut() {
            if let Some(there) = image.recorded.as_deref().and_then(found) {
                image.recorded = Some(there);
            }
        }
        for workload in &mut self.workloads {
            let list = workload.spec.parameters.iter().find(|parameter| parameter.name == "list");
            let Some(list) = list else { continue };
            let named = workload.parameters.text(list);
            if let Some(there) = named.and_then(|name| found(Path::new(&name))) {
                workload.parameters.set_text(list, there.display().to_string());
            }
        }
    }

    /// Whether a target uses this recorded image.
    #[must_use]
    pub fn has_recorded(&self, recorded: &Path) -> bool {
        let images = self.targets.iter().filter_map(|target| target.kind.image());
        images.filter_map(|image| image.recorded.as_deref()).any(|known| known == recorded)
    }

    /// Requires that the image `recorded` was aged by this workload, unless the plan already
    /// requires a workload.
    pub fn require_workload(&mut self, recorded: &Path, workload: &str) {
        for image in self.images_mut() {
            if image.recorded.as_deref() == Some(recorded) {
                image.aged_workload.get_or_insert_with(|| workload.to_owned());
            }
        }
    }

    fn images_mut(&mut self) -> impl Iterator<Item = &mut ImagePlan> {
        self.targets.iter_mut().filter_map(|target| match &mut target.kind {
            TargetKind::Image { base, .. } => Some(base),
            TargetKind::Directory { .. } | TargetKind::InProcess { .. } => None,
        })
    }

    /// Returns the margins of the plan's rows.
    #[must_use]
    pub fn margins(&self) -> Margins {
        let workloads = self.workloads.iter();
        let targets = self.targets.iter();
        Margins {
            all: self.margin,
            workloads: workloads.filter_map(|w| Some((w.label.clone(), w.margin?))).collect(),
            targets: targets.filter_map(|t| Some((t.name.clone(), t.margin?))).collect(),
        }
    }

    /// Parses a plan. Errors use `file` as the name of the file.
    ///
    /// # Errors
    /// Returns the first error, with its file, line, column and key.
    pub fn parse(file: &str, text: &str, form: Form) -> std::result::Result<Self, PlanError> {
        raw::parse(&source::Source { file, text }, form)
    }
}
