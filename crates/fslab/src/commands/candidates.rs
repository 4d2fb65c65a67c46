//! Shell completion of names (layers, plans, attributes and so on) from the lists of the program.

use std::ffi::OsStr;

use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use fslab_compare::plan::Form;

use super::built_in::PLANS;
use super::catalogue;
use super::mount_options;
use crate::output::first_sentence;

/// Completes the names of layers and, after the colon, their options, such as `zstd:level=`.
pub(super) fn layers() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let Some(current) = current.to_str() else { return Vec::new() };
        let Some((name, options)) = current.split_once(':') else {
            let mut found: Vec<_> = catalogue::names("layers").into_iter().map(candidate).collect();
            found.retain(|one| starts_with(one, OsStr::new(current)));
            return found;
        };
        let last = options.rsplit_once(',').map_or(options, |(_, last)| last);
        let before = &current[..current.len() - last.len()];
        let layer = catalogue::all_layers().find(|layer| layer.name == name);
        let known = layer.into_iter().flat_map(|layer| layer.options);
        let known = known.filter(|option| option.name.starts_with(last));
        let offered = known.map(|option| {
            let help = first_sentence(option.help).to_owned();
            CompletionCandidate::new(format!("{before}{}=", option.name)).help(Some(help.into()))
        });
        offered.collect()
    })
}

/// Completes the names in one section of `fslab list`.
pub(super) fn of_section(section: &'static str) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        catalogue::names(section).into_iter().map(candidate).collect::<Vec<_>>()
    })
}

/// Completes the sections of `fslab list` and all names in them.
pub(super) fn of_list() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        catalogue::all_names().into_iter().map(candidate).collect::<Vec<_>>()
    })
}

/// Completes the mount points of fslab's mounts.
pub(super) fn mount_points() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let mounts = fslab_sys::mounts::list().unwrap_or_default();
        let own = mounts.into_iter().filter(|mount| mount.file_system == "fuse.fslab");
        own.map(|mount| CompletionCandidate::new(mount.target)).collect::<Vec<_>>()
    })
}

/// Completes mount options, also after a comma.
pub(super) fn mount_options() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let Some(current) = current.to_str() else { return Vec::new() };
        let (before, last) = current
            .rsplit_once(',')
            .map_or(("", current), |(before, last)| (&current[..=before.len()], last));
        let names = mount_options::NAMES.iter().filter(|name| name.starts_with(last));
        names.map(|name| CompletionCandidate::new(format!("{before}{name}"))).collect()
    })
}

/// Completes plans: files and built-in ones.
pub(super) fn plans() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let mut found = catalogue::names("plans").into_iter().map(candidate).collect::<Vec<_>>();
        found.retain(|one| starts_with(one, current));
        found.extend(PathCompleter::file().complete(current));
        found
    })
}

/// Completes the targets of all built-in plans, because the chosen plan is not yet known.
pub(super) fn targets() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        of_plans(|plan| plan.targets.iter().map(|target| target.name.clone()).collect())
    })
}

/// Completes the labels of workloads of all built-in plans.
pub(super) fn workloads() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        of_plans(|plan| plan.workloads.iter().map(|workload| workload.label.clone()).collect())
    })
}

fn of_plans(names: impl Fn(&fslab_compare::Plan) -> Vec<String>) -> Vec<CompletionCandidate> {
    let plans = PLANS.iter().filter_map(|text| text.plan(Form::Full).ok());
    let mut all: Vec<String> = plans.flat_map(|plan| names(&plan)).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(CompletionCandidate::new).collect()
}

fn candidate((name, help): (String, String)) -> CompletionCandidate {
    CompletionCandidate::new(name).help(Some(first_sentence(&help).to_owned().into()))
}

fn starts_with(candidate: &CompletionCandidate, current: &OsStr) -> bool {
    let (name, current) = (candidate.get_value().as_encoded_bytes(), current.as_encoded_bytes());
    name.starts_with(current)
}

#[cfg(test)]
mod tests {
    use clap_complete::engine::complete;

    /// Returns the completions that a shell offers for the last word of a command line.
    fn offered(line: &str) -> Vec<String> {
        let words: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
        let last = words.len() - 1;
        let found = complete(&mut crate::commands::command(), words, last, None).unwrap();
        let name = |one: &clap_complete::engine::CompletionCandidate| {
            one.get_value().to_string_lossy().into_owned()
        };
        found.iter().map(name).collect()
    }

    #[test]
    fn completion_offers_listed_names_and_options() {
        for (line, name) in [
            ("fslab mount -l zs", "zstd"),
            ("fslab sca encode --layer gz", "gzip"),
            ("fslab probe --only block-s", "block-size"),
            ("fslab compare dm", "dmfs"),
            ("fslab compare --only-target ext", "ext4"),
            ("fslab compare --only-workload nam", "names"),
            ("fslab age simulate --profile smi", "smith97"),
            ("fslab age profile dev", "developer"),
            ("fslab list work", "workloads"),
            ("fslab list ls", "lz4"),
            ("fslab stat", "status"),
            ("fslab mount -l zstd:le", "zstd:level="),
            ("fslab mount -l zstd:level=3,ch", "zstd:level=3,chunk="),
            ("fslab mount -o ke", "keep"),
            ("fslab mount -o ro,no", "ro,noatime"),
        ] {
            let found = offered(line);
            assert_eq!(found.contains(&name.to_owned()), name != "lz4", "{line}: {found:?}");
        }
    }
}
