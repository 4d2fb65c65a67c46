//! The provenance of a comparison: enough to judge it, to repeat it, and to list the differences
//! between runs whose samples are merged.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::choice::Choice;
use crate::shell::command_line;
use fslab_stats::Margins;

/// The first record of a samples file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Provenance {
    /// The format version of the records that follow.
    pub format: u32,
    /// The identifier of the run.
    pub run: String,
    /// The version of fslab.
    pub fslab: String,
    /// The command that repeats the comparison.
    pub command: String,
    /// The start time (RFC 3339, UTC).
    pub started: String,
    /// The title of the plan.
    pub plan_name: String,
    /// The text of the plan.
    pub plan: String,
    /// The form in which the plan was read: full or quick.
    pub form: Form,
    /// The command that was run instead of the plan's workloads, if any.
    pub workload_command: Vec<String>,
    /// The two programs that were compared instead of the plan's targets, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<PathBuf>,
    /// The baseline.
    pub baseline: String,
    /// The name of the second copy of the baseline in the samples, if one is run for the noise
    /// floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_copy: Option<String>,
    /// The margins of the rows.
    #[serde(skip_serializing_if = "Margins::is_empty")]
    pub margins: Margins,
    /// Names of the targets, in the plan's order.
    pub targets: Vec<String>,
    /// Labels of the workloads, in the plan's order.
    pub workloads: Vec<String>,
    /// The seed of all random choices.
    pub seed: u64,
    /// Minimum number of rounds.
    pub rounds: u32,
    /// Maximum number of rounds; 0 in files of format 1, which had no such maximum.
    pub rounds_max: u32,
    /// The settings beyond the plan; missing if written by an older fslab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<Choice>,
    /// The half width of intervals at which the stop rule ends a comparison, as a share of the
    /// ratio.
    pub half_width: f64,
    /// Size of each image, in bytes.
    pub image_size: u64,
    /// In a virtual machine, the bytes of memory that were touched before each run.
    pub touched_bytes: u64,
    /// The host name of the machine.
    pub machine: String,
    /// The boot identifier, which changes whenever the machine is started.
    pub boot: Option<String>,
    /// The kernel version.
    pub kernel: String,
    /// The processor model.
    pub processor: String,
    /// Number of processors.
    pub processors: u64,
    /// The processors to which the comparison was pinned; empty if it was not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_to_processors: Vec<usize>,
    /// The size of the machine's memory in KiB.
    pub memory_kib: u64,
    /// The frequency governor of the processors, if the kernel reports it.
    pub frequency_governor: Option<String>,
    /// The kernel's clock source.
    pub clock_source: Option<String>,
    /// Percentages of memory that may be dirty before the kernel starts writeback, and before
    /// writing processes must write back themselves.
    pub dirty_ratios: Option<String>,
    /// The type of the file system that contains the images.
    pub work_file_system: Option<String>,
    /// The versions of the mkfs tools.
    pub tools: BTreeMap<String, String>,
}

/// The name of the condition that differs between any two machines.
const MACHINE: &str = "machine";

/// The name of the condition that differs between any two starts of a machine.
const START: &str = "boot ID";

/// The form of a plan. In addition to the full form, many plans have a short one, which their
/// `quick` keys define.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// The full plan.
    #[default]
    Full,
    /// The short plan defined by `quick`: minutes instead of hours.
    Quick,
}

impl Provenance {
    /// Whether two runs belong to one campaign on one machine, so that their rounds may be paired.
    /// They need the same plan and seed, and no reboot in between.
    #[must_use]
    pub fn is_one_campaign_with(&self, other: &Self) -> bool {
        let key = |run: &Self| {
            let plan = (run.plan.clone(), run.form, run.workload_command.clone());
            let plan = (plan, run.programs.clone());
            (run.seed, plan, run.machine.clone(), run.boot.clone())
        };
        key(self) == key(other)
    }

    /// Returns the key that identifies a machine; names are not unique.
    #[must_use]
    pub fn machine_key(&self) -> (&str, &str, u64, u64) {
        (&self.machine, &self.processor, self.processors, self.memory_kib)
    }

    /// Returns the differences between two runs that may affect the measurements: the property, and
    /// its value in each.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<(&'static str, String, String)> {
        let pairs = self.conditions().into_iter().zip(other.conditions());
        let differ = pairs.filter(|((_, own), (_, others))| own != others);
        differ.map(|((name, own), (_, others))| (name, own, others)).collect()
    }

    /// Returns the conditions that may affect measurements, by name.
    fn conditions(&self) -> [(&'static str, String); 18] {
        let optional = |value: &Option<String>| value.clone().unwrap_or_default();
        let plan = format!("{} ({:08x})", self.plan_name, crc32c::crc32c(self.plan.as_bytes()));
        [
            ("fslab", self.fslab.clone()),
            ("plan", plan),
            (
                "form of the plan",
                format!("{:?} {}", self.form, command_line(&self.workload_command)),
            ),
            ("programs that are compared", format!("{:?}", self.programs)),
            ("seed", self.seed.to_string()),
            ("baseline", self.baseline.clone()),
            ("image size", self.image_size.to_string()),
            (MACHINE, self.machine.clone()),
            (START, optional(&self.boot)),
            ("kernel", self.kernel.clone()),
            ("processor", format!("{} \u{d7} {}", self.processors, self.processor)),
            ("memory", format!("{} KiB", self.memory_kib)),
            ("allowed processors", format!("{:?}", self.kept_to_processors)),
            ("frequency governor", optional(&self.frequency_governor)),
            ("clock source", optional(&self.clock_source)),
            ("dirty ratios", optional(&self.dirty_ratios)),
            ("file system of the images", optional(&self.work_file_system)),
            ("tools", self.tools.values().cloned().collect::<Vec<_>>().join(", ")),
        ]
    }

    /// Returns the conditions except the machine's name and its start, which always differ between
    /// machines.
    pub(crate) fn conditions_of_machine(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.conditions().into_iter().filter(|(name, _)| ![MACHINE, START].contains(name))
    }
}
