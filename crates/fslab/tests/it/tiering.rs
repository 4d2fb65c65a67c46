//! Tests tiers as users see them: mounts, commands, rebuilds and encryption.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use fslab_sys::loop_device::{LoopDevice, Options};
use fslab_sys::make_file_system::{Kind, make};
use fslab_sys::mounts::Mount;
use tempfile::TempDir;

use crate::support::{Place, fslab, require_mounting, run, scratch_in_memory, soon, umount_unused};

const MIB: usize = 1 << 20;

/// A tree of a tier with one archive, mounted on request.
pub struct Tiered {
    place: Place,
    beside: PathBuf,
    /// The file system of the tree. It is dropped after the mount.
    ground: Option<Ground>,
}

/// A separate file system for a tree. The fields are dropped in order, so the mount goes first.
pub struct Ground {
    _mount: Mount,
    _device: LoopDevice,
    scratch: TempDir,
}

impl Ground {
    pub fn new(kind: Kind) -> Self {
        // mkfs.xfs needs at least this size.
        const BYTES: u64 = 320 << 20;
        let scratch = scratch_in_memory();
        let (image, point) = (scratch.path().join("image"), scratch.path().join("mounted"));
        fs::File::create(&image).unwrap().set_len(BYTES).unwrap();
        // For such a small disk, mkfs.ext4 would choose a block size that is too small for the
        // xattrs.
        let blocks = ["-b", "4096"].map(str::to_owned);
        let options = if kind == Kind::Ext4 { &blocks[..] } else { &[] };
        make(kind, &image, options).unwrap();
        let device = LoopDevice::attach(&image, Options::default()).unwrap();
        fs::create_dir(&point).unwrap();
        let mount = Mount::new(device.path(), &point, kind.name(), "").unwrap();
        Self { _mount: mount, _device: device, scratch }
    }

    pub fn root(&self) -> PathBuf {
        self.scratch.path().join("mounted")
    }
}

impl Tiered {
    #[track_caller]
    fn new() -> Self {
        Self::over(None)
    }

    /// Makes a tier that is not mounted. With a kind, its tree is on a new file system of that
    /// kind.
    #[track_caller]
    pub fn over(kind: Option<Kind>) -> Self {
        let mut place = if kind.is_some() { Place::in_memory() } else { Place::new() };
        let beside = place.lower.parent().unwrap().to_owned();
        let ground = kind.map(Ground::new);
        if let Some(ground) = &ground {
            place.lower = ground.scratch.path().join("mounted/tree");
            fs::create_dir(&place.lower).unwrap();
        }
        let tiered = Self { place, beside, ground };
        let (home, archive) = (tiered.beside.join("home"), tiered.archive());
        tiered.ok(&[
            "init",
            "--archive",
            archive.to_str().unwrap(),
            "--home",
            home.to_str().unwrap(),
            tiered.place.lower.to_str().unwrap(),
        ]);
        tiered
    }

    #[track_caller]
    pub fn mounted() -> Self {
        let tiered = Self::new();
        tiered.place.mount(&["-l", "tier"]);
        tiered
    }

    /// Makes a mounted tier over a new file system of a kind.
    #[track_caller]
    pub fn mounted_over(kind: Kind) -> Self {
        let tiered = Self::over(Some(kind));
        tiered.place.mount(&["-l", "tier"]);
        tiered
    }

    /// Mounts the tier again after its daemon was killed.
    #[track_caller]
    pub fn mount_again(&self) {
        umount_unused(&self.place.point);
        self.place.mount(&["-l", "tier"]);
    }

    /// Returns the place of the tier: its lower directory and its mount point.
    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn umount(&self) {
        self.place.umount();
    }

    pub fn daemon(&self) -> u32 {
        self.place.daemon()
    }

