//! Where, when and with what a comparison was run: enough to judge it and to repeat it, and to
//! say in what two runs differ whose samples are read together.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fslab_sys::mounts;
use serde::{Deserialize, Serialize};

use crate::margin::Margins;
use crate::plan::{Base, Form, Over, Plan, TargetKind};
use crate::runner::Choice;

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
    /// Bytes of memory that were touched before each workload of a round, in a virtual machine.
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

/// How a plan is run, as far as the plan leaves it open.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// The seed everything random comes from.
    pub seed: u64,
    /// Rounds at least.
    pub rounds: u32,
    /// Rounds at most.
    pub rounds_max: u32,
    /// What is run of the plan, how often again and where.
    pub choice: Choice,
    /// The command that repeats the comparison.
    pub command: &'a str,
}

impl Provenance {
    /// Looks at the machine and the plan.
    #[must_use]
    pub fn collect(plan: &Plan, work_directory: &Path, setting: &Setting<'_>) -> Self {
        let now = jiff::Timestamp::now();
        Self {
            format: crate::sample::FORMAT,
            run: format!(
                "{:08x}{:08x}",
                now.as_second(),
                now.subsec_nanosecond() ^ std::process::id().cast_signed()
            ),
            fslab: env!("CARGO_PKG_VERSION").to_owned(),
            command: setting.command.to_owned(),
            started: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            seed: setting.seed,
            rounds: setting.rounds,
            rounds_max: setting.rounds_max,
            choice: Some(setting.choice.clone()),
            tools: tools(plan),
            ..Self::of_plan(plan).on_this_machine(work_directory)
        }
    }

    fn of_plan(plan: &Plan) -> Self {
        Self {
            plan_name: plan.name.clone(),
            plan: plan.text.clone(),
            form: plan.form,
            workload_command: plan.command.clone(),
            baseline: plan.baseline.clone(),
            second_copy: plan.second_copy().map(|copy| copy.name),
            margins: plan.margins(),
            targets: plan.targets.iter().map(|target| target.name.clone()).collect(),
            workloads: plan.workloads.iter().map(|workload| workload.label.clone()).collect(),
            half_width: plan.half_width,
            kept_to_processors: plan.processors.clone(),
            image_size: plan.image_size,
            ..Self::default()
        }
    }

    fn on_this_machine(self, work_directory: &Path) -> Self {
        Self {
            machine: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot: first_line("/proc/sys/kernel/random/boot_id"),
            kernel: kernel(),
            processor: field("/proc/cpuinfo", "model name").unwrap_or_default(),
            processors: processors(),
            memory_kib: memory_kib().unwrap_or(0),
            frequency_governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            clock_source: first_line(
                "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            ),
            dirty_ratios: dirty_ratios(),
            work_file_system: file_system_of(work_directory),
            ..self
        }
    }

    /// Whether two runs are parts of one campaign on one machine, so that their rounds may be
    /// paired: the same plan and seed, and no restart in between.
    #[must_use]
    pub fn is_one_campaign_with(&self, other: &Self) -> bool {
        let key = |run: &Self| {
            let plan = (run.plan.clone(), run.form, run.workload_command.clone());
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
        let tools = |run: &Self| run.tools.values().cloned().collect::<Vec<_>>().join(", ");
        let optional = |value: &Option<String>| value.clone().unwrap_or_default();
        let values = |run: &Self| {
            [
                ("fslab", run.fslab.clone()),
                (
                    "plan",
                    format!("{} ({:08x})", run.plan_name, crc32c::crc32c(run.plan.as_bytes())),
                ),
                ("form of the plan", format!("{:?} {}", run.form, run.workload_command.join(" "))),
                ("seed", run.seed.to_string()),
                ("baseline", run.baseline.clone()),
                ("image size", run.image_size.to_string()),
                ("machine", run.machine.clone()),
                ("start of the machine", optional(&run.boot)),
                ("kernel", run.kernel.clone()),
                ("processor", format!("{} \u{d7} {}", run.processors, run.processor)),
                ("memory", format!("{} KiB", run.memory_kib)),
                ("kept to processors", format!("{:?}", run.kept_to_processors)),
                ("frequency governor", optional(&run.frequency_governor)),
                ("clock source", optional(&run.clock_source)),
                ("dirty ratios", optional(&run.dirty_ratios)),
                ("file system of the images", optional(&run.work_file_system)),
                ("tools", tools(run)),
            ]
        };
        let pairs = values(self).into_iter().zip(values(other));
        let differ = pairs.filter(|((_, own), (_, others))| own != others);
        differ.map(|((name, own), (_, others))| (name, own, others)).collect()
    }
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned())
}

fn dirty_ratios() -> Option<String> {
    let ratio = |name: &str| first_line(&format!("/proc/sys/vm/{name}"));
    Some(format!("{} and {}", ratio("dirty_background_ratio")?, ratio("dirty_ratio")?))
}

fn kernel() -> String {
    let name = rustix::system::uname();
    [name.sysname(), name.release(), name.machine()].map(|part| part.to_string_lossy()).join(" ")
}

fn field(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// All that the kernel runs, whichever this process may use.
fn processors() -> u64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("processor")).count() as u64
}

fn memory_kib() -> Option<u64> {
    field("/proc/meminfo", "MemTotal")?.split_whitespace().next()?.parse().ok()
}

/// The file system a directory lies on: that of the longest mount point above it.
fn file_system_of(directory: &Path) -> Option<String> {
    let mounts = mounts::list().ok()?;
    let above = mounts.into_iter().filter(|mount| directory.starts_with(&mount.target));
    above.max_by_key(|mount| mount.target.as_os_str().len()).map(|mount| mount.file_system)
}

/// What each tool says of its version; what a missing one is called is in the notes.
fn tools(plan: &Plan) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for target in &plan.targets {
        let TargetKind::Image { base, over } = &target.kind else { continue };
        if let Base::Device(kind) = base.kind
            && let Ok(version) = kind.tool_version()
        {
            versions.insert(kind.program().to_owned(), version);
        }
        if let Over::Command(command) = over
            && let Some(version) = &command.version
            && let Some(line) = version_line(version)
        {
            versions.insert(version.join(" "), line);
        }
    }
    versions
}

fn version_line(command: &[String]) -> Option<String> {
    let (program, arguments) = command.split_first()?;
    let output = std::process::Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(|line| line.trim().to_owned())
}
