//! The first record of a comparison's samples: the plan, the machine, the tools and the seed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fslab_report::Provenance;
use fslab_sys::mounts;

use crate::plan::{Base, Over, Plan, TargetKind};

/// Collects facts about the machine and the plan.
pub(crate) fn collect(plan: &Plan, work_directory: &Path) -> Provenance {
    let now = jiff::Timestamp::now();
    let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    Provenance {
        format: fslab_report::sample::FORMAT,
        run: format!(
            "{:08x}{:08x}",
            now.as_second(),
            now.subsec_nanosecond() ^ std::process::id().cast_signed()
        ),
        fslab: env!("CARGO_PKG_VERSION").to_owned(),
        started: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        tools: tools(plan),
        plan_name: plan.name.clone(),
        plan: plan.text.clone(),
        form: plan.form,
        workload_command: plan.command.clone(),
        programs: plan.programs.clone(),
        baseline: plan.baseline.clone(),
        second_copy: plan.second_copy().map(|copy| copy.name),
        margins: plan.margins(),
        targets: plan.targets.iter().map(|target| target.name.clone()).collect(),
        workloads: plan.workloads.iter().map(|workload| workload.label.clone()).collect(),
        half_width: plan.half_width,
        kept_to_processors: plan.processors.clone(),
        image_size: plan.image_size,
        machine: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        boot: first_line("/proc/sys/kernel/random/boot_id"),
        kernel: kernel(),
        processor: field("/proc/cpuinfo", "model name").unwrap_or_default(),
        processors: processors(),
        memory_kib: memory_kib().unwrap_or(0),
        frequency_governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        clock_source: first_line(clock),
        dirty_ratios: dirty_ratios(),
        work_file_system: file_system_of(work_directory),
        ..Provenance::default()
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

/// Returns the number of processors that the kernel uses, including those that this process may not
/// use.
fn processors() -> u64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("processor")).count() as u64
}

fn memory_kib() -> Option<u64> {
    field("/proc/meminfo", "MemTotal")?.split_whitespace().next()?.parse().ok()
}

/// Returns the type of the file system that contains a directory.
fn file_system_of(directory: &Path) -> Option<String> {
    let mounts = mounts::list().ok()?;
    let above = mounts.into_iter().filter(|mount| directory.starts_with(&mount.target));
    above.max_by_key(|mount| mount.target.as_os_str().len()).map(|mount| mount.file_system)
}

/// Returns the version of each tool, in one line. A missing tool is left out, because the notes
/// report it.
fn tools(plan: &Plan) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for target in &plan.targets {
        let TargetKind::Image { base, over } = &target.kind else { continue };
        if matches!(over, Over::Engine(_)) {
            continue;
        }
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
    for program in plan.targets.iter().filter_map(|target| target.program.as_ref()) {
        let path = program.display().to_string();
        if let Some(line) = version_line(&[path.clone(), "--version".to_owned()]) {
            let line = format!("{path}: {line}");
            versions.insert(path, line);
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