    /// Returns a path outside the tree and its file system.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.beside.join(name)
    }

    /// Returns a path on the tree's file system, outside the tree.
    pub fn beside_tree(&self, name: &str) -> PathBuf {
        assert!(self.ground.is_some(), "the tree has no file system of its own");
        self.place.lower.with_file_name(name)
    }

    /// From now on, uses another directory as the tree of this tier.
    pub fn move_to(&mut self, tree: PathBuf) {
        self.place.lower = tree;
    }

    /// Returns the root of the tree, which is the lower directory of the mount.
    pub fn tree(&self) -> &Path {
        &self.place.lower
    }

    pub fn archive(&self) -> PathBuf {
        self.beside.join("archive")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.point.join(name)
    }

    /// Runs `fslab tier`, which must succeed and print no message. Returns its output.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = fslab(&[&["tier"], arguments].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    pub fn of(&self, action: &str, name: &str) -> String {
        self.ok(&[action, self.path(name).to_str().unwrap()])
    }
}

/// A mount of the fault layer over the archive of an unmounted tier. It is unmounted on drop.
pub struct FaultyArchive(String);

impl FaultyArchive {
    #[track_caller]
    pub fn over(tiered: &Tiered, rules: &str) -> Self {
        let archive = tiered.archive().to_str().unwrap().to_owned();
        let layer = format!("fault:seed=1,rules={rules}");
        let mounted = fslab(&["mount", "-l", &layer, &archive, &archive]).output().unwrap();
        assert!(mounted.status.success(), "{rules}");
        Self(archive)
    }
}

impl Drop for FaultyArchive {
    fn drop(&mut self) {
        let (code, said) = run(&["umount", "--lazy", &self.0]);
        assert!(code == 0 || std::thread::panicking(), "{said}");
    }
}

pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn file_is_archived_released_and_recalled_by_range() {
    require_mounting!();
    let tiered = Tiered::mounted();
    let data = noise(1, 5 * MIB + 77);
    let file = tiered.path("file");
    fs::write(&file, &data).unwrap();
    let before = file.metadata().unwrap();
    assert!(tiered.of("archive", "file").starts_with("archived "));
    assert!(tiered.of("release", "").starts_with("released "));
    assert!(tiered.of("state", "file").starts_with("A offline "));
    let after = file.metadata().unwrap();
    assert_eq!(
        (after.len(), after.modified().unwrap()),
        (before.len(), before.modified().unwrap())
    );
    assert!(after.blocks() > 0 && fs::read(tiered.place.lower.join("file")).unwrap() != data);
    let open = fs::File::open(&file).unwrap();
    let mut part = [0; 10];
    open.read_exact_at(&mut part, 3 * MIB as u64 + 5).unwrap();
    assert_eq!(part, data[3 * MIB + 5..][..10]);
    drop(open);
    assert!(tiered.of("state", "file").starts_with("p partly-resident "));
    assert!(tiered.of("recall", "file").starts_with("recalled "));
    assert!(tiered.of("state", "file").starts_with("a archived "));
    tiered.of("release", "file");
    assert_eq!(fs::read(&file).unwrap(), data);
    assert!(tiered.of("scrub", "").contains("copies verified 1, repaired 0, damaged 0"));
    assert!(tiered.of("scan", "").contains("repaired 0, unneeded 0"));
    tiered.place.umount();
    assert_eq!(fs::read(tiered.place.lower.join("file")).unwrap(), data);
}

