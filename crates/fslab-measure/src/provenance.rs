//! Where, when and with what a comparison was run: enough to judge it and to repeat it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fslab_sys::mounts;
use serde::{Deserialize, Serialize};

use crate::plan::{Base, Over, Plan, TargetKind};

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
    /// The target the others are compared with.
    pub baseline: String,
    /// Names of the targets, in the plan's order.
    pub targets: Vec<String>,
    /// Labels of the workloads, in the plan's order.
    pub workloads: Vec<String>,
    /// The seed everything random comes from.
    pub seed: u64,
    /// Rounds that were asked for.
    pub rounds: u32,
    /// Size of each image, in bytes.
    pub image_size: u64,
    /// Name of the machine's kernel.
    pub kernel: String,
    /// Model of its processors.
    pub processor: String,
    /// How many there are.
    pub processors: u64,
    /// Its memory.
    pub memory_kib: u64,
    /// How its processors are clocked, where it says.
    pub frequency_governor: Option<String>,
    /// What the kernel takes the time from.
    pub clock_source: Option<String>,
    /// The file system the images lie on.
    pub work_file_system: Option<String>,
    /// Versions of the tools that made the file systems.
    pub tools: BTreeMap<String, String>,
}

impl Provenance {
    /// Looks at the machine and the plan.
    #[must_use]
    pub fn collect(
        plan: &Plan,
        seed: u64,
        rounds: u32,
        work_directory: &Path,
        command: &str,
    ) -> Self {
        let now = jiff::Timestamp::now();
        let first_line = |path: &str| {
            let text = fs::read_to_string(path).ok()?;
            text.lines().next().map(|line| line.trim().to_owned())
        };
        Self {
            format: crate::sample::FORMAT,
            run: format!(
                "{:08x}{:08x}",
                now.as_second(),
                now.subsec_nanosecond() ^ std::process::id().cast_signed()
            ),
            fslab: env!("CARGO_PKG_VERSION").to_owned(),
            command: command.to_owned(),
            started: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            plan_name: plan.name.clone(),
            plan: plan.text.clone(),
            baseline: plan.baseline.clone(),
            targets: plan.targets.iter().map(|target| target.name.clone()).collect(),
            workloads: plan.workloads.iter().map(|workload| workload.label.clone()).collect(),
            seed,
            rounds,
            image_size: plan.image_size,
            kernel: kernel(),
            processor: field("/proc/cpuinfo", "model name").unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(0, |count| count.get() as u64),
            memory_kib: memory_kib().unwrap_or(0),
            frequency_governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            clock_source: first_line(
                "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            ),
            work_file_system: file_system_of(work_directory),
            tools: tools(plan),
        }
    }
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
