//! Tests `fslab age` with changes of live trees: real builds and real package upgrades. A workload
//! is derived from snapshots of a tree. The replay of this workload on the same file system is
//! verified against the last snapshot.

use std::path::{Path, PathBuf};
use std::process::Command;

use fslab_sys::make_file_system::Kind;
use tempfile::TempDir;

use crate::aging::{Fresh, copy, sources, text, works};
use crate::support::run;

/// A tree on its own file system, and snapshots of it.
struct Churn {
    fresh: Fresh,
    tree: PathBuf,
    scratch: TempDir,
    snapshots: Vec<PathBuf>,
}

impl Churn {
    /// Makes a new file system with an empty tree. If this is impossible, reports a skip and
    /// returns `None`.
    fn new() -> Option<Self> {
        let fresh = Fresh::new(Kind::Ext4)?;
        let (tree, scratch) = (fresh.root().join("tree"), TempDir::new().unwrap());
        std::fs::create_dir(&tree).unwrap();
        Some(Self { fresh, tree, scratch, snapshots: Vec::new() })
    }

    /// Takes a snapshot of the current tree.
    fn capture(&mut self) {
        let path = self.scratch.path().join(format!("{}.parquet", self.snapshots.len()));
        works(&["age", "snapshot", "--extents", text(&self.tree), text(&path)]);
        self.snapshots.push(path);
    }

    /// Replays the workload of all snapshots into a directory next to the tree. `age verify` must
    /// find the result equal to the last snapshot, and different from the first. Returns the output
    /// of `derive`.
    #[track_caller]
    fn age_and_verify(&self) -> String {
        let [workload, replayed] =
            ["workload", "replayed"].map(|name| self.scratch.path().join(name));
        let aged = self.fresh.root().join("aged");
        std::fs::create_dir(&aged).unwrap();
        let snapshots = self.snapshots.iter().map(|path| text(path));
        let derive: Vec<_> = ["age", "derive", "-o", text(&workload)].into_iter().collect();
        let derived = works(&derive.into_iter().chain(snapshots).collect::<Vec<_>>());
        let told = works(&["age", "replay", "-t", "4", "--verify", text(&workload), text(&aged)]);
        assert!(told.contains("tree: equal to that of the workload"), "{told}");
        works(&["age", "snapshot", text(&aged), text(&replayed)]);
        let last = self.snapshots.last().unwrap();
        let told = works(&["age", "verify", text(last), text(&replayed)]);
        assert!(
            told.contains("near  files: ") && told.contains("near  bytes in files: "),
            "{told}"
        );
        let (code, told) = run(&["age", "verify", text(&self.snapshots[0]), text(&replayed)]);
        assert!(code == 1 && told.contains("too far from the reference"), "{told}");
        derived
    }
}

/// Returns the number after a word in the output of `derive`.
#[track_caller]
fn counted(derived: &str, word: &str) -> u64 {
    let (_, rest) = derived.split_once(&format!("{word} ")).unwrap();
    rest.split([',', '\n']).next().unwrap().parse().unwrap()
}

/// Runs a program, which must succeed. If it is not installed, prints a skip message and returns
/// `false`.
#[track_caller]
fn done(command: &mut Command, test: &str) -> bool {
    match command.output() {
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command:?}: {message}");
            true
        }
        Err(error) => {
            fslab_vfs_testing::skip::skip(test, &format!("{command:?}: {error}"));
            false
        }
    }
}