#[test]
fn lost_tree_is_rebuilt_from_the_archive() {
    require_mounting!();
    let mut tiered = Tiered::mounted();
    let data = noise(2, 2 * MIB);
    fs::create_dir(tiered.path("directory")).unwrap();
    fs::write(tiered.path("directory/file"), &data).unwrap();
    fs::hard_link(tiered.path("directory/file"), tiered.path("link")).unwrap();
    std::os::unix::fs::symlink("directory/file", tiered.path("symlink")).unwrap();
    tiered.of("archive", "");
    assert_eq!(tiered.of("tree", ""), "entries 5\n");
    fs::write(tiered.path("late"), "after the tree").unwrap();
    tiered.of("archive", "late");
    tiered.place.umount();
    let (new, home) = (tiered.beside.join("new"), tiered.beside.join("home-again"));
    let said = tiered.ok(&[
        "rebuild",
        "--take-over",
        "--archive",
        tiered.archive().to_str().unwrap(),
        "--home",
        home.to_str().unwrap(),
        new.to_str().unwrap(),
    ]);
    let expected = "made 2 files, 1 directory, 1 symlink or special file and 1 extra hard \
                    link; 1 younger than the archived tree; kept 0 existing files\n";
    assert!(said.ends_with(expected) && said.contains(" is held by "), "{said}");
    tiered.place.lower = new;
    let place = &tiered.place;
    place.mount(&["-l", "tier"]);
    let read = |name: &str| fs::read(place.point.join(name)).unwrap();
    assert_eq!(
        (read("directory/file"), read("link"), read("symlink")),
        (data.clone(), data.clone(), data)
    );
    assert_eq!(read("late"), b"after the tree");
    fs::write(place.point.join("later"), "after the loss").unwrap();
    tiered.of("archive", "later");
    assert_eq!(place.point.join("link").metadata().unwrap().nlink(), 2);
    place.umount();
}

/// A lost tree can be rebuilt with its old home, even though the archive has been moved and the
/// catalogue still describes the lost tree.
#[test]
fn lost_tree_is_rebuilt_with_the_surviving_home() {
    require_mounting!();
    let mut tiered = Tiered::mounted();
    fs::write(tiered.path("file"), "before the tree").unwrap();
    tiered.of("archive", "");
    tiered.of("tree", "");
    fs::write(tiered.path("late"), "after the tree").unwrap();
    fs::write(tiered.path("saved"), "as it was saved last").unwrap();
    fs::rename(tiered.path("saved"), tiered.path("file")).unwrap();
    tiered.of("archive", "");
    tiered.place.umount();
    let [moved, home, new, other] =
        ["moved", "home", "new", "other"].map(|name| tiered.beside.join(name));
    fs::rename(tiered.archive(), &moved).unwrap();
    let [moved, home] = [&moved, &home].map(|path| path.to_str().unwrap());
    let into = |tree: &Path| {
        run(&[
            "tier",
            "rebuild",
            "--take-over",
            "--archive",
            moved,
            "--home",
            home,
            tree.to_str().unwrap(),
        ])
    };
    // The first attempt uses a wrong directory, and reports the files that could not be restored.
    fs::create_dir(&other).unwrap();
    fs::write(other.join("late"), "somebody's").unwrap();
    let (code, message) = into(&other);
    assert!(
        code == 1 && message.contains("1 were not restored because another file has their path"),
        "{message}"
    );
    assert_eq!(into(&new), (0, String::new()));
    tiered.place.lower = new;
    let place = &tiered.place;
    place.mount(&["-l", "tier"]);
    let read = |name: &str| fs::read_to_string(place.point.join(name)).unwrap();
    assert_eq!(
        (read("file"), read("late")),
        ("as it was saved last".into(), "after the tree".into())
    );
    place.umount();
}

