//! Tests `fslab age`: replays on real file systems, resumed replays, aged images, and scores, which
//! are compared with those of other tools.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fslab_sys::loop_device::{LoopDevice, Options};
use fslab_sys::make_file_system::{Kind, make};
use fslab_sys::mounts::Mount;
use tempfile::TempDir;

use crate::support::{copy_program, fslab, run};

/// A new kernel file system on a loop device. It is unmounted and removed on drop.
pub struct Fresh {
    mount: Option<Mount>,
    _device: LoopDevice,
    scratch: TempDir,
}

impl Fresh {
    /// Makes a new file system. If this is impossible here, reports a skip and returns `None`.
    pub fn new(kind: Kind) -> Option<Self> {
        Self::of_size(kind, 320 << 20)
    }

    /// Does the same as [`Fresh::new`], for a size in bytes.
    pub fn of_size(kind: Kind, size: u64) -> Option<Self> {
        let test = "fslab::aging";
        if !rustix::process::geteuid().is_root() {
            fslab_vfs_testing::skip::skip(test, "not root");
            return None;
        }
        let scratch = TempDir::new_in("/tmp").unwrap();
        let image = scratch.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(size).unwrap();
        if let Err(error) = make(kind, &image, &[]) {
            fslab_vfs_testing::skip::skip(test, &error.to_string());
            return None;
        }
        let point = scratch.path().join("point");
        std::fs::create_dir(&point).unwrap();
        let device = LoopDevice::attach(&image, Options { sector_size: 512, read_only: false });
        let device = device.unwrap();
        let mount = Mount::new(device.path(), &point, kind.name(), "").unwrap();
        Some(Self { mount: Some(mount), _device: device, scratch })
    }

