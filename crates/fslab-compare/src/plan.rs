//! Plans: what is compared with what, by which workloads, in how many rounds.
//!
//! A plan is read from TOML once and checked as a whole; whoever holds a [`Plan`] holds one that
//! can be run. Errors name file, line, column and key.

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
use fslab_report::Cells;
use fslab_stats::{Margin, Margins};

pub use fslab_report::Form;
pub use source::{PlanError, Source};

/// What is compared with what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Title of the report.
    pub name: String,
    /// Seed of the plan, unless the command line gives another.
    pub seed: Option<u64>,
    /// How often every target runs every workload, at least.
    pub rounds: u32,
    /// How often at most. Above `rounds`, a workload is given more until each of its intervals is
    /// as narrow as asked.
    pub rounds_max: u32,
    /// Half the width an interval may have, as a share of the ratio.
    pub half_width: f64,
    /// How often a block of runs is repeated because the machine did other things meanwhile,
    /// unless the command line says otherwise.
    pub reruns_max: Option<u32>,
    /// Size of each image, in bytes.
    pub image_size: u64,
    /// After this many seconds no new round is begun.
    pub time_limit_seconds: Option<u64>,
    /// After this many seconds a run is given up: one workload on one target.
    pub run_limit_seconds: u64,
    /// The processors on which everything is run; empty for all.
    pub processors: Vec<usize>,
    /// Name of the target the others are compared with.
    pub baseline: String,
    /// Whether a hidden second copy of the baseline is run in every round, for the noise floor.
    pub noise_floor: bool,
    /// The margin of rows whose workload and target state none.
    pub margin: Option<Margin>,
    /// What is compared; names are unique.
    pub targets: Vec<TargetPlan>,
    /// By what; labels are unique.
    pub workloads: Vec<WorkloadPlan>,
    /// The text the plan was read from.
    pub text: String,
    /// In which form it was read.
    pub form: Form,
    /// The command it runs instead of its own workloads; empty otherwise.
    pub command: Vec<String>,
    /// The two programs that it compares instead of its own targets; empty otherwise.
    pub programs: Vec<PathBuf>,
}

/// One target.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetPlan {
    /// Its name in samples and reports.
    pub name: String,
    /// What it is.
    pub kind: TargetKind,
    /// Bound on the memory of the run, the page cache included, in bytes.
    pub memory: Option<u64>,
    /// What it needs that may not be part of this fslab, as the plan says it.
    pub needs: Option<String>,
    /// The program that mounts it, where that is not this one: another build of fslab.
    pub program: Option<PathBuf>,
    /// Its margin, whatever the workload.
    pub margin: Option<Margin>,
    /// By which share each of its operations is made longer: what a self-test must find. No plan
    /// says it. `None` is without any wait, and 0 with waits of no length.
    pub slowed: Option<f64>,
}

/// What a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly all targets are images, the largest")]
pub enum TargetKind {
    /// A file system on a fresh image, and perhaps something mounted over it.
    Image {
        /// The file system.
        base: ImagePlan,
        /// What is mounted over it.
        over: Over,
    },
    /// A directory that is there already; measured in a fresh subdirectory, never remounted.
    Directory {
        /// The directory.
        path: PathBuf,
        /// Whether its files are dropped from the page cache before cold phases.
        cold: bool,
    },
    /// A file system within this process, measured without a mount.
    InProcess {
        /// What the host makes it from.
        specification: String,
    },
}

impl TargetPlan {
    /// Whether this program mounts it.
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
    /// The file system that is made for it; `None` where it brings one.
    #[must_use]
    pub fn image(&self) -> Option<&ImagePlan> {
        match self {
            Self::Image { base, .. } => Some(base),
            Self::Directory { .. } | Self::InProcess { .. } => None,
        }
    }
}

/// How the file system of an image is made and mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePlan {
    /// Which file system.
    pub kind: Base,
    /// The block device it is made on, instead of an image.
    pub device: Option<DevicePlan>,
    /// Options of mkfs.
    pub mkfs: Vec<String>,
    /// Mount options as in fstab.
    pub mount: String,
    /// A directory whose contents it is given.
    pub source: Option<PathBuf>,
    /// An image that is copied instead of making one: an aged file system, for example.
    pub recorded: Option<PathBuf>,
    /// What the hash of the workload that aged it begins with, where the plan says.
    pub aged_workload: Option<String>,
    /// The share of its space that is filled before a run, in percent.
    pub fill_percent: Option<u64>,
}

/// A block device that a target is made on: all that it holds is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicePlan {
    /// Its name below /dev/disk/by-id, which belongs to the device and not to a port.
    pub path: PathBuf,
    /// Serial numbers that were typed: devices with these may be erased whatever they hold. They
    /// come from the command line, never from a plan.
    pub erase: Vec<String>,
}

/// A file system at the bottom of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// On a device, made by a tool.
    Device(Kind),
    /// In memory: tmpfs.
    Memory,
}

