//! Writes a plan for this machine: what it has is compared, what it lacks is there as a comment
//! that says what is missing.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::exit::{Code, Coded};

/// A file system on an image, the programme that makes it, and what else its target says.
struct Candidate {
    kind: &'static str,
    program: &'static str,
    more: &'static str,
}

const FILE_SYSTEMS: [Candidate; 3] = [
    Candidate {
        kind: "ext4",
        program: "mkfs.ext4",
        more: "# Without these the kernel goes on writing inode tables after the first mount.\n\
               mkfs = [\"-E\", \"lazy_itable_init=0,lazy_journal_init=0\"]\n",
    },
    Candidate { kind: "xfs", program: "mkfs.xfs", more: "" },
    Candidate { kind: "btrfs", program: "mkfs.btrfs", more: "" },
];

/// File systems in user space: name, programme, how it is mounted.
const FOREIGN: [(&str, &str, &str); 2] = [
    ("bindfs", "bindfs", "[\"bindfs\", \"{lower}\", \"{mountpoint}\"]"),
    // It otherwise keeps 4 GiB free, of which an image has less.
    (
        "mergerfs",
        "mergerfs",
        "[\"mergerfs\", \"-o\", \"minfreespace=0\", \"{lower}\", \"{mountpoint}\"]",
    ),
];

pub(super) fn write(path: &Path) -> Result<()> {
    let machine = Machine::look();
    let text = plan(&machine);
    let opened = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = match opened {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let message = format!("{} exists; name another file", path.display());
            return Err(Coded { code: Code::BadInput, message }.into());
        }
        other => other.with_context(|| path.display().to_string())?,
    };
    file.write_all(text.as_bytes()).with_context(|| path.display().to_string())?;
    say!("{} written; see what it would do: fslab compare {0} --dry-run", path.display());
    Ok(())
}

/// What a plan for this machine depends on.
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
        let candidates = FILE_SYSTEMS.iter().map(|candidate| candidate.program);
        let foreign = FOREIGN.iter().map(|(_, program, _)| *program);
        Self {
            root: rustix::process::geteuid().is_root(),
            loop_devices: exists("/dev/loop-control"),
            fuse: exists("/dev/fuse"),
            programs: candidates.chain(foreign).filter(|program| is_installed(program)).collect(),
            file_systems: fs::read_to_string("/proc/filesystems").unwrap_or_default(),
            memory_mib: memory_mib().unwrap_or(0),
        }
    }

    fn has(&self, program: &str) -> bool {
        self.programs.contains(&program)
    }

    /// What is lacking for a file system on an image. A module may be loaded at the mount, so
    /// that a kernel which does not list the file system may know it all the same.
    fn lacks(&self, candidate: &Candidate) -> Option<String> {
        self.lacks_images().or_else(|| {
            (!self.has(candidate.program))
                .then(|| format!("{} is not installed", candidate.program))
        })
    }

    fn lacks_images(&self) -> Option<String> {
        if !self.root {
            return Some("making and mounting images takes root".to_owned());
        }
        (!self.loop_devices).then(|| "/dev/loop-control is missing".to_owned())
    }

    fn lacks_foreign(&self, program: &str) -> Option<String> {
        let own = || match (self.fuse, self.has(program)) {
            (false, _) => Some("/dev/fuse is missing".to_owned()),
            (_, false) => Some(format!("{program} is not installed")),
            _ => None,
        };
        self.lacks_images().or_else(own)
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.any(|folder| folder.join(program).exists())
}

fn memory_mib() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? / 1024)
}