#[test]
fn invalid_tier_commands_are_refused_in_one_line() {
    require_mounting!();
    let tiered = Tiered::new();
    let lower = tiered.place.lower.to_str().unwrap().to_owned();
    let inside = format!("{lower}/inside");
    let home = tiered.beside.join("home2");
    let home = home.to_str().unwrap();
    let other = tiered.beside.join("archive2");
    let other = other.to_str().unwrap();
    let plain = tiered.place.point.to_str().unwrap();
    for (arguments, part) in [
        (
            &["init", "--archive", &inside, "--home", home, &lower][..],
            "must lie outside of the tree",
        ),
        (&["init", "--archive", other, "--home", home, &lower], "belongs to tier"),
        (
            &["init", "--archive", other, "--home", home, "--copies", "2", plain],
            "archives needed: 2",
        ),
        (&["archive", plain], "is not in the tree of a tier"),
        (&["recall", "--range", "5", &lower], "a range is OFFSET+LENGTH"),
        (&["policy", &lower], "can't read the policy"),
        (&["release", &format!("{lower}/none")], "none does not exist"),
    ] {
        let (code, message) = run(&[&["tier"], arguments].concat());
        assert!(code != 0 && message.contains(part), "{arguments:?}: {code} {message}");
    }
    for layers in [
        &["-l", "tier", "-l", "zstd"][..],
        &["-l", "tier", "-l", "null", "-l", "copy", "--dry-run"],
    ] {
        let (code, message) = run(&[&["mount"], layers, &[&lower, plain]].concat());
        assert!(code == 3 && message.contains("needs the original files"), "{code} {message}");
    }
    let (code, message) = run(&["mount", "-l", "tier", plain, plain]);
    assert!(code == 3 && message.contains("does not belong to a tier"), "{code} {message}");
    tiered.place.mount(&["-l", "tier"]);
    let (code, message) = run(&["tier", "scan", &lower]);
    assert!(code == 3 && message.contains("in use by another fslab"), "{code} {message}");
    tiered.place.umount();
}

