//! `fslab age`: the same workload on real file systems, after kills too, and scores that others
//! count likewise.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fslab_sys::loop_device::{LoopDevice, Options};
use fslab_sys::make_file_system::{Kind, make};
use fslab_sys::mounts::Mount;
use tempfile::TempDir;

use crate::support::{fslab, run};

/// A fresh file system of a kind; everything is undone when this goes.
struct Fresh {
    mount: Option<Mount>,
    _device: LoopDevice,
    scratch: TempDir,
}

impl Fresh {
    /// `None`, aloud, where it can't be made here.
    fn new(kind: Kind) -> Option<Self> {
        let test = "fslab::aging";
        if !rustix::process::geteuid().is_root() {
            fslab_vfs::testing::skip::skip(test, "not root");
            return None;
        }
        let scratch = TempDir::new_in("/tmp").unwrap();
        let image = scratch.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(320 << 20).unwrap();
        if let Err(error) = make(kind, &image, &[]) {
            fslab_vfs::testing::skip::skip(test, &error.to_string());
            return None;
        }
        let point = scratch.path().join("point");
        std::fs::create_dir(&point).unwrap();
        let device = LoopDevice::attach(&image, Options { sector_size: 512, read_only: false });
        let device = device.unwrap();
        let mount = Mount::new(device.path(), &point, kind.name(), "").unwrap();
        Some(Self { mount: Some(mount), _device: device, scratch })
    }

    fn root(&self) -> PathBuf {
        self.scratch.path().join("point")
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.unmount().unwrap();
        }
    }
}

