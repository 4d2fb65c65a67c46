//! Writes a plan for this machine. It contains the targets that can run here. The other targets are
//! comments in the plan, with the reason.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::leaves;

/// A possible target: its name, the program that makes or mounts it, whether it is mounted through
/// FUSE, and the lines of its table.
type Candidate = (&'static str, &'static str, bool, &'static [&'static str]);

const LAZY: &str = r#"# Without these, the kernel writes inode tables after the first mount.
mkfs = ["-E", "lazy_itable_init=0,lazy_journal_init=0"]
"#;
const EXT4: &str = "filesystem = \"ext4\"\n";
const OVER: &str = "over = \"ext4\"\nmount_command = ";

const CANDIDATES: &[Candidate] = &[
    ("ext4", "mkfs.ext4", false, &[EXT4, LAZY]),
    ("xfs", "mkfs.xfs", false, &["filesystem = \"xfs\"\n"]),
    ("btrfs", "mkfs.btrfs", false, &["filesystem = \"btrfs\"\n"]),
    ("ext4 under null", "mkfs.ext4", true, &[EXT4, LAZY, "layers = [\"null\"]\n"]),
    ("bindfs over ext4", "bindfs", true, &[OVER, "[\"bindfs\", \"{lower}\", \"{mountpoint}\"]\n"]),
    (
        "mergerfs over ext4",
        "mergerfs",
        true,
        // By default mergerfs keeps 4 GiB free, which is more than an image has.
        &[OVER, "[\"mergerfs\", \"-o\", \"minfreespace=0\", \"{lower}\", \"{mountpoint}\"]\n"],
    ),
];

/// The file systems of the kernel among the candidates.
const KERNELS: [&str; 3] = ["ext4", "xfs", "btrfs"];

pub(super) fn write(path: &Path) -> Result<()> {
    let machine = Machine::look();
    let text = plan(&machine);
    let mut file = match File::create_new(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail_as!(BadInput, "{} exists; choose another file", path.display())
        }
        other => other.with_context(|| path.display().to_string())?,
    };
    file.write_all(text.as_bytes()).with_context(|| path.display().to_string())?;
    say!("{} written; to print its planned runs: fslab compare {0} --dry-run", path.display());
    Ok(())
}

struct Machine {
    root: bool,
    loop_devices: bool,
    fuse: bool,
    programs: Vec<&'static str>,
    file_systems: String,
    memory_mib: u64,
}

impl Machine {
    fn look() -> Self {
        let exists = |path: &str| Path::new(path).exists();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
        let folders: Vec<_> = folders.collect();
        let programs = CANDIDATES.iter().map(|(_, program, ..)| *program);
        let is_installed = |program: &&str| folders.iter().any(|one| one.join(program).exists());
        Self {
            root: rustix::process::geteuid().is_root(),
            loop_devices: exists("/dev/loop-control"),
            fuse: exists("/dev/fuse"),
            programs: programs.filter(is_installed).collect(),
            file_systems: fs::read_to_string("/proc/filesystems").unwrap_or_default(),
            memory_mib: leaves::memory_bytes() >> 20,
        }
    }

    /// Returns the reason why a target on an image can't run here, if there is one. A missing entry
    /// in the kernel's list of file systems is no reason, because the mount may load a module.
    fn lacks(&self, (_, program, fuse, _): &Candidate) -> Option<String> {
        match self.lacks_images() {
            Some(why) => Some(why.to_owned()),
            None if *fuse && !self.fuse => Some("/dev/fuse is missing".to_owned()),
            None => {
                (!self.programs.contains(program)).then(|| format!("{program} is not installed"))
            }
        }
    }

    fn lacks_images(&self) -> Option<&'static str> {
        match (self.root, self.loop_devices) {
            (false, _) => Some("making and mounting images needs root"),
            (_, false) => Some("/dev/loop-control is missing"),
            _ => None,
        }
    }
}

fn plan(machine: &Machine) -> String {
    let mut targets: Vec<String> = Vec::new();
    for candidate @ (name, .., body) in CANDIDATES {
        targets.push(target(name, &body.concat(), machine.lacks(candidate)));
    }
    let others = [
        (
            "this directory",
            "directory = \".\"\n",
            "never cold, because it is neither remounted nor made again for each run",
        ),
        ("memory", "in_process = \"mem:\"\n", "measured within this process, without the kernel"),
    ];
    for (name, body, why_not) in others {
        let has_images = machine.lacks_images().is_none();
        targets.push(target(name, body, has_images.then(|| why_not.to_owned())));
    }
    format!("{}\n{}\n{}", head(machine), targets.join("\n"), workloads(machine))
}

