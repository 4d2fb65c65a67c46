//! `mount.fslab`: how mount(8) calls the program for a line of /etc/fstab such as
//! `/data  /mnt/data  fslab  layer=null,ro  0 0`.
//!
//! It is `mount.fuse.fslab` too, for whoever says `mount -t fuse.fslab`. mount(8) passes
//! `SOURCE TARGET [-sfnv] [-N namespace] [-t type] [-o options]`.

use std::ffi::OsString;
use std::path::Path;

/// Turns the arguments of `mount.fslab` into those of `fslab mount`; others stay as they are.
pub fn translate(arguments: Vec<OsString>) -> Vec<OsString> {
    let called_by_mount = arguments
        .first()
        .and_then(|program| Path::new(program).file_name())
        .is_some_and(|name| name == "mount.fslab" || name == "mount.fuse.fslab");
    if !called_by_mount {
        return arguments;
    }
    let mut translated: Vec<OsString> = vec!["fslab".into(), "mount".into()];
    let mut rest = arguments.into_iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            // The type is mount(8)'s own affair. `-N` is not known here and will be refused:
            // mounting in another namespace than was asked for would be worse.
            Some("-t") => drop(rest.next()),
            Some(flags) if is_flags(flags) => {
                // Only `-f` (do everything but mount) and `-s` (let unknown options pass) matter.
                translated.extend(flags.contains('f').then(|| "--dry-run".into()));
                translated.extend(flags.contains('s').then(|| "--sloppy".into()));
            }
            _ => translated.push(argument),
        }
    }
    translated
}

fn is_flags(argument: &str) -> bool {
    argument.len() > 1
        && argument.starts_with('-')
        && argument[1..].chars().all(|flag| "sfnv".contains(flag))
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
    fn mount_8_is_understood() {
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
        check(&["fslab", "list", "-s"], &["fslab", "list", "-s"]);
    }
}
