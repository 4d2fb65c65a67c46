//! Translates the arguments with which mount(8) and umount(8) run their helpers. An example line of
//! /etc/fstab: `/data /mnt/data fslab layer=null,ro 0 0`.
//!
//! `mount.fslab` is also installed as `mount.fuse.fslab`, for `mount -t fuse.fslab`. mount(8)
//! passes `SOURCE TARGET [-sfnv] [-N namespace] [-t type] [-o options]`. umount(8) reads the type
//! from the kernel and runs `umount.fuse.fslab TARGET [-flnrv] [-N namespace] [-t type]`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Translates a helper's arguments into those of `fslab mount` or `fslab umount`. Returns the
/// arguments unchanged if the program was not run as a helper.
pub fn translate(arguments: Vec<OsString>) -> Vec<OsString> {
    let program = arguments.first().and_then(|program| Path::new(program).file_name());
    match program.and_then(OsStr::to_str) {
        // Two flags have an effect: `-f` (do not mount, only check) and `-s` (ignore unknown
        // options).
        Some("mount.fslab" | "mount.fuse.fslab") => {
            of_helper("mount", "sfnv", &[('f', "--dry-run"), ('s', "--sloppy")], arguments)
        }
        // `-r` (remount read-only if unmounting fails) is ignored. It is meant for file systems
        // that can't be unmounted, such as the root.
        Some("umount.fuse.fslab") => {
            of_helper("umount", "flnrv", &[('f', "--force"), ('l', "--lazy")], arguments)
        }
        _ => arguments,
    }
}

fn of_helper(
    command: &str,
    known: &str,
    meaning: &[(char, &str)],
    arguments: Vec<OsString>,
) -> Vec<OsString> {
    let mut translated: Vec<OsString> = vec!["fslab".into(), command.into()];
    let mut rest = arguments.into_iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            // The type is needed only by mount(8). `-N` is kept, so that it is refused as an
            // unknown option: ignoring it would mount in the wrong namespace.
            Some("-t") => drop(rest.next()),
            Some(flags) if is_flags(flags, known) => {
                let given = meaning.iter().filter(|(flag, _)| flags.contains(*flag));
                translated.extend(given.map(|(_, option)| (*option).into()));
            }
            _ => translated.push(argument),
        }
    }
    translated
}

fn is_flags(argument: &str, known: &str) -> bool {
    argument.len() > 1
        && argument.starts_with('-')
        && argument[1..].chars().all(|flag| known.contains(flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &[&str], expected: &[&str]) {
        let given = given.iter().map(OsString::from).collect();
        let expected: Vec<OsString> = expected.iter().map(OsString::from).collect();
        assert_eq!(translate(given), expected);
    }

    #[test]
    fn arguments_of_mount_8_and_umount_8_are_translated() {
        check(
            &["/sbin/mount.fslab", "/data", "/mnt", "-sv", "-t", "fslab", "-o", "rw,layer=null"],
            &["fslab", "mount", "/data", "/mnt", "--sloppy", "-o", "rw,layer=null"],
        );
        check(&["mount.fslab", "-f", "/a", "/b"], &["fslab", "mount", "--dry-run", "/a", "/b"]);
        check(
            &["mount.fslab", "/a", "/b", "-N", "/run/netns/x"],
            &["fslab", "mount", "/a", "/b", "-N", "/run/netns/x"],
        );
        check(&["/sbin/mount.fuse.fslab", "/a", "/b"], &["fslab", "mount", "/a", "/b"]);
        check(
            &["/sbin/umount.fuse.fslab", "/b", "-lnv", "-t", "fuse.fslab"],
            &["fslab", "umount", "/b", "--lazy"],
        );
        check(&["umount.fuse.fslab", "/b", "-f"], &["fslab", "umount", "/b", "--force"]);
        check(&["fslab", "list", "-s"], &["fslab", "list", "-s"]);
    }
}
