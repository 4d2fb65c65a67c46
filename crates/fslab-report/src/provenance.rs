//! Where, when and with what a comparison was run: enough to judge it and to repeat it, and to
//! say in what two runs differ whose samples are read together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::choice::Choice;
use fslab_stats::Margins;

/// The first record of a samples file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Provenance {
    /// Version of the records that follow.
    pub format: u32,
    /// Identifies the run among others.
    pub run: String,
    /// Version of fslab.
    pub fslab: String,
    /// The command that repeats the comparison.
    pub command: String,
    /// When it began (RFC 3339, UTC).
    pub started: String,
    /// Title of the plan.
    pub plan_name: String,
    /// The plan itself.
    pub plan: String,
    /// In which form it was read.
    pub form: Form,
    /// The command that was run instead of the plan's workloads, if so.
    pub workload_command: Vec<String>,
    /// The two programs that were compared instead of the plan's targets, if so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<PathBuf>,
    /// The target the others are compared with.
    pub baseline: String,
    /// The name under which the samples of a second copy of the baseline are kept, where one is
    /// run for the noise floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_copy: Option<String>,
    /// The margins that rows are judged by.
    #[serde(skip_serializing_if = "Margins::is_empty")]
    pub margins: Margins,
    /// Names of the targets, in the plan's order.
    pub targets: Vec<String>,
    /// Labels of the workloads, in the plan's order.
    pub workloads: Vec<String>,
    /// The seed everything random comes from.
    pub seed: u64,
    /// Rounds that were asked for, at least.
    pub rounds: u32,
    /// Rounds at most; 0 in files of format 1, which had no such rule.
    pub rounds_max: u32,
    /// What is run of the plan, how often again and where; missing where an older fslab wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<Choice>,
    /// Half the width of an interval that is narrow enough.
    pub half_width: f64,
    /// Size of each image, in bytes.
    pub image_size: u64,
    /// Bytes of memory that were touched before each run, in a virtual machine.
    pub touched_bytes: u64,
    /// Name of the machine.
    pub machine: String,
    /// Changes whenever the machine is started.
    pub boot: Option<String>,
    /// Name of the machine's kernel.
    pub kernel: String,
    /// Model of its processors.
    pub processor: String,
    /// How many there are.
    pub processors: u64,
    /// Those that everything was kept to; none where it could run on any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_to_processors: Vec<usize>,
    /// Its memory.
    pub memory_kib: u64,
    /// How its processors are clocked, where it says.
    pub frequency_governor: Option<String>,
    /// What the kernel takes the time from.
    pub clock_source: Option<String>,
    /// Shares of memory in percent that may wait to be written back, before the kernel begins to
    /// and before writers must.
    pub dirty_ratios: Option<String>,
    /// The file system the images lie on.
    pub work_file_system: Option<String>,
    /// Versions of the tools that made the file systems.
    pub tools: BTreeMap<String, String>,
}

/// What differs between any two machines.
const MACHINE: &str = "machine";

/// What differs between any two starts of a machine.
const START: &str = "start of the machine";

/// Which form of a plan is meant: many have a short one beside the full one, in keys of `quick`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// All of it.
    #[default]
    Full,
    /// What `quick` leaves of it: minutes instead of hours.
    Quick,
}

impl Provenance {
    /// Whether two runs are parts of one campaign on one machine, so that their rounds may be
    /// paired: the same plan and seed, and no restart in between.
    #[must_use]
    pub fn is_one_campaign_with(&self, other: &Self) -> bool {
        let key = |run: &Self| {
            let plan = (run.plan.clone(), run.form, run.workload_command.clone());
            let plan = (plan, run.programs.clone());
            (run.seed, plan, run.machine.clone(), run.boot.clone())
        };
        key(self) == key(other)
    }

    /// What tells machines apart: a name alone may be that of many.
    #[must_use]
    pub fn machine_key(&self) -> (&str, &str, u64, u64) {
        (&self.machine, &self.processor, self.processors, self.memory_kib)
    }

    /// In what two runs differ, as far as it may change what is measured: what is different, and
    /// how it is in either.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<(&'static str, String, String)> {
        let pairs = self.conditions().into_iter().zip(other.conditions());
        let differ = pairs.filter(|((_, own), (_, others))| own != others);
        differ.map(|((name, own), (_, others))| (name, own, others)).collect()
    }

    /// What may change what is measured: a name, and how it is in this run.
    fn conditions(&self) -> [(&'static str, String); 18] {
        let optional = |value: &Option<String>| value.clone().unwrap_or_default();
        let plan = format!("{} ({:08x})", self.plan_name, crc32c::crc32c(self.plan.as_bytes()));
        [
            ("fslab", self.fslab.clone()),
            ("plan", plan),
            ("form of the plan", format!("{:?} {}", self.form, self.workload_command.join(" "))),
            ("programs that are compared", format!("{:?}", self.programs)),
            ("seed", self.seed.to_string()),
            ("baseline", self.baseline.clone()),
            ("image size", self.image_size.to_string()),
            (MACHINE, self.machine.clone()),
            (START, optional(&self.boot)),
            ("kernel", self.kernel.clone()),
            ("processor", format!("{} \u{d7} {}", self.processors, self.processor)),
            ("memory", format!("{} KiB", self.memory_kib)),
            ("kept to processors", format!("{:?}", self.kept_to_processors)),
            ("frequency governor", optional(&self.frequency_governor)),
            ("clock source", optional(&self.clock_source)),
            ("dirty ratios", optional(&self.dirty_ratios)),
            ("file system of the images", optional(&self.work_file_system)),
            ("tools", self.tools.values().cloned().collect::<Vec<_>>().join(", ")),
        ]
    }

    /// What may change what is measured beside the machine's name and its start, which differ
    /// wherever machines do.
    pub(crate) fn conditions_of_machine(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.conditions().into_iter().filter(|(name, _)| ![MACHINE, START].contains(name))
    }
}
