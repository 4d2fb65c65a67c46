//! Tests that programs can't open released files of an unmounted tree. They get an error and never
//! read zeros.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use fslab_sys::make_file_system::Kind;

use crate::boundary::with_own_device;
use crate::support::require_mounting;
use crate::tiering::{Tiered, noise};

const MIB: usize = 1 << 20;
const OWNER: u32 = 1234;
const STRANGER: u32 = 65_534;

/// Returns the error message that a user's program prints; `None` if it succeeds.
fn told(user: u32, arguments: &[&str]) -> Option<String> {
    let ids = [format!("--reuid={user}"), format!("--regid={user}")];
    let mut command = Command::new("setpriv");
    let output = command.args(&ids).arg("--clear-groups").args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(said)
}

#[track_caller]
fn is_refused(file: &Path) {
    for user in [OWNER, STRANGER] {
        let said = told(user, &["cat", file.to_str().unwrap()]);
        let said = said.unwrap_or_else(|| panic!("user {user} reads {}", file.display()));
        assert!(said.contains("Permission denied"), "{said}");
    }
}

#[track_caller]
fn is_read(file: &Path) {
    for user in [OWNER, STRANGER] {
        assert_eq!(told(user, &["cat", file.to_str().unwrap()]), None);
    }
}

/// Returns mode, owner, group and modification time of a directory.
fn looks(directory: &Path) -> (u32, u32, u32, (i64, i64)) {
    let found = fs::metadata(directory).unwrap();
    (found.mode() & 0o7777, found.uid(), found.gid(), (found.mtime(), found.mtime_nsec()))
}

fn check(kind: Option<Kind>) {
    let tiered = Tiered::over(kind);
    let (tree, point) = (tiered.tree().to_owned(), tiered.path(""));
    let (below, file) = (tree.join("file"), tiered.path("file"));
    let data = noise(5, 2 * MIB);
    fs::write(&below, &data).unwrap();
    chown(&tree, Some(OWNER), Some(OWNER)).unwrap();
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o3755)).unwrap();
    let before = looks(&tree);
    tiered.place().mount(&["-l", "tier"]);
    assert_eq!(looks(&point), before, "over {kind:?}");
    tiered.of("archive", "file");
    tiered.of("release", "file");
    is_refused(&below);
    is_read(&file);
    tiered.of("release", "file");
    // The lower directory has mode 0400, but users can create files through the mount.
    assert_eq!(told(OWNER, &["mkdir", tiered.path("made").to_str().unwrap()]), None);
    assert_eq!(fs::metadata(tiered.path("made")).unwrap().mode() & 0o2000, 0o2000);
    assert!(told(STRANGER, &["mkdir", tiered.path("other").to_str().unwrap()]).is_some());
    fs::remove_dir(tiered.path("made")).unwrap();
    fs::File::open(&tree).unwrap().set_modified(mtime(before.3)).unwrap();
    tiered.umount();
    is_refused(&below);
    let state = tiered.ok(&["state", "-r", tree.to_str().unwrap()]);
    assert!(state.contains("A offline "), "{state}");
    is_refused(&below);
    tiered.place().mount(&["-l", "tier"]);
    assert_eq!(looks(&point), before, "over {kind:?}");
    tiered.place().kill_daemon();
    assert!(fs::metadata(&file).is_err());
    is_refused(&below);
    tiered.mount_again();
    fs::set_permissions(&point, fs::Permissions::from_mode(0o751)).unwrap();
    assert_eq!(looks(&point).0, 0o751);
    tiered.umount();
    is_refused(&below);
    tiered.place().mount(&["-l", "tier"]);
    assert_eq!(looks(&point).0, 0o751, "over {kind:?}");
    assert!(fs::read(&file).unwrap() == data, "over {kind:?}");
    tiered.umount();
}

fn mtime((seconds, nanoseconds): (i64, i64)) -> std::time::SystemTime {
    let since = std::time::Duration::new(seconds as u64, nanoseconds as u32);
    std::time::UNIX_EPOCH + since
}

#[test]
fn released_files_are_refused_unless_they_are_read_through_the_mount() {
    require_mounting!();
    for kind in [None, Some(Kind::Ext4), Some(Kind::Xfs), Some(Kind::Btrfs)] {
        check(kind);
    }
}

fn released() -> Tiered {
    let tiered = Tiered::mounted();
    fs::write(tiered.path("file"), noise(6, MIB)).unwrap();
    tiered.of("archive", "file");
    tiered.of("release", "file");
    tiered.umount();
    is_refused(&tiered.tree().join("file"));
    tiered
}

#[test]
fn two_ordinary_commands_reopen_a_closed_tree() {
    require_mounting!();
    let tiered = released();
    let tree = tiered.tree();
    let mut kept = [0; 16];
    let length = rustix::fs::getxattr(tree, "trusted.fslab.tier.mode", &mut kept[..]).unwrap();
    let mode = std::str::from_utf8(&kept[..length]).unwrap();
    assert_eq!(mode, "0755");
    assert!(Command::new("chmod").arg(mode).arg(tree).status().unwrap().success());
    rustix::fs::removexattr(tree, "trusted.fslab.tier.mode").unwrap();
    is_read(&tree.join("file"));
    // Queries leave the mode unchanged. The next command of another kind sets mode 0400 again.
    for query in ["state", "du", "archives"] {
        tiered.ok(&[query, tree.to_str().unwrap()]);
    }
    is_read(&tree.join("file"));
    tiered.ok(&["archive", tree.to_str().unwrap()]);
    is_refused(&tree.join("file"));
}