/// Returns a command that runs this test's cargo on another crate, without the settings of this
/// run.
fn cargo(crate_root: &Path, arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(crate_root).args(arguments).args(["--offline", "--quiet"]);
    for told in ["CARGO_TARGET_DIR", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        command.env_remove(told);
    }
    command.env("CARGO_INCREMENTAL", "1");
    command
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Writes a crate with these modules. A higher version makes them longer.
fn write_crate(root: &Path, modules: std::ops::Range<usize>, version: usize) {
    let manifest =
        "[package]\nname = \"churn\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    write(&root.join("Cargo.toml"), manifest);
    let listed: String = modules.clone().map(|module| format!("pub mod m{module};\n")).collect();
    write(&root.join("src/lib.rs"), &listed);
    for module in modules {
        let one =
            |number| format!("pub fn f{number}(x: u64) -> String {{ format!(\"{{}}\", x) }}\n");
        let functions: String = (0..=module % 4 + version).map(one).collect();
        write(&root.join(format!("src/m{module}.rs")), &functions);
    }
}

/// Builds five versions of a crate. The sources change, modules are added and removed, and cargo
/// creates, writes and removes its own files.
#[test]
fn churn_of_builds_is_captured_replayed_and_verified() {
    let Some(mut churn) = Churn::new() else { return };
    let root = churn.tree.join("crate");
    write_crate(&root, 0..6, 1);
    churn.capture();
    for (modules, version) in [(0..6, 1), (0..8, 2), (0..5, 2), (0..5, 3), (0..9, 4)] {
        for gone in modules.end..9 {
            let path = root.join(format!("src/m{gone}.rs"));
            if path.exists() {
                std::fs::remove_file(path).unwrap();
            }
        }
        write_crate(&root, modules, version);
        if !done(&mut cargo(&root, &["build"]), "fslab::aging_churn, builds") {
            return;
        }
        churn.capture();
    }
    let derived = churn.age_and_verify();
    for (word, least) in [("created", 60), ("deleted", 20), ("grown", 3), ("modified", 3)] {
        assert!(counted(&derived, word) >= least, "{word}: {derived}");
    }
}

/// Makes a Debian package of some of this project's sources.
#[track_caller]
fn package(scratch: &Path, name: &str, version: &str, parts: &[&str]) -> Option<PathBuf> {
    let root = scratch.join(format!("{name}-{version}"));
    let control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: a <a@localhost>\n\
         Description: a test\n"
    );
    write(&root.join("DEBIAN/control"), &control);
    write(&root.join("usr/share/doc").join(name).join("version"), &version.repeat(200));
    let shared = root.join("usr/share").join(name);
    std::fs::create_dir_all(&shared).unwrap();
    parts.iter().for_each(|part| copy(&sources(part), &shared));
    let output = scratch.join(format!("{name}-{version}.deb"));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zgzip", "--build"]).arg(&root).arg(&output);
    done(&mut build, "fslab::aging_churn, packages").then_some(output)
}

/// Returns dpkg with a separate root, so that this machine's packages do not change.
fn dpkg(root: &Path) -> Command {
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", root.display()));
    command.args(["--force-not-root", "--log=/dev/null", "--no-debsig"]);
    command.env("DEBIAN_FRONTEND", "noninteractive").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// dpkg installs, upgrades and removes packages in a separate root.
#[test]
fn churn_of_package_upgrades_is_captured_replayed_and_verified() {
    let Some(mut churn) = Churn::new() else { return };
    let scratch = TempDir::new().unwrap();
    let of = |name, version, parts: &[&str]| package(scratch.path(), name, version, parts);
    let Some(old) = of("one", "1.0", &["src"]) else { return };
    let Some(new) = of("one", "1.1", &["src/replay", "src/table", "tests"]) else { return };
    let Some(other) = of("two", "2.0", &["src/score", "testdata"]) else { return };
    let root = churn.tree.join("root");
    for directory in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    write(&root.join("var/lib/dpkg/status"), "");
    churn.capture();
    let install = |deb: &Path| done(dpkg(&root).arg("--install").arg(deb), "fslab::aging_churn");
    for deb in [&old, &other, &new] {
        if !install(deb) {
            return;
        }
        churn.capture();
    }
    assert!(done(dpkg(&root).args(["--purge", "two"]), "fslab::aging_churn"));
    churn.capture();
    assert!(root.join("usr/share/one/tests").exists() && !root.join("usr/share/two").exists());
    let derived = churn.age_and_verify();
    for (word, least) in [("created", 100), ("deleted", 50)] {
        assert!(counted(&derived, word) >= least, "{word}: {derived}");
    }
}