/// Returns the text of a target. If there is a reason to leave it out, the text is a comment.
fn target(name: &str, body: &str, lacks: Option<String>) -> String {
    let text = format!("[[target]]\nname = \"{name}\"\n{body}");
    let Some(why) = lacks else { return text };
    let lines: String = text.lines().map(|line| format!("# {line}\n")).collect();
    format!("# Left out: {why}.\n{lines}")
}

fn head(machine: &Machine) -> String {
    let listed: Vec<&str> = machine.file_systems.split_whitespace().collect();
    let not_listed: Vec<&str> = KERNELS.into_iter().filter(|kind| !listed.contains(kind)).collect();
    let kernel = match not_listed.join(", ") {
        kinds if kinds.is_empty() => kinds,
        kinds => format!("# The kernel does not list {kinds}; mounting may load a module.\n"),
    };
    format!(
        "# A plan for this machine, by `fslab compare --init`. Look at it, change it, \
         then\n#   fslab compare FILE --dry-run    prints the planned runs and their estimated \
         time\n#   fslab compare FILE              runs it\n# `fslab list` shows the workloads and \
         layers.\n{kernel}\nname = \"What this machine has\"\n# Every target runs every workload \
         in each round. More rounds follow until each interval\n# is narrow enough, or rounds_max \
         or the time limit is reached.\nrounds = 10\nrounds_max = 30\nhalf_width_percent = \
         2.5\ntime_limit_seconds = 3600\n# Run everything on these processors only; by default on \
         all.\n# processors = [0]\n# Maximum number of repeats of a round that other programs \
         disturbed.\nreruns_max = 1\n# The target that the others are compared with; by default \
         the first.\n# baseline = \"ext4\"\n# Size of each image; images are sparse, and there is \
         one at a time.\nimage_size = \"1 GiB\"\n"
    )
}

fn workloads(machine: &Machine) -> String {
    let cache = machine.memory_mib / 4;
    format!(
        "# The workloads. Parameters that are left out have the defaults of `fslab \
         list`.\n[[workload]]\nname = \"file-attributes\"\nfiles = 4_000\n\n[[workload]]\nname = \
         \"file-copy\"\nbytes_per_size = \"4 MiB\"\n\n# To exceed the page cache, use more than \
         {cache} MiB or limit the memory.\n[[workload]]\nname = \"stream\"\nsize = \"256 MiB\"\n"
    )
}

#[cfg(test)]
mod tests {
    use fslab_compare::Plan;
    use fslab_compare::plan::Form;

    use super::{Machine, plan};

    fn machine(root: bool, programs: &[&'static str]) -> Machine {
        Machine {
            root,
            loop_devices: true,
            fuse: true,
            programs: programs.to_vec(),
            file_systems: "nodev\text4\n".to_owned(),
            memory_mib: 1024,
        }
    }

    #[track_caller]
    fn check(machine: &Machine, expected: &[&str]) {
        let text = plan(machine);
        let plan = Plan::parse("made", &text, Form::Full)
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        let names: Vec<&str> = plan.targets.iter().map(|target| &*target.name).collect();
        assert_eq!(names, expected, "{text}");
    }

    /// A plan contains the targets that can run on a machine, and the other targets as comments
    /// with the reason. Every generated plan parses.
    #[test]
    fn generated_plan_contains_only_targets_that_can_run() {
        check(
            &machine(true, &["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "bindfs"]),
            &["ext4", "xfs", "btrfs", "ext4 under null", "bindfs over ext4"],
        );
        check(&machine(true, &["mkfs.xfs"]), &["xfs"]);
        check(&machine(false, &["mkfs.ext4"]), &["this directory", "memory"]);
        let text = plan(&machine(true, &["mkfs.ext4"]));
        assert!(text.contains("# Left out: mkfs.xfs is not installed.\n# [[target]]"), "{text}");
        assert!(text.contains("does not list xfs, btrfs"), "{text}");
        let text = plan(&machine(true, &["mkfs.ext4", "mergerfs"]));
        assert!(
            text.contains("minfreespace=0"),
            "mergerfs keeps more space free than an image has: {text}"
        );
    }
}