#[test]
fn umount_open_setting_keeps_the_tree_open() {
    require_mounting!();
    let tiered = released();
    let (tree, settings) = (tiered.tree(), tiered.beside("home/tier.toml"));
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replacen("copies", "umount = \"open\"\ncopies", 1)).unwrap();
    tiered.place().mount(&["-l", "tier"]);
    tiered.umount();
    assert_eq!(looks(tree).0, 0o755);
    assert!(rustix::fs::getxattr(tree, "trusted.fslab.tier.mode", &mut [0; 16][..]).is_err());
    is_read(&tree.join("file"));
    assert!(fs::read(tree.join("file")).unwrap() == vec![0; MIB]);
}

#[test]
fn init_reports_who_reads_released_files_as_zeros() {
    require_mounting!();
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    for (how, part) in [("closed", "has mode 0400"), ("open", "anyone who may read")] {
        let tree = path(how);
        fs::create_dir(&tree).unwrap();
        let (home, archive) = (path(&format!("{how}-home")), path(&format!("{how}-archive")));
        let arguments = ["tier", "init", "--umount", how, "--archive", &archive, "--home", &home];
        let output = crate::support::fslab(&arguments).arg(&tree).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(part) && said.contains("zeros"), "{said}");
        let settings = fs::read_to_string(format!("{home}/tier.toml")).unwrap();
        assert_eq!(settings.contains("umount = \"open\""), how == "open", "{settings}");
    }
}

#[test]
fn rebuilt_tree_is_closed_before_it_is_mounted() {
    require_mounting!();
    let tiered = released();
    tiered.ok(&["tree", tiered.tree().to_str().unwrap()]);
    let (home, new) = (tiered.beside("home-again"), tiered.beside("new"));
    let archive = tiered.archive();
    let [archive, home, tree] = [&archive, &home, &new].map(|path| path.to_str().unwrap());
    tiered.ok(&["rebuild", "--take-over", "--archive", archive, "--home", home, tree]);
    assert_eq!(looks(&new).0, 0o400);
    is_refused(&new.join("file"));
}

/// The commands that an ordinary user runs with a tier.
const AS_A_USER: &str = r#"
    mkdir -m 700 "$SCRATCH/own"
    chown nobody:nogroup "$SCRATCH/own"
    chmod 1777 "$SCRATCH"
    chmod 755 "$LOWER"
    export OWN="$SCRATCH/own"
    cat >"$OWN/script" <<'END'
        mode() { echo "$1: $(stat -c %a "$LOWER")"; }
        refused() { if cat "$LOWER/file" 2>"$OWN/said"; then echo "$1: read"; else
            grep -q "Permission denied" "$OWN/said" && mode "$1"; fi; }
        tier() { action=$1; shift; "$PROGRAM" tier "$action" "$@" >"$OWN/out" 2>"$OWN/err" || {
            echo "tier $action failed"; cat "$OWN/err"; }; }
        tier init --archive "$OWN/archive" --home "$OWN/home" "$LOWER"
        echo through the mount >"$LOWER/file"
        "$PROGRAM" mount -l tier "$LOWER" "$LOWER" 2>/dev/null
        mode mounted
        tier archive "$LOWER/file"
        tier tree "$LOWER"
        tier release "$LOWER/file"
        chmod 750 "$LOWER"
        "$PROGRAM" umount "$LOWER"
        refused unmounted
        tier state "$LOWER/file"
        grep -q "A offline" "$OWN/out" && refused asked
        "$PROGRAM" mount --dry-run -q -l tier "$LOWER" "$LOWER" 2>"$OWN/err" || cat "$OWN/err"
        refused dry-run
        "$PROGRAM" mount -o ro -l tier "$LOWER" "$LOWER" 2>&1 | grep -o "mount it without -o ro"
        mv "$OWN/archive" "$OWN/gone"
        ! "$PROGRAM" mount -l tier "$LOWER" "$LOWER" 2>/dev/null
        refused failed
        mv "$OWN/gone" "$OWN/archive"
        tier rebuild --archive "$OWN/archive" --home "$OWN/home2" "$OWN/new"
        stat -c "rebuilt: %a" "$OWN/new"
        "$PROGRAM" mount -l tier "$LOWER" "$LOWER" 2>/dev/null
        mode mounted
        cat "$LOWER/file"
        "$PROGRAM" umount "$LOWER"
        mode unmounted
END
    setpriv --reuid=nobody --regid=nogroup --clear-groups sh "$OWN/script"
"#;

#[test]
fn tree_of_an_ordinary_user_is_closed_while_it_is_not_mounted() {
    require_mounting!();
    let test = "tier_closed::tree_of_an_ordinary_user_is_closed_while_it_is_not_mounted";
    let Some(said) = with_own_device(test, AS_A_USER) else { return };
    let expected = [
        "mounted: 755",
        "unmounted: 400",
        "asked: 400",
        "dry-run: 400",
        "mount it without -o ro",
        "failed: 400",
        "rebuilt: 400",
        "mounted: 750",
        "through the mount",
        "unmounted: 400",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{said}");
}