impl ImagePlan {
    /// Whether it lies on an image, and neither in memory nor on a device of its own.
    #[must_use]
    pub fn is_on_image(&self) -> bool {
        self.kind != Base::Memory && self.device.is_none()
    }
}

impl Base {
    /// The name mount(2) knows it by.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Device(kind) => kind.name(),
            Self::Memory => "tmpfs",
        }
    }

    /// All names.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        Kind::ALL.into_iter().map(Kind::name).chain([Self::Memory.name()])
    }

    /// The one of a name.
    pub(crate) fn find(name: &str) -> Option<Self> {
        if name == Self::Memory.name() {
            return Some(Self::Memory);
        }
        name.parse().ok().map(Self::Device)
    }

    /// Whether it can only be read, and must be given a source.
    pub(crate) fn is_read_only(self) -> bool {
        matches!(self, Self::Device(kind) if kind.is_read_only())
    }
}

/// What is mounted over the file system of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// Nothing.
    Nothing,
    /// Layers, the top one first.
    Layers(Vec<String>),
    /// What a foreign command mounts.
    Command(ForeignMount),
    /// The kernel's overlay, with an empty upper directory; its mount options.
    Overlay(String),
    /// Nothing: the host's own engine serves it instead of the kernel; the engine's options, as
    /// behind the `?` of a leaf.
    Engine(String),
}

/// A foreign file system, mounted by a command. `{lower}` and `{mountpoint}` stand for the two
/// directories, `{fslab}` for this programme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignMount {
    /// The command and its arguments.
    pub mount: Vec<String>,
    /// How it is unmounted, where umount(2) will not do.
    pub unmount: Option<Vec<String>>,
    /// A command whose first line of output is the version.
    pub version: Option<Vec<String>>,
}

/// One workload with its parameters.
#[derive(Clone, Debug)]
pub struct WorkloadPlan {
    /// Its name in samples and reports.
    pub label: String,
    /// Which workload.
    pub spec: &'static Spec,
    /// What the plan says of its parameters.
    pub parameters: Parameters,
    /// The margin of targets that state none.
    pub margin: Option<Margin>,
}

impl WorkloadPlan {
    /// The phases that it may have, as samples call them.
    #[must_use]
    pub fn phases(&self) -> Vec<String> {
        let workload = (self.spec.construct)(&self.parameters, 0);
        workload.phases().unwrap_or_else(|| self.spec.phase_names())
    }
}

impl Plan {
    /// Refuses a choice of cells that names targets or workloads which the plan lacks.
    ///
    /// # Errors
    /// Names the first of them, and the nearest there are.
    pub fn check_cells(&self, cells: &Cells) -> Result<()> {
        let targets: Vec<_> = self.targets.iter().map(|target| &*target.name).collect();
        let workloads: Vec<_> = self.workloads.iter().map(|workload| &*workload.label).collect();
        Ok(cells.check(&targets, &workloads)?)
    }

    /// Reads a plan from a file.
    ///
    /// # Errors
    /// Where the file can't be read or the plan is wrong.
    pub fn read(path: &Path, form: Form) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::UnreadablePlan { path: path.to_owned(), source })?;
        Ok(Self::parse(&path.display().to_string(), &text, form)?)
    }

    /// The plan with one of its targets mounted by two programs, instead of its own targets:
    /// `old`, the baseline, and `new`. The target is the first that fslab serves.
    ///
    /// # Errors
    /// Where fslab serves none of the targets.
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

    /// The plan with one workload, which runs a command, instead of its own.
    #[must_use]
    pub fn with_command(mut self, words: Vec<String>) -> Self {
        self.command.clone_from(&words);
        self.workloads = vec![WorkloadPlan {
            label: words.join(" "),
            spec: &command::SPEC,
            parameters: command::parameters_for(words),
            margin: None,
        }];
        self
    }

    /// The second copy of the baseline that is run in every round without a row of its own: how
    /// far it is from the baseline is the noise floor. `None` where the plan wants none, and where
    /// nothing is compared.
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

    /// With serial numbers of devices that may be erased.
    #[must_use]
    pub fn erasing(mut self, serials: &[String]) -> Self {
        for device in self.images_mut().filter_map(|image| image.device.as_mut()) {
            device.erase = serials.to_vec();
        }
        self
    }

    /// Lets targets find their images, and workloads their lists of files, in a folder, where the
    /// current directory has none of that name.
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

    /// Whether a target begins with this image.
    #[must_use]
    pub fn has_recorded(&self, recorded: &Path) -> bool {
        let images = self.targets.iter().filter_map(|target| target.kind.image());
        images.filter_map(|image| image.recorded.as_deref()).any(|known| known == recorded)
    }

    /// Lets no image in for `recorded` but one that this workload has aged, unless the plan says
    /// which one itself.
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

    /// The margins of its rows.
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

    /// Parses a plan; `file` is what errors call it.
    ///
    /// # Errors
    /// Names file, line, column and key of the first thing that is wrong.
    pub fn parse(file: &str, text: &str, form: Form) -> std::result::Result<Self, PlanError> {
        raw::parse(&source::Source { file, text }, form)
    }
}