#[track_caller]
fn works(arguments: &[&str]) -> String {
    let output = fslab(arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {message}");
    String::from_utf8(output.stdout).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A workload of some thousand operations.
fn workload(scratch: &TempDir, days: &str) -> PathBuf {
    let path = scratch.path().join("workload.parquet");
    works(&["age", "profile", "smith97", "--volume", "96MiB", "--days", days, "-o", text(&path)]);
    path
}

/// What `filefrag -v` says of a file: blocks, and extents that do not follow their predecessor.
/// What lies behind the end, where xfs reserves space, is left out.
fn by_filefrag(path: &Path) -> Option<(u64, u64)> {
    let output = Command::new("filefrag").arg("-v").arg(path).output().ok()?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |text: &str| text.trim().trim_end_matches('.').parse::<u64>().ok();
    // `File size of NAME is 9000 (9 blocks of 1024 bytes)`
    let head = told.lines().find(|line| line.starts_with("File size of"))?;
    let file_blocks = number(head.rsplit_once('(')?.1.split_once(' ')?.0)?;
    let (mut blocks, mut breaks, mut end) = (0, 0, None);
    for line in told.lines() {
        let columns: Vec<_> = line.split(':').collect();
        if columns.len() < 5 || number(columns[0]).is_none() {
            continue;
        }
        let logical = number(columns[1].split_once("..")?.0)?;
        let (start, last) = columns[2].split_once("..")?;
        let (start, last) = (number(start)?, number(last)?);
        if logical >= file_blocks {
            continue;
        }
        blocks += (last + 1 - start).min(file_blocks - logical);
        breaks += u64::from(end.is_some_and(|end| end != start));
        end = Some(last + 1);
    }
    Some((blocks, breaks))
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files_below(&entry.path(), found),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

/// `"name": NUMBER` in the first place where it stands.
fn figure(json: &str, name: &str) -> u64 {
    let (_, rest) = json.split_once(&format!("\"{name}\": ")).unwrap();
    rest.split([',', '\n', '}']).next().unwrap().trim().parse().unwrap()
}

#[test]
fn one_workload_makes_one_tree_on_real_file_systems_and_filefrag_counts_the_same() {
    let scratch = TempDir::new().unwrap();
    let workload = workload(&scratch, "8");
    for (kind, threads) in
        [(Kind::Ext4, "1"), (Kind::Ext4, "4"), (Kind::Xfs, "4"), (Kind::Btrfs, "1")]
    {
        let Some(fresh) = Fresh::new(kind) else { continue };
        let root = fresh.root().join("aged");
        std::fs::create_dir(&root).unwrap();
        let told = works(&[
            "age",
            "replay",
            "-t",
            threads,
            "--sync-every",
            "12",
            "--verify",
            text(&workload),
            text(&root),
        ]);
        assert!(told.contains("tree: as the workload makes it"), "{kind:?}: {told}");
        let score = works(&["age", "score", "--json", text(&root)]);
        let mut files = Vec::new();
        files_below(&root, &mut files);
        let counted: Option<Vec<_>> = files.iter().map(|path| by_filefrag(path)).collect();
        let Some(counted) = counted else {
            fslab_vfs::testing::skip::skip("fslab::aging", "no filefrag");
            continue;
        };
        if kind == Kind::Btrfs {
            // What lies inline in its metadata is left out here, and an extent for filefrag.
            continue;
        }
        let total = score.split_once("\"total\"").unwrap().1;
        let sums = (figure(total, "blocks"), figure(total, "breaks"));
        let expected = counted.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        assert_eq!(sums, expected, "{kind:?}: {score}");
        assert!(sums.0 > 5000, "{score}");
    }
}

/// `FSLAB_KILLS` for another number of kills.
#[test]
fn a_replay_that_was_killed_goes_on_to_the_same_tree() {
    let kills = std::env::var("FSLAB_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let scratch = TempDir::new().unwrap();
    let workload = workload(&scratch, "10");
    if !rustix::process::geteuid().is_root() {
        fslab_vfs::testing::skip::skip("fslab::aging", "not root");
        return;
    }
    let total = figure(
        &works(&["age", "show", text(&workload)]).replace("create    ", "\"create\": "),
        "create",
    );
    for kill in 0..kills {
        let root = scratch.path().join(format!("root{kill}"));
        let checkpoint = scratch.path().join(format!("checkpoint{kill}"));
        std::fs::create_dir(&root).unwrap();
        let arguments = [
            "age",
            "replay",
            "-t",
            "2",
            "--verify",
            "--checkpoint-every",
            "500",
            "--checkpoint",
            text(&checkpoint),
            text(&workload),
            text(&root),
        ];
        let mut child =
            fslab(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Somewhere behind a checkpoint that is another one each time.
        let enough = total * kill / kills;
        let reached = || {
            let told = std::fs::read_to_string(&checkpoint).unwrap_or_default();
            told.split_once("\"operations\":").is_some_and(|(_, rest)| {
                rest.split(',').next().unwrap().parse::<u64>().unwrap() >= enough
            })
        };
        while !reached() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let told = works(&arguments);
        assert!(told.contains("tree: as the workload makes it"), "kill {kill}: {told}");
        std::fs::remove_dir_all(&root).unwrap();
    }
}

#[test]
fn wrong_input_is_named() {
    let scratch = TempDir::new().unwrap();
    let workload = workload(&scratch, "1");
    let [full, empty, text_file] = ["full", "empty", "text"].map(|name| scratch.path().join(name));
    std::fs::create_dir(&full).unwrap();
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(full.join("file"), "").unwrap();
    std::fs::write(&text_file, "no Parquet").unwrap();
    let output = scratch.path().join("output");
    for (arguments, code, message) in [
        (vec!["age", "replay", text(&workload), text(&full)], 3, "holds something already"),
        (vec!["age", "replay", text(&text_file), text(&empty)], 3, "text"),
        (vec!["age", "show", "/no/such"], 3, "/no/such"),
        (vec!["age", "profile", "nobody", "-o", text(&output)], 3, "no profile 'nobody'"),
        (vec!["age", "profile", "mail", "--set", "wrong=1", "-o", text(&output)], 3, "'wrong'"),
        (vec!["age", "profile", "mail", "--utilisation", "2", "-o", text(&output)], 3, "0.97"),
        (vec!["age", "simulate", "--profile", "mail", "--policy", "best"], 3, "ffs-noswitch"),
        (vec!["age", "simulate", "--profile", "mail", "--disk", "floppy"], 3, "--disk list"),
        (vec!["age", "derive", "-o", text(&output), text(&workload)], 3, "no snapshot"),
        (vec!["age", "snapshot", "--repo", text(&empty), text(&output)], 3, "git"),
    ] {
        let (found, told) = run(&arguments);
        assert!(told.contains(message) && told.lines().count() == 1, "{arguments:?}: {told}");
        assert_eq!(found, code, "{arguments:?}: {told}");
    }
}