/// In the lower directory, released bytes read as zeros, which `fslab tier release` reports. Data
/// that is written there must be kept.
#[test]
fn data_written_to_a_released_file_behind_the_mount_is_kept() {
    require_mounting!();
    let tiered = Tiered::mounted();
    let mut data = noise(9, 3 * MIB + 100);
    fs::write(tiered.path("file"), &data).unwrap();
    tiered.of("archive", "file");
    assert!(tiered.of("release", "file").contains("Without it they read as zeros"));
    tiered.place.umount();
    let below = fs::File::options().write(true).open(tiered.place.lower.join("file")).unwrap();
    for (bytes, offset) in [(&b"here"[..], MIB + 1000), (b"more", data.len())] {
        below.write_all_at(bytes, offset as u64).unwrap();
        data.resize(data.len().max(offset + bytes.len()), 0);
        data[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    drop(below);
    tiered.place.mount(&["-l", "tier"]);
    assert!(fs::read(tiered.path("file")).unwrap() == data);
    tiered.of("archive", "file");
    tiered.of("release", "file");
    assert!(fs::read(tiered.path("file")).unwrap() == data);
    tiered.place.umount();
}

#[test]
fn archive_is_not_created_in_place_of_a_missing_disk() {
    require_mounting!();
    let tiered = Tiered::new();
    let missing = tiered.beside.join("missing");
    let (home, tree) = (tiered.beside.join("home2"), tiered.beside.join("tree2"));
    fs::create_dir(&tree).unwrap();
    let [archive, home, tree] =
        [&missing.join("archive"), &home, &tree].map(|path| path.to_str().unwrap().to_owned());
    let (code, message) = run(&["tier", "init", "--archive", &archive, "--home", &home, &tree]);
    assert!(code != 0 && message.contains("is its disk mounted?"), "{code} {message}");
    assert!(!missing.exists() && !Path::new(&home).exists());
    fs::create_dir(&missing).unwrap();
    let said = tiered.ok(&["init", "--archive", &archive, "--home", &home, &tree]);
    assert!(said.contains("is on the same file system as the tree"), "{said}");
    fs::rename(tiered.archive(), tiered.beside.join("aside")).unwrap();
    let (code, message) = tiered.place.try_mount(&["-l", "tier"]);
    assert!(code == 3 && message.contains("the archive is not there"), "{code} {message}");
    assert!(!message.contains("unavailable for now"), "{message}");
}

/// A tier of root contains files that other users may not read. So its archives and homes must be
/// private, and a mount reports those that are not.
#[test]
fn archives_and_homes_are_private_and_open_ones_are_reported() {
    require_mounting!();
    let tiered = Tiered::new();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    let (archive, home) = (tiered.archive(), tiered.beside("home"));
    assert_eq!((mode(&archive), mode(&home)), (0o700, 0o700));
    let [settings, catalogue] = ["tier.toml", "catalogue.redb"].map(|name| home.join(name));
    assert_eq!((mode(&settings), mode(&catalogue)), (0o600, 0o600));
    let open = |path: &Path| fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    // Earlier versions of fslab created these with modes that let others read them.
    [&archive, &archive.join("files"), &home, &catalogue].into_iter().for_each(|path| open(path));
    let (code, message) = tiered.place.try_mount(&["-l", "tier"]);
    assert_eq!(code, 0, "{message}");
    for place in [archive, home] {
        let told = format!("run: chmod go= {}", place.display());
        assert!(message.contains(&told), "{message}");
        fs::set_permissions(&place, PermissionsExt::from_mode(0o700)).unwrap();
    }
    tiered.place.umount();
    // With private modes, there is no message.
    tiered.place.mount(&["-l", "tier"]);
    tiered.place.umount();
}

#[test]
fn empty_state_and_queue_print_a_message() {
    require_mounting!();
    let tiered = Tiered::mounted();
    fs::create_dir(tiered.path("directory")).unwrap();
    assert_eq!(
        tiered.of("state", ""),
        "no files in this directory; use -r to include subdirectories\n"
    );
    assert_eq!(tiered.of("queue", ""), "no recall is waiting\n");
    let point = tiered.path("");
    assert_eq!(tiered.ok(&["queue", "--json", point.to_str().unwrap()]).lines().count(), 1);
    tiered.place.umount();
}

#[test]
fn release_command_keeps_pinned_files() {
    require_mounting!();
    let tiered = Tiered::mounted();
    for name in ["pinned", "other"] {
        fs::write(tiered.path(name), noise(6, MIB)).unwrap();
    }
    tiered.of("archive", "");
    tiered.of("pin", "pinned");
    let expected = "kept (pinned) 1 file, 1.0 MiB\nwould release 1 file, 1.0 MiB\n";
    let point = tiered.path("");
    let dry = tiered.ok(&["release", "-n", point.to_str().unwrap()]);
    assert!(dry.starts_with(expected) && dry.contains("\ndisk space: frees 1.0 MiB,"), "{dry}");
    assert!(dry.ends_with("\nnothing was changed\n"), "{dry}");
    let (code, message) = run(&["tier", "release", tiered.path("pinned").to_str().unwrap()]);
    assert!(code == 1 && message.contains("pinned: is pinned; run"), "{code}: {message}");
    let told = tiered.of("release", "");
    assert!(
        told.starts_with("kept (pinned) 1 file, 1.0 MiB\nreleased 1 file, 1.0 MiB\n"),
        "{told}"
    );
    assert!(tiered.of("state", "pinned").starts_with("a archived "));
    tiered.of("unpin", "pinned");
    tiered.of("release", "pinned");
    assert!(tiered.of("state", "pinned").starts_with("A offline "));
    tiered.umount();
}

#[test]
fn policy_dry_run_reports_what_the_policy_then_does() {
    require_mounting!();
    let tiered = Tiered::mounted();
    fs::write(tiered.path("video.mkv"), noise(4, 2 * MIB)).unwrap();
    fs::write(tiered.path("notes.txt"), "small").unwrap();
    fs::write(tiered.path("pinned.mkv"), noise(5, MIB)).unwrap();
    tiered.of("pin", "pinned.mkv");
    let policy = tiered.beside.join("policy.toml");
    let rules = "[[rule]]\naction = 'release'\npaths = ['*.mkv']\n";
    fs::write(&policy, rules).unwrap();
    let point = tiered.place.point.to_str().unwrap();
    let arguments = ["policy", point, "--file", policy.to_str().unwrap()];
    let dry = tiered.ok(&[&arguments[..], &["--dry-run"]].concat());
    assert_eq!(
        dry,
        "files 3, archived 2, archived 3.0 MiB, released 1, released 2.0 MiB, busy 0, foreign 0\n"
    );
    assert!(tiered.of("state", "video.mkv").starts_with("- resident "));
    assert_eq!(tiered.ok(&arguments), dry);
    assert!(tiered.of("state", "video.mkv").starts_with("A offline "));
    assert!(tiered.of("state", "pinned.mkv").starts_with("a archived "));
    assert!(tiered.of("state", "notes.txt").starts_with("- resident "));
    // Without `--file`, the tier's own policy is used, whether the tree is mounted or not.
    let (code, message) = run(&["tier", "policy", point]);
    assert!(code != 0 && message.contains("can't read the policy"), "{code} {message}");
    let own = rules.replace("*.mkv", "*.txt").replace("release", "archive");
    fs::write(tiered.beside.join("home/policy.toml"), own).unwrap();
    assert!(tiered.ok(&["policy", point]).contains("archived 1,"));
    assert!(tiered.of("state", "notes.txt").starts_with("a archived "));
    tiered.place.umount();
    let lower = tiered.place.lower.to_str().unwrap();
    assert!(tiered.ok(&["policy", lower]).contains("archived 0,"));
}

#[test]
fn mount_applies_the_policy_periodically_within_its_recall_rate() {
    require_mounting!();
    let tiered = Tiered::new();
    let rules = "[[rule]]\naction = 'release'\npaths = ['*.mkv']\n";
    fs::write(tiered.beside.join("home/policy.toml"), rules).unwrap();
    tiered.place.mount(&["-l", "tier:every=50ms,recall-rate=2MiB,movers=1"]);
    let data = noise(8, 3 * MIB);
    fs::write(tiered.path("video.mkv"), &data).unwrap();
    let is_away = || tiered.of("state", "video.mkv").starts_with("A offline ");
    soon("a round releases the file", is_away);
    let begun = std::time::Instant::now();
    assert!(fs::read(tiered.path("video.mkv")).unwrap() == data);
    // With one mover, the first block is recalled at once. Each later block starts at the time at
    // which the previous block would have ended at the rate `recall-rate`.
    let least = std::time::Duration::from_millis(900);
    assert!(begun.elapsed() >= least, "3 MiB at 2 MiB a second after {:?}", begun.elapsed());
    soon("the next round releases it again", is_away);
    let stats = fslab(&["stats", tiered.place.point.to_str().unwrap()]).output().unwrap();
    let stats = String::from_utf8(stats.stdout).unwrap();
    assert!(stats.contains("tier_rounds") && stats.contains("tier_bundles"), "{stats}");
    tiered.place.umount();
}

#[test]
fn denied_programs_do_not_recall_files() {
    require_mounting!();
    let tiered = Tiered::new();
    let settings = tiered.beside.join("home/tier.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, format!("deny = ['bin/cat']\n{text}")).unwrap();
    let (lower, point) = (&tiered.place.lower, &tiered.place.point);
    let arguments = ["mount", "-l", "tier", lower.to_str().unwrap(), point.to_str().unwrap()];
    let (code, message) = run(&arguments);
    assert!(
        code == 3 && message.contains("tier.toml, line 1: 'bin/cat' is neither the name"),
        "{message}"
    );
    fs::write(&settings, format!("deny = ['cat']\n{text}")).unwrap();
    tiered.place.mount(&["-l", "tier"]);
    let file = tiered.path("file");
    fs::write(&file, noise(7, 2 * MIB)).unwrap();
    tiered.of("archive", "file");
    tiered.of("release", "file");
    let cat = || Command::new("cat").arg(&file).output().unwrap();
    let denied = cat();
    assert!(!denied.status.success());
    let said = String::from_utf8_lossy(&denied.stderr).into_owned();
    assert!(said.contains("Resource temporarily unavailable"), "{said}");
    assert!(tiered.of("state", "file").starts_with("A offline "));
    assert_eq!(fs::read(&file).unwrap(), noise(7, 2 * MIB));
    assert_eq!(cat().stdout, noise(7, 2 * MIB), "the file is local");
    tiered.place.umount();
}

#[test]
fn undelete_restores_a_removed_file() {
    require_mounting!();
    let tiered = Tiered::mounted();
    let data = noise(6, MIB + 5);
    fs::write(tiered.path("file"), &data).unwrap();
    tiered.of("archive", "file");
    fs::remove_file(tiered.path("file")).unwrap();
    let versions = tiered.of("versions", "file");
    assert!(versions.contains(" removed "), "{versions}");
    let object = versions.split(' ').next().unwrap();
    tiered.ok(&["undelete", object, tiered.path("again").to_str().unwrap()]);
    assert_eq!(fs::read(tiered.path("again")).unwrap(), data);
    tiered.place.umount();
}

/// The version is binary, and one of its blocks contains only zeros.
#[test]
fn cat_prints_a_replaced_version_with_and_without_a_mount() {
    require_mounting!();
    let tiered = Tiered::mounted();
    let mut data = noise(6, 3 * MIB + 5);
    data[MIB..2 * MIB].fill(0);
    fs::write(tiered.path("file"), &data).unwrap();
    tiered.of("archive", "file");
    fs::write(tiered.path("file"), "other").unwrap();
    tiered.of("archive", "file");
    let versions = tiered.of("versions", "file");
    let replaced = versions.lines().find(|line| line.contains(" replaced ")).unwrap();
    let object = replaced.split(' ').next().unwrap();
    let cat = |tree: &Path| {
        let output = fslab(&["tier", "cat", object, tree.to_str().unwrap()]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    assert!(cat(&tiered.path("")) == data);
    assert_eq!(fs::read(tiered.path("file")).unwrap(), b"other");
    tiered.place.umount();
    assert!(cat(&tiered.place.lower) == data);
    let lower = tiered.place.lower.to_str().unwrap();
    let (code, message) = run(&["tier", "cat", &"0".repeat(32), lower]);
    assert!(
        code == 3 && message.contains("no longer kept; see `fslab tier versions`"),
        "{code} {message}"
    );
}

#[test]
fn encrypted_archive_is_readable_only_with_its_key() {
    require_mounting!();
    let mut place = Place::new();
    let beside = place.lower.parent().unwrap().to_owned();
    let of = |name: &str| beside.join(name).to_str().unwrap().to_owned();
    let tier = |arguments: &[&str]| run(&[&["tier"], arguments].concat());
    let (key, other) = (of("key"), of("other-key"));
    for file in [&key, &other] {
        assert_eq!(tier(&["key", file]), (0, String::new()));
    }
    let (code, message) = tier(&["key", &key]);
    assert!(code != 0 && message.contains("File exists"), "{message}");
    let lower = place.lower.to_str().unwrap().to_owned();
    let (archive, home) = (of("archive"), of("home"));
    let init = ["init", "--archive", &archive, "--home", &home, &lower, "--key"];
    let (code, message) = tier(&[&init[..], &[&of("none")]].concat());
    assert!(code == 3 && message.contains("none: can't be read as a key"), "{code} {message}");
    assert_eq!(tier(&[&init[..], &[&key]].concat()), (0, String::new()));
    place.mount(&["-l", "tier"]);
    fs::create_dir(place.point.join("secret-names")).unwrap();
    let text = "a secret of many words ".repeat(100_000);
    for name in ["small", "large"] {
        let length = if name == "small" { 300 } else { text.len() };
        fs::write(place.point.join("secret-names").join(name), &text[..length]).unwrap();
    }
    let point = place.point.to_str().unwrap().to_owned();
    for action in ["archive", "tree", "release"] {
        assert_eq!(tier(&[action, &point]), (0, String::new()));
    }
    assert!(fs::read_to_string(place.point.join("secret-names/large")).unwrap() == text);
    place.umount();
    expect_no_file_contains(&beside.join("archive"), b"secret");
    let read = |place: &Place, name: &str| {
        fs::read_to_string(place.point.join("secret-names").join(name)).unwrap()
    };
    // Try a missing key, another key, and then the right key.
    let moved = of("moved-key");
    fs::rename(&key, &moved).unwrap();
    let wrong_key = format!("tier:key={other}");
    for (layer, part) in [
        ("tier", "key: can't be read as a key"),
        (wrong_key.as_str(), "other-key: is not the key of the archive"),
    ] {
        let (code, message) = place.try_mount(&["-l", layer]);
        assert!(code == 3 && message.contains(part), "{layer}: {code} {message}");
    }
    place.mount(&["-l", &format!("tier:key={moved}")]);
    assert!(read(&place, "small") == text[..300]);
    place.umount();
    let inside = place.lower.join("key-inside");
    let second = of("second");
    let (code, message) = tier(&["attach", &lower, &second, "--key", inside.to_str().unwrap()]);
    assert!(code == 3 && message.contains("must lie outside of the tree"), "{code} {message}");
    let new = of("new");
    fs::create_dir(&new).unwrap();
    let again = of("home-again");
    let rebuild = ["rebuild", "--take-over", "--archive", &archive, "--home", &again, &new];
    let (code, message) = tier(&rebuild);
    assert!(code == 3 && message.contains("is encrypted; give the file"), "{code} {message}");
    assert_eq!(tier(&[&rebuild[..], &["--key", &moved]].concat()), (0, String::new()));
    place.lower = new.into();
    place.mount(&["-l", "tier"]);
    assert!(read(&place, "small") == text[..300] && read(&place, "large") == text);
    place.umount();
}

/// Checks that no file below a directory contains these bytes.
fn expect_no_file_contains(directory: &Path, bytes: &[u8]) {
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let found = fs::read(&path).unwrap();
        let has = found.windows(bytes.len()).any(|window| window == bytes);
        assert!(!has, "{} contains secret bytes", path.display());
    }
}

/// A dry run changes nothing and reports what the command would do. For `recall`, this is also
/// tested on an unmounted tree.
#[test]
fn dry_runs_report_planned_work_and_change_nothing() {
    require_mounting!();
    let tiered = Tiered::mounted();
    fs::write(tiered.path("file"), noise(1, MIB)).unwrap();
    fs::write(tiered.path("other"), noise(2, 10)).unwrap();
    let dry = |action: &str| tiered.ok(&[action, "-n", tiered.path("").to_str().unwrap()]);
    let state = || tiered.of("state", "");
    let check = |action: &str, report: &str| {
        let before = state();
        let told = dry(action);
        assert!(told.starts_with(report) && told.ends_with("nothing was changed\n"), "{told}");
        assert_eq!(state(), before, "{action} -n has changed something");
    };
    check("archive", "would archive 2 files, 1.0 MiB\n");
    tiered.of("archive", "");
    check("archive", "nothing to archive\n");
    check("release", "would release 2 files, 1.0 MiB\n");
    tiered.of("release", "file");
    check("recall", "would recall 1 file, 1.0 MiB\n");
    let told =
        tiered.ok(&["recall", "-n", "-v", "--range", "0+64KiB", tiered.path("").to_str().unwrap()]);
    // Recalls affect whole blocks, so the dry run reports a whole block too.
    assert!(told.starts_with("would recall    1.0 MiB  file\n"), "{told}");
    check("scrub", "versions 2, copies 2, content 1.0 MiB\n");
    check("expire", "objects 0, content 0 B, need a scan 0\n");
    fs::remove_file(tiered.path("other")).unwrap();
    // No version is expired, because versions are kept for 30 days.
    check("expire", "objects 0, ");
    let told = tiered.ok(&["undelete", "-n", "-r", tiered.path("").to_str().unwrap()]);
    assert_eq!(told, "would undelete 1 file, 10 B\nnothing was changed\n");
    assert!(!tiered.path("other").exists());
    let message = tiered.place.lower.to_str().unwrap();
    tiered.umount();
    let told = tiered.ok(&["recall", "--dry-run", message]);
    assert!(told.starts_with("would recall 1 file, 1.0 MiB\n"), "{told}");
}