    /// Returns the mount point.
    pub fn root(&self) -> PathBuf {
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

/// Runs the program, which must succeed, and returns its standard output.
#[track_caller]
pub fn works(arguments: &[&str]) -> String {
    let output = fslab(arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {message}");
    String::from_utf8(output.stdout).unwrap()
}

/// Converts a path to an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Makes a workload of a few thousand operations.
fn workload(scratch: &TempDir, days: &str) -> PathBuf {
    let path = scratch.path().join("workload.parquet");
    works(&["age", "profile", "smith97", "--volume", "96MiB", "--days", days, "-o", text(&path)]);
    path
}

/// Returns the figures of `filefrag -v` for a file: blocks, and extents that do not follow their
/// predecessor. Blocks past the end of the file, which XFS preallocates, are not counted.
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

/// Returns the number in the first `"name": NUMBER`.
fn figure(json: &str, name: &str) -> u64 {
    let (_, rest) = json.split_once(&format!("\"{name}\": ")).unwrap();
    rest.split([',', '\n', '}']).next().unwrap().trim().parse().unwrap()
}

#[test]
fn replayed_trees_match_the_workload_and_filefrag_agrees() {
    let scratch = TempDir::new().unwrap();
    let workload = workload(&scratch, "8");
    for (kind, threads) in
        [(Kind::Ext4, "1"), (Kind::Ext4, "4"), (Kind::Xfs, "4"), (Kind::Btrfs, "4")]
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
        assert!(told.contains("tree: equal to that of the workload"), "{kind:?}: {told}");
        let score = works(&["age", "score", "--json", text(&root)]);
        let mut files = Vec::new();
        files_below(&root, &mut files);
        let counted: Option<Vec<_>> = files.iter().map(|path| by_filefrag(path)).collect();
        let Some(counted) = counted else {
            fslab_vfs_testing::skip::skip("fslab::aging", "no filefrag");
            continue;
        };
        if kind == Kind::Btrfs {
            // If the content of a file is inline in the metadata, filefrag counts an extent, but
            // `age score` skips the file.
            continue;
        }
        let total = score.split_once("\"total\"").unwrap().1;
        let sums = (figure(total, "blocks"), figure(total, "breaks"));
        let expected = counted.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        assert_eq!(sums, expected, "{kind:?}: {score}");
        assert!(sums.0 > 5000, "{score}");
    }
}

#[test]
fn engine_replay_makes_the_workload_tree_for_any_thread_count() {
    let scratch = TempDir::new().unwrap();
    let workload = workload(&scratch, "8");
    if !rustix::process::geteuid().is_root() {
        fslab_vfs_testing::skip::skip("fslab::aging, owners", "not root");
        return;
    }
    for threads in ["1", "4"] {
        let image = scratch.path().join(format!("image{threads}"));
        works(&["ext2", "mkfs", text(&image), "96MiB"]);
        let target = format!("ext2:{}?policy=ffs", text(&image));
        let told = works(&["age", "replay", "-t", threads, "--verify", text(&workload), &target]);
        assert!(told.contains("tree: equal to that of the workload"), "{threads}: {told}");
        let checked = works(&["ext2", "check", text(&image)]);
        assert!(checked.contains("clean"), "{checked}");
    }
}

#[test]
fn dry_runs_of_ageing_check_and_change_nothing() {
    let scratch = TempDir::new().unwrap();
    let workload = workload(&scratch, "5");
    let shown = works(&["age", "show", text(&workload)]);
    let totals = shown.lines().find(|line| line.contains(" operations in ")).unwrap();
    let [image, root] = ["image", "root"].map(|name| scratch.path().join(name));
    works(&["ext2", "mkfs", text(&image), "100MiB"]);
    std::fs::create_dir(&root).unwrap();
    let (before, names) = (std::fs::read(&image).unwrap(), names_in(scratch.path()));
    let on_image = format!("ext2:{}", text(&image));
    for target in [text(&root), &on_image] {
        let told = works(&["age", "replay", "-n", text(&workload), target]);
        let would = format!("on {target}, would replay {totals}\nnothing was changed\n");
        assert_eq!(told, would);
    }
    let output = scratch.path().join("aged");
    let make = ["age", "image", "make", "-n", "--filesystem", "ext2", "--policy", "ffs"];
    let told = works(&[&make[..], &["-o", text(&output), text(&workload)]].concat());
    assert!(told.contains(totals) && told.ends_with("nothing was changed\n"), "{told}");
    assert!(std::fs::read(&image).unwrap() == before, "the image was changed");
    assert_eq!(names_in(&root), [""; 0]);
    assert_eq!(names_in(scratch.path()), names);
    std::fs::write(root.join("file"), "").unwrap();
    let (code, told) = run(&["age", "replay", "-n", text(&workload), text(&root)]);
    assert!(code == 3 && told.contains("the target is not empty"), "{code} {told}");
    let refused = |more: &[&str]| {
        let dry = run(&[&make[..], more, &[text(&workload)]].concat());
        let real = run(&[&make[..3], &make[4..], more, &[text(&workload)]].concat());
        assert_eq!((dry.0, &dry.1), (real.0, &real.1), "{more:?}");
        assert_ne!(dry.0, 0, "{more:?}");
    };
    refused(&["-o", text(&output), "--reserved-percent", "90"]);
    refused(&["-o", text(&output), "--size", "1KiB"]);
    let (code, told) = run(&[&make[..], &["-o", "/no/such/file", text(&workload)]].concat());
    assert!(code == 3 && told.contains("/no/such: "), "{code} {told}");
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A replay that is killed and resumed several times makes the same tree as one without kills.
/// `FSLAB_KILLS` sets the number of kills.
#[test]
fn killed_replay_resumes_to_the_same_tree() {
    let kills = std::env::var("FSLAB_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let scratch = TempDir::new().unwrap();
    let workload = workload(&scratch, "10");
    if !rustix::process::geteuid().is_root() {
        fslab_vfs_testing::skip::skip("fslab::aging", "not root");
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
        // Each kill happens at a later position, after a checkpoint.
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
        assert!(told.contains("tree: equal to that of the workload"), "kill {kill}: {told}");
        std::fs::remove_dir_all(&root).unwrap();
    }
}

/// Copies a tree with cp(1).
pub fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

/// Returns the path of real source files of the crate fslab-age.
pub fn sources(name: &str) -> PathBuf {
    std::path::absolute(Path::new("../fslab-age").join(name)).unwrap()
}

/// Takes snapshots of a live tree before and after changes, and replays the derived workload in
/// another directory. `age verify` must find the replayed tree equal to the tree after the changes,
/// and different from the tree before them.
#[test]
fn captured_churn_of_a_live_tree_is_verified() {
    let Some(fresh) = Fresh::new(Kind::Ext4) else { return };
    let scratch = TempDir::new().unwrap();
    let [tree, aged] = ["tree", "aged"].map(|name| fresh.root().join(name));
    let [before, after, workload, replayed] =
        ["before", "after", "workload", "replayed"].map(|name| scratch.path().join(name));
    std::fs::create_dir(&tree).unwrap();
    std::fs::create_dir(&aged).unwrap();
    copy(&sources("src"), &tree.join("first"));
    copy(&sources("src"), &tree.join("second"));
    works(&["age", "snapshot", text(&tree), text(&before)]);
    std::fs::remove_dir_all(tree.join("second/simulate")).unwrap();
    std::fs::rename(tree.join("second/table"), tree.join("first/moved")).unwrap();
    copy(&sources("tests"), &tree.join("third"));
    let mut files = Vec::new();
    files_below(&tree.join("first"), &mut files);
    for (index, path) in files.iter().enumerate() {
        let old = std::fs::read(path).unwrap();
        match index % 4 {
            0 => std::fs::write(path, [old.clone(), old].concat()).unwrap(),
            1 => std::fs::write(path, &old[..old.len() / 2]).unwrap(),
            2 => std::fs::rename(path, path.with_extension("other")).unwrap(),
            _ => {}
        }
    }
    works(&["age", "snapshot", text(&tree), text(&after)]);
    works(&["age", "derive", "-o", text(&workload), text(&before), text(&after)]);
    let told = works(&["age", "replay", "--verify", text(&workload), text(&aged)]);
    assert!(told.contains("tree: equal to that of the workload"), "{told}");
    works(&["age", "snapshot", text(&aged), text(&replayed)]);
    let told = works(&["age", "verify", text(&after), text(&replayed)]);
    assert!(told.contains("near  files: ") && told.contains("near  bytes in files: "), "{told}");
    assert!(
        !told.contains("in use"),
        "utilisation is not compared for parts of a file system: \
                                       {told}"
    );
    let (code, told) = run(&["age", "verify", text(&before), text(&replayed)]);
    assert!(code == 1 && told.contains("too far from the reference"), "{told}");
}

/// Equal workloads make equal images with the engine, byte for byte. A comparison can start from
/// such an image, but refuses an image of another workload.
#[test]
fn aged_images_are_reproducible_and_can_start_comparisons() {
    let scratch = TempDir::new().unwrap();
    let workload = workload(&scratch, "6");
    let [one, two, other, plan, image] = ["one.zst", "two.zst", "other.zst", "plan.toml", "image"]
        .map(|name| scratch.path().join(name));
    let make = |output: &Path, policy: &str| {
        let arguments = ["-f", "ext2", "--policy", policy, "-o", text(output), text(&workload)];
        works(&[&["age", "image", "make"], &arguments[..]].concat())
    };
    let told = make(&one, "ffs");
    make(&two, "ffs");
    make(&other, "ffs-noswitch");
    let read = |path: &Path| std::fs::read(path).unwrap();
    assert!(read(&one) == read(&two) && read(&one) != read(&other));
    let info = works(&["age", "image", "info", text(&one)]);
    let hash = info.lines().find_map(|line| line.strip_prefix("workload: ")).unwrap().to_owned();
    assert!(told.contains(&hash), "{told}");
    let tree = info.lines().find_map(|line| line.strip_prefix("tree: ")).unwrap();
    let shown = works(&["age", "show", "--operations", "3", text(&workload)]);
    assert!(!shown.contains(" {"), "debug output of Rust: {shown}");
    assert!(shown.contains("\n2 day 0.0000 "), "{shown}");
    assert!(shown.contains(&format!("final tree: {tree}")) && shown.contains(&hash), "{shown}");
    works(&["age", "image", "unpack", text(&one), text(&image)]);
    let checked = works(&["ext2", "check", text(&image)]);
    assert!(checked.contains("clean"), "{checked}");
    let score = works(&["age", "score", text(&image)]);
    assert!(score.contains("score"), "{score}");
    if !rustix::process::geteuid().is_root() {
        fslab_vfs_testing::skip::skip("fslab::aging, comparing", "not root");
        return;
    }
    let wrong = if hash.starts_with("00000000") { "11111111" } else { "00000000" };
    let target = |name: &str, hash: &str| {
        format!(
            "[[target]]\nname = \"{name}\"\nfilesystem = \"ext2\"\naged = \"one.zst\"\n\
             aged_workload = \"{hash}\"\n"
        )
    };
    let text_of_plan = format!(
        "name = \"aged\"\nrounds = 1\nimage_size = \"320 MiB\"\nbaseline = \"aged\"\n{}{}\
         [[workload]]\nname = \"names\"\nfiles = 10\n",
        target("aged", &hash[..16]),
        target("other", wrong),
    );
    std::fs::write(&plan, text_of_plan).unwrap();
    let compared = fslab(&["compare", "plan.toml", "--out", "out", "--reruns", "0"])
        .current_dir(scratch.path())
        .env("FSLAB_CACHE", scratch.path().join("cache"))
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&compared.stderr).into_owned();
    let samples = std::fs::read_to_string(scratch.path().join("out/samples.jsonl"));
    let samples = samples.unwrap_or_default();
    assert!(samples.contains(&format!("\"aged_workload\":\"{hash}\"")), "{samples} {message}");
    assert!(samples.contains(&format!("not aged by the workload {wrong}")), "{samples} {message}");
    let works_on = |name: &str| {
        let of = format!("\"target\":\"{name}\"");
        samples.lines().any(|line| line.contains("\"record\":\"sample\"") && line.contains(&of))
    };
    assert!(works_on("aged") && !works_on("other"), "{samples} {message}");
}

/// On kernel file systems the layout differs from run to run, but the tree is always the same.
#[test]
fn kernel_file_system_images_contain_the_workload_tree() {
    if Fresh::new(Kind::Xfs).is_none() {
        return;
    }
    let scratch = TempDir::new().unwrap();
    let workload = workload(&scratch, "4");
    let shown = works(&["age", "show", text(&workload)]);
    let output = scratch.path().join("aged.zst");
    works(&[
        "age",
        "image",
        "make",
        "-f",
        "xfs",
        "--size",
        "320MiB",
        "--data",
        "fallocate",
        "-t",
        "3",
        "-o",
        text(&output),
        text(&workload),
    ]);
    let info = works(&["age", "image", "info", text(&output)]);
    let tree = info.lines().find_map(|line| line.strip_prefix("tree: ")).unwrap();
    assert!(shown.contains(&format!("final tree: {tree}")), "{shown} {info}");
    assert!(info.contains("data: fallocate\n") && info.contains("no_space: 0\n"), "{info}");
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().map(|e| e.unwrap()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn scores_of_several_targets_are_drawn_in_one_chart() {
    let scratch = TempDir::new().unwrap();
    let workload = workload(&scratch, "8");
    let [image, engine, simulated, chart] = ["image", "engine.json", "simulated.json", "chart.svg"]
        .map(|name| scratch.path().join(name));
    works(&["ext2", "mkfs", text(&image), "96MiB"]);
    let target = format!("ext2:{}?policy=ffs", text(&image));
    let replay = ["age", "replay", "--json", "--score-every", "2", text(&workload), &target];
    std::fs::write(&engine, works(&replay)).unwrap();
    std::fs::write(&simulated, works(&["age", "simulate", "--json", text(&workload)])).unwrap();
    let named = format!("the engine={}", text(&engine));
    let told = works(&["age", "chart", "-o", text(&chart), &named, text(&simulated)]);
    assert!(told.starts_with("drew 5 curves in "), "{told}");
    let drawn = std::fs::read_to_string(&chart).unwrap();
    for name in ["the engine", "ffs smart, simulated", "ffs-noswitch dumb, simulated"] {
        assert!(drawn.contains(&format!(">{name}<")), "{name}: {drawn}");
    }
    assert_eq!(drawn.matches("<g class=\"t").count(), 5);
}

/// Ages a file system by a derived workload, whose short-lived files are drawn from a recording.
/// Then the scores over time and by size are available.
#[test]
fn recorded_workload_ages_a_tree_and_yields_scores_over_time() {
    let Some(fresh) = Fresh::new(Kind::Ext4) else { return };
    let scratch = TempDir::new().unwrap();
    let recorded = workload(&scratch, "6");
    let [tree, aged, snapshots] = ["tree", "aged", "snapshots"].map(|name| fresh.root().join(name));
    [&tree, &aged, &snapshots].iter().for_each(|path| std::fs::create_dir(path).unwrap());
    let [derived, told, chart, map] =
        ["derived", "told.json", "chart.svg", "map.svg"].map(|name| scratch.path().join(name));
    for (number, name) in ["first", "second"].iter().enumerate() {
        copy(&sources("src"), &tree.join(name));
        works(&["age", "snapshot", text(&tree), text(&snapshots.join(number.to_string()))]);
    }
    let from = ["--short-lived-from", text(&recorded)];
    works(&[&["age", "derive", "-o", text(&derived), text(&snapshots)], &from[..]].concat());
    let replayed = ["age", "replay", "--json", "--verify", "--score-every", "1"];
    let json = works(&[&replayed[..], &[text(&derived), text(&aged)]].concat());
    assert!(json.contains("\"verified\": true"), "{json}");
    // Both snapshots are from the first day, which has no score, so no day can be compared.
    std::fs::write(&told, json).unwrap();
    let last = snapshots.join("1");
    let verify = ["age", "verify", "--scores", text(&told), "--earlier", text(&snapshots)];
    let (code, answer) = run(&[&verify[..], &[text(&last), text(&last)]].concat());
    assert!(code == 3 && answer.contains("no day has a score in both"), "{code}: {answer}");
    let score = ["age", "score", "--chart", text(&chart), "--map", text(&map), text(&aged)];
    assert!(works(&score).contains("extents this large"));
    assert!(std::fs::read_to_string(&chart).unwrap().contains("Layout score by size of files"));
    assert!(std::fs::read_to_string(&map).unwrap().contains("dark cells contain files"));
}

#[test]
fn score_names_a_file_system_without_extents() {
    let Ok(scratch) = TempDir::new_in("/dev/shm") else { return };
    let file = scratch.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let (code, message) = run(&["age", "score", text(scratch.path())]);
    let expected = "its file system does not report the extents of files; use a directory on a \
                    disk file system, such as ext4, XFS or Btrfs\n";
    assert_eq!((code, message), (3, format!("fslab: {}: {expected}", file.display())));
}

#[test]
fn ageing_commands_name_invalid_input() {
    let scratch = TempDir::new().unwrap();
    let workload = workload(&scratch, "1");
    let [full, empty, text_file] = ["full", "empty", "text"].map(|name| scratch.path().join(name));
    std::fs::create_dir(&full).unwrap();
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(full.join("file"), "").unwrap();
    std::fs::write(&text_file, "no Parquet").unwrap();
    let output = scratch.path().join("output");
    for (arguments, code, message) in [
        (vec!["age", "replay", text(&workload), text(&full)], 3, "the target is not empty"),
        (vec!["age", "replay", text(&text_file), text(&empty)], 3, "text"),
        (vec!["age", "show", "/no/such"], 3, "/no/such"),
        (vec!["age", "profile", "nobody", "-o", text(&output)], 3, "no profile 'nobody'"),
        (vec!["age", "profile", "mail", "--set", "wrong=1", "-o", text(&output)], 3, "'wrong'"),
        (vec!["age", "profile", "mail", "--utilisation", "2", "-o", text(&output)], 3, "0.97"),
        (vec!["age", "simulate", "--profile", "mail", "--policy", "best"], 3, "ffs-noswitch"),
        (vec!["age", "simulate", "--profile", "mail", "--disk", "floppy"], 3, "--disk list"),
        (vec!["age", "derive", "-o", text(&output), text(&workload)], 3, "not a valid snapshot"),
        (vec!["age", "snapshot", "--repo", text(&empty), text(&output)], 3, "git"),
        (vec!["age", "snapshot", "--p9trace", text(&text_file), text(&empty)], 3, "at byte 0"),
        (vec!["age", "profile", "--geriatrix", text(&empty), "-o", text(&output)], 3, "age_dist"),
        (vec!["age", "image", "info", text(&text_file)], 3, "not a valid aged image"),
        (
            vec!["age", "image", "unpack", text(&text_file), text(&output)],
            3,
            "not a valid aged image",
        ),
        (vec!["age", "image", "make", "--policy", "best", text(&workload)], 3, "ffs-noswitch"),
        (vec!["age", "image", "make", "--policy", "ffs", text(&workload)], 3, "use -f ext2"),
        (vec!["age", "image", "make", "-f", "erofs", text(&workload)], 3, "so it can't be aged"),
        (
            vec!["age", "chart", "-o", text(&output), text(&text_file)],
            3,
            "not a JSON result of fslab age",
        ),
    ] {
        let (found, told) = run(&arguments);
        assert!(told.contains(message) && told.lines().count() == 1, "{arguments:?}: {told}");
        assert_eq!(found, code, "{arguments:?}: {told}");
    }
}

#[test]
fn a_profile_is_the_same_for_every_user() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        let test = "a_profile_is_the_same_for_every_user";
        return fslab_vfs_testing::skip::skip(test, "not root, so it can't run as another user");
    }
    let scratch = TempDir::new_in("/tmp").unwrap();
    let program = scratch.path().join("fslab");
    copy_program(env!("CARGO_BIN_EXE_fslab").as_ref(), &program);
    std::os::unix::fs::chown(scratch.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let [root, nobody] = [0, NOBODY].map(|user| {
        let output = scratch.path().join(user.to_string());
        let mut command = Command::new(&program);
        command.args(["age", "profile", "smith97", "--volume", "32MiB", "--days", "2", "-o"]);
        let done = command.arg(&output).uid(user).gid(user).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::read(output).unwrap()
    });
    assert!(root == nobody, "the files differ");
}