/// The whole plan.
fn plan(machine: &Machine) -> String {
    let mut targets = Vec::new();
    for candidate in &FILE_SYSTEMS {
        targets.push(target(candidate.kind, &image(candidate), machine.lacks(candidate)));
    }
    let over = "ext4";
    let lacks = machine
        .lacks(&FILE_SYSTEMS[0])
        .or_else(|| (!machine.fuse).then(|| "/dev/fuse is missing".to_owned()));
    let layers = format!("filesystem = \"{over}\"\n{}layers = [\"null\"]\n", FILE_SYSTEMS[0].more);
    targets.push(target("ext4 under null", &layers, lacks));
    for (name, program, command) in FOREIGN {
        let body = format!("over = \"{over}\"\nmount_command = {command}\n");
        targets.push(target(&format!("{name} over ext4"), &body, machine.lacks_foreign(program)));
    }
    let none = machine.lacks_images().is_some();
    targets.push(target(
        "this directory",
        "directory = \".\"\n",
        (!none)
            .then(|| "never cold, since it is never remounted; and it is not made anew".to_owned()),
    ));
    targets.push(target(
        "memory",
        "in_process = \"mem:\"\n",
        (!none).then(|| "within this process, without the kernel".to_owned()),
    ));
    format!("{}\n{}\n{}", head(machine), targets.join("\n"), workloads(machine))
}

fn image(candidate: &Candidate) -> String {
    format!("filesystem = \"{}\"\n{}", candidate.kind, candidate.more)
}

/// A target, or a comment where something is lacking or speaks against it.
fn target(name: &str, body: &str, lacks: Option<String>) -> String {
    let text = format!("[[target]]\nname = \"{name}\"\n{body}");
    match lacks {
        None => text,
        Some(why) => {
            let lines: String = text.lines().map(|line| format!("# {line}\n")).collect();
            format!("# Left out: {why}.\n{lines}")
        }
    }
}

fn head(machine: &Machine) -> String {
    let not_listed: Vec<&str> = FILE_SYSTEMS
        .iter()
        .map(|candidate| candidate.kind)
        .filter(|kind| !machine.file_systems.split_whitespace().any(|listed| listed == *kind))
        .collect();
    let kernel = if not_listed.is_empty() {
        String::new()
    } else {
        format!(
            "# The kernel does not list {}; it may load a module for it.\n",
            not_listed.join(", ")
        )
    };
    format!(
        "# A plan for this machine, by `fslab compare --init`. Look at it, change it, then\n\
         #   fslab compare FILE --dry-run    says what it would do and how long it would take\n\
         #   fslab compare FILE              runs it\n\
         # `fslab list` says what workloads and layers there are.\n{kernel}\n\
         name = \"What this machine has\"\n\
         # Every target runs every workload in each round; more rounds follow until each interval\n\
         # is as narrow as asked, or until there are rounds_max, or the time is up.\n\
         rounds = 10\n\
         rounds_max = 30\n\
         half_width_percent = 2.5\n\
         time_limit_seconds = 3600\n\
         # Everything is kept to these processors; by default to none.\n\
         # processors = [0]\n\
         # Runs of a round that other programmes disturbed are repeated at most so often.\n\
         reruns_max = 1\n\
         # The others are compared with this one; the first where nothing is said.\n\
         # baseline = \"ext4\"\n\
         # Size of each image; images are sparse, and there is one at a time.\n\
         image_size = \"1 GiB\"\n"
    )
}

fn workloads(machine: &Machine) -> String {
    let cache = machine.memory_mib / 4;
    format!(
        "# What is done on each. Parameters that are left out have the defaults of `fslab list`.\n\
         [[workload]]\nname = \"file-attributes\"\nfiles = 4_000\n\n\
         [[workload]]\nname = \"file-copy\"\nbytes_per_size = \"4 MiB\"\n\n\
         # To cross what the page cache holds, take more than {cache} MiB or bound the memory.\n\
         [[workload]]\nname = \"stream\"\nsize = \"256 MiB\"\n"
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

    /// What a machine has is in the plan, what it lacks is a comment that says why, and the plan
    /// parses either way.
    #[test]
    fn plans_for_machines() {
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
        assert!(text.contains("minfreespace=0"), "images are smaller than what it keeps: {text}");
    }
}
