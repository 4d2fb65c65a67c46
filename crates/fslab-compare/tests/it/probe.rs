//! Tests of the prober on file systems with known properties. Layers, leaves and memory limits are
//! tested in the tests of the program `fslab`, because they need another process.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fslab_probe::matrix::{How, Judged, native};
use fslab_probe::truth::{self, Truth, Verdict};
use fslab_probe::{ATTRIBUTES, Ground, Options, Value, find};
use fslab_sys::loop_device::{self, LoopDevice};
use fslab_sys::make_file_system::{self, Kind};
use fslab_sys::mounts::Mount;
use fslab_sys::page_cache::{cachestat, mincore};
use fslab_sys::signals::Interrupt;
use tempfile::TempDir;

use super::support::{TestHost, can_mount};

#[test]
fn answers_are_right_or_not_applicable_on_the_short_matrix() {
    if !can_mount("answers_are_right_or_not_applicable_on_the_short_matrix") {
        return;
    }
    let directory = fast_directory();
    let how = How {
        work_directory: &directory,
        fast_directory: &directory,
        host: &TestHost,
        options: Options::default(),
        timing: None,
        interrupt: &Interrupt::default(),
    };
    let mut wrong = String::new();
    for cell in native().iter().filter(|cell| cell.short && cell.memory_mib.is_none()) {
        // Answers that depend on the disk are disturbed when another process calls sync(2), as
        // comparisons in parallel tests do. So an answer must be wrong twice to fail the test.
        let verify = || cell.verify(&how).unwrap();
        let is_right = |all: &[Judged]| all.iter().all(|one| one.verdict == Verdict::Right);
        let judged = Some(verify()).filter(|all| is_right(all)).unwrap_or_else(verify);
        for judged in judged {
            if judged.verdict != Verdict::Right {
                writeln!(
                    wrong,
                    "{}: {}: {:?}, found {:?}, is {:?}",
                    cell.name(),
                    judged.attribute,
                    judged.verdict,
                    judged.finding.answer,
                    judged.truth
                )
                .unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Returns a directory in memory, or the directory for temporary files if there is none.
fn fast_directory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// A mounted file system on an image. The fields are dropped in this order: mount, loop device,
/// directory.
struct Made {
    _mount: Mount,
    device: LoopDevice,
    directory: TempDir,
}

impl Made {
    fn new(kind: Kind, mkfs: &[&str]) -> Self {
        let directory = tempfile::tempdir_in(fast_directory()).unwrap();
        let (image, place) = (directory.path().join("image"), directory.path().join("mounted"));
        File::create_new(&image).unwrap().set_len(1 << 30).unwrap();
        let options: Vec<String> = mkfs.iter().map(|option| (*option).to_owned()).collect();
        make_file_system::make(kind, &image, &options).unwrap();
        let device = LoopDevice::attach(&image, loop_device::Options::default()).unwrap();
        fs::create_dir(&place).unwrap();
        let mount = Mount::new(device.path(), &place, kind.name(), "").unwrap();
        Self { _mount: mount, device, directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }
}

/// Returns the measured value of one attribute.
#[track_caller]
fn found(directory: &Path, name: &str) -> Result<Value, String> {
    let ground = Ground::prepare(directory, Options::default()).unwrap();
    let attribute = ATTRIBUTES.iter().find(|attribute| attribute.name == name).unwrap();
    let finding = find(attribute, &ground, None).finding;
    ground.clear().unwrap();
    finding.answer.map(|(value, _)| value)
}

/// On XFS, `st_blksize` is always 4096, so it does not show the block size.
#[test]
fn xfs_block_size_differs_from_st_blksize() {
    if !can_mount("xfs_block_size_differs_from_st_blksize") {
        return;
    }
    let xfs = Made::new(Kind::Xfs, &["-b", "size=1024"]);
    assert_eq!(fs::metadata(xfs.path()).unwrap().blksize(), 4096, "the trap is there");
    assert_eq!(found(&xfs.path(), "block-size"), Ok(Value::Bytes(1024)));
}

/// Btrfs chooses its read-ahead itself, independent of the setting of its device.
#[test]
fn btrfs_read_ahead_is_independent_of_its_device() {
    if !can_mount("btrfs_read_ahead_is_independent_of_its_device") {
        return;
    }
    let btrfs = Made::new(Kind::Btrfs, &[]);
    let setting = btrfs.device.device_number().sysfs("bdi/read_ahead_kb");
    fs::write(&setting, "16").unwrap();
    let Ok(Value::Bytes(window)) = found(&btrfs.path(), "read-ahead-max") else {
        panic!("no window was found");
    };
    assert_ne!(window, 16 << 10);
    let truths = truth::read(&btrfs.path()).unwrap();
    assert_eq!(truths["read-ahead-max"], Truth::Is(Value::Bytes(window)));
}

/// Checks that the prober can query which pages are cached without reading them in. A read with
/// RWF_NOWAIT is not such a query, because it starts read-ahead.
#[test]
fn querying_cached_pages_starts_no_read_ahead() {
    if !can_mount("querying_cached_pages_starts_no_read_ahead") {
        return;
    }
    const LENGTH: u64 = 1 << 20;
    let ext4 = Made::new(Kind::Ext4, &[]);
    let path = ext4.path().join("file");
    fs::write(&path, vec![7; LENGTH as usize]).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    for _ in 0..3 {
        assert_eq!(mincore(&file, LENGTH).unwrap(), 0, "looking brings nothing in");
        assert_eq!(cachestat(&file, 0).unwrap().cached, 0);
    }
    let mut buffer = [0; 4096];
    let slices = &mut [std::io::IoSliceMut::new(&mut buffer)];
    let asked = rustix::io::preadv2(&file, slices, 0, rustix::io::ReadWriteFlags::NOWAIT);
    if asked.is_err() {
        // The failed read reports that nothing is cached, but starts read-ahead.
        let brought = cachestat(&file, 0).unwrap().cached;
        assert!(brought > 0, "RWF_NOWAIT read nothing in, so the test proves nothing");
    }
}

/// mincore(2) reports all pages as resident if a process may only read a file. The prober therefore
/// examines only its own files.
#[test]
fn mincore_reports_all_pages_of_foreign_files_as_resident() {
    if !can_mount("mincore_reports_all_pages_of_foreign_files_as_resident") {
        return;
    }
    // The file must be on a disk, because all pages of a file on tmpfs are resident. The other user
    // inherits an open descriptor, so it needs no access to the path.
    let file = tempfile::NamedTempFile::new_in(".").unwrap();
    fs::write(file.path(), vec![7; FOREIGN_PAGES * 4096]).unwrap();
    let own = File::open(file.path()).unwrap();
    own.sync_all().unwrap();
    rustix::fs::fadvise(&own, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert_eq!(mincore(&own, FOREIGN_PAGES as u64 * 4096).unwrap(), 0, "root may look");
    // Copies this program to a path that every user can reach. Another process makes the copy,
    // because the kernel does not execute a file that is open for writing. Children of parallel
    // tests could inherit such a descriptor from this process.
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let copy = directory.path().join("test");
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status();
    assert!(copied.unwrap().success());
    let output = Command::new(&copy)
        .args(["--exact", "--nocapture", "probe::looks_at_a_foreign_file"])
        .env(FOREIGN, "1")
        .stdin(own)
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("resident: 64"), "{text}");
}

const FOREIGN_PAGES: usize = 64;

/// If this variable is set, standard input is a file of another user.
const FOREIGN: &str = "FSLAB_TEST_FOREIGN";

/// Prints the number of resident pages of standard input, if the test above has started this
/// process.
#[test]
fn looks_at_a_foreign_file() {
    if std::env::var_os(FOREIGN).is_none() {
        return;
    }
    let file = File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    println!("resident: {}", mincore(&file, FOREIGN_PAGES as u64 * 4096).unwrap());
}
