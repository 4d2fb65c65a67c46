//! Images in memory and in files, and the results of external tools.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use fslab_ext2::check::{Repaired, Report, check, repair};
use fslab_ext2::{BlockSize, Ext2, MkfsOptions, VolumeOptions, mkfs};
use fslab_vfs::{BlockDevice, Errno, FileDevice, Ino, MemoryDevice, Timestamp};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::overtaking::Verdict;
use rustix::process::{Resource, Rlimit, setrlimit};
use tempfile::TempDir;

/// A time that is in the past on every machine that runs the tests.
pub const NOW: Timestamp = Timestamp { seconds: 1_600_000_000, nanoseconds: 0 };

pub fn options(block_bytes: u32) -> MkfsOptions {
    MkfsOptions {
        block_size: BlockSize::new(block_bytes).unwrap(),
        simulation: block_bytes > 4096,
        now: NOW,
        bytes_per_inode: 8192,
        ..MkfsOptions::default()
    }
}

pub fn in_memory(bytes: u64, options: &MkfsOptions) -> Ext2 {
    let device = Arc::new(MemoryDevice::new(bytes));
    mkfs(&*device, options).unwrap();
    Ext2::open(device, VolumeOptions::default()).unwrap()
}

/// Name of the environment variable that is set in a child process with limited memory.
const BOUNDED: &str = "FSLAB_EXT2_BOUNDED";

/// Runs a test again in a child process limited to `bytes` of memory. Returns `false` in that
/// process.
pub fn ran_within(bytes: u64, test: &str) -> bool {
    if std::env::var_os(BOUNDED).is_some() {
        let bound = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        setrlimit(Resource::Data, bound).unwrap();
        return false;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(BOUNDED, "1");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    // Without this check, a misspelt test name would pass.
    let is_passed = output.status.success() && said.contains("1 passed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(is_passed, "{test} within {bytes} bytes: {}\n{errors}", output.status);
    true
}

pub enum Access<'a> {
    DataRead,
    Write { offset: u64, bytes: &'a [u8], is_metadata: bool },
    Discard { offset: u64, length: u64 },
    Flush,
}

/// Receives each request to a device before it is executed, and may refuse or skip it.
pub trait Watch: Send + Sync {
    fn see(&self, access: Access<'_>) -> fslab_vfs::Result<Verdict>;
}

pub struct Watched<W> {
    pub memory: MemoryDevice,
    pub watch: W,
}

impl<W: Watch> BlockDevice for Watched<W> {
    fn size(&self) -> u64 {
        self.memory.size()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> fslab_vfs::Result<()> {
        self.memory.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> fslab_vfs::Result<()> {
        match self.watch.see(Access::Write { offset, bytes, is_metadata: true })? {
            Verdict::Do => self.memory.write_at(offset, bytes),
            Verdict::Skip => Ok(()),
        }
    }
    fn read_data_at(&self, offset: u64, buffer: &mut [u8]) -> fslab_vfs::Result<()> {
        self.watch.see(Access::DataRead)?;
        self.memory.read_at(offset, buffer)
    }
    fn write_data_at(&self, offset: u64, bytes: &[u8]) -> fslab_vfs::Result<()> {
        match self.watch.see(Access::Write { offset, bytes, is_metadata: false })? {
            Verdict::Do => self.memory.write_at(offset, bytes),
            Verdict::Skip => Ok(()),
        }
    }
    fn discard(&self, offset: u64, length: u64) -> fslab_vfs::Result<()> {
        match self.watch.see(Access::Discard { offset, length })? {
            Verdict::Do => self.memory.discard(offset, length),
            Verdict::Skip => Ok(()),
        }
    }
    fn flush(&self) -> fslab_vfs::Result<()> {
        self.watch.see(Access::Flush)?;
        self.memory.flush()
    }
}

/// A device in memory that fails with `EIO` on demand.
pub type FaultyDevice = Watched<Faults>;

/// For each [`Fault`], the number of requests that still succeed; negative if none fails.
pub struct Faults([AtomicI64; 3]);

#[derive(Clone, Copy)]
pub enum Fault {
    /// Reading file content.
    DataRead,
    /// Writing metadata.
    Write,
    /// Flushing.
    Flush,
}

impl FaultyDevice {
    /// Makes a device with a new file system.
    pub fn new(bytes: u64, options: &MkfsOptions) -> Arc<Self> {
        let memory = MemoryDevice::new(bytes);
        mkfs(&memory, options).unwrap();
        Arc::new(Self { memory, watch: Faults(std::array::from_fn(|_| AtomicI64::new(-1))) })
    }

    pub fn open(self: &Arc<Self>, options: VolumeOptions) -> Ext2 {
        Ext2::open(Arc::clone(self) as Arc<dyn BlockDevice>, options).unwrap()
    }

    /// Makes requests of a kind fail after `times` more successes.
    pub fn fail_after(&self, fault: Fault, times: i64) {
        self.watch.0[fault as usize].store(times, Ordering::Relaxed);
    }

    /// Makes requests of a kind succeed again.
    pub fn mend(&self, fault: Fault) {
        self.fail_after(fault, -1);
    }
}

impl Watch for Faults {
    fn see(&self, access: Access<'_>) -> fslab_vfs::Result<Verdict> {
        let fault = match access {
            Access::DataRead => Fault::DataRead,
            Access::Write { is_metadata: true, .. } => Fault::Write,
            Access::Flush => Fault::Flush,
            _ => return Ok(Verdict::Do),
        };
        let left = &self.0[fault as usize];
        match left.load(Ordering::Relaxed) {
            0 => Err(Errno::IO.into()),
            times => {
                left.store(times.saturating_sub(1).max(-1), Ordering::Relaxed);
                Ok(Verdict::Do)
            }
        }
    }
}

/// An image in a temporary file, deleted on drop.
pub struct Image {
    directory: TempDir,
}

impl Image {
    /// Makes a file of this size that contains only a hole.
    pub fn empty(bytes: u64) -> Self {
        let directory = TempDir::new_in("/tmp").unwrap();
        std::fs::File::create(directory.path().join("image")).unwrap().set_len(bytes).unwrap();
        Self { directory }
    }

    pub fn new(bytes: u64, options: &MkfsOptions) -> Self {
        let image = Self::empty(bytes);
        mkfs(&image.device(), options).unwrap();
        image
    }

    pub fn of_mke2fs(bytes: u64, arguments: &[&str]) -> Self {
        let image = Self::empty(bytes);
        let mut command = Command::new("mke2fs");
        let output = command.args(["-q", "-F"]).args(arguments).arg(image.path()).output().unwrap();
        assert!(output.status.success(), "mke2fs {arguments:?}: {output:?}");
        image
    }

    /// Runs debugfs requests that change the image.
    pub fn debugfs(&self, requests: &[&str]) {
        for request in requests {
            let mut command = Command::new("debugfs");
            let output = command.args(["-w", "-R", request]).arg(self.path()).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            // The first line contains the version of debugfs.
            assert!(errors.lines().count() <= 1, "debugfs {request}: {errors}");
        }
    }

    /// Writes bytes at an offset of an inode in group 0, while the image is not in use.
    pub fn set_in_inode(&self, ino: Ino, at: u64, bytes: &[u8]) {
        let ext2 = self.open_with(VolumeOptions { read_only: true, ..VolumeOptions::default() });
        let geometry = *ext2.superblock().geometry();
        let table = geometry.offset_of(ext2.groups()[0].inode_table);
        let index = ino.0 - 1;
        assert!(index < u64::from(geometry.inodes_per_group), "of group 0");
        let place = table + index * u64::from(geometry.inode_size) + at;
        self.device().write_at(place, bytes).unwrap();
    }

    /// Returns whether e2fsck reports the image as clean, and its output.
    pub fn e2fsck(&self) -> (bool, String) {
        let mut command = Command::new("e2fsck");
        let output = command.args(["-fn", "-E", "inode_count_fullmap"]).arg(self.path()).output();
        let output = output.unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs fslab's own check.
    #[track_caller]
    pub fn report(&self) -> Report {
        check(Arc::new(self.device()) as Arc<dyn BlockDevice>).unwrap()
    }

    /// Repairs the image. Asserts that no problem is left and that e2fsck finds the image clean.
    #[track_caller]
    pub fn repair_whole(&self) {
        let left = self.repair().left.findings;
        assert!(left.is_empty(), "{:?}", left.first());
        self.check("repaired");
    }

    /// Runs fslab's own repair.
    #[track_caller]
    pub fn repair(&self) -> Repaired {
        repair(&(Arc::new(self.device()) as Arc<dyn BlockDevice>), NOW).unwrap()
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    pub fn device(&self) -> FileDevice {
        let file = std::fs::File::options().read(true).write(true).open(self.path());
        FileDevice::from_file(file.unwrap()).unwrap()
    }

    pub fn open(&self) -> Ext2 {
        self.open_with(VolumeOptions::default())
    }

    pub fn open_with(&self, options: VolumeOptions) -> Ext2 {
        Ext2::open(Arc::new(self.device()) as Arc<dyn BlockDevice>, options).unwrap()
    }

    /// Asserts that e2fsck finds no problem.
    #[track_caller]
    pub fn check(&self, when: &str) {
        let (clean, text) = self.e2fsck();
        if !clean {
            self.keep(when);
        }
        assert!(clean, "{when}: e2fsck: {text}");
    }

    /// Keeps a copy of a failing image if `FSLAB_KEEP_IMAGE` is set.
    pub fn keep(&self, when: &str) {
        if let Some(target) = std::env::var_os("FSLAB_KEEP_IMAGE") {
            std::fs::copy(self.path(), &target).unwrap();
            eprintln!("{when}: image kept as {}", Path::new(&target).display());
        }
    }
}

/// Whether all tools of e2fsprogs used by the tests are installed; reports a skip if not.
pub fn has_e2fsprogs() -> bool {
    ["mke2fs", "e2fsck", "debugfs"].into_iter().all(has)
}

/// Whether a tool is installed; reports a skip if not.
pub fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok() || {
        fslab_vfs_testing::skip::skip("images", &format!("no {tool} here"));
        false
    }
}

/// Makes one file of each kind that is neither a regular file nor a directory, and adds a link and
/// attributes to `file`.
pub fn add_every_kind(client: &Client<'_>, directory: Ino, file: Ino) {
    client.link(file, Ino::ROOT, "link").unwrap();
    client.symlink(directory, "fast", "target").unwrap();
    client.symlink(directory, "slow", "t".repeat(200)).unwrap();
    client.setxattr(file, "user.small", b"value").unwrap();
    client.setxattr(file, "user.block", &[1; 400]).unwrap();
    client.mknod(directory, "pipe", 0o010_644, 0).unwrap();
    client.mknod(directory, "null", 0o020_666, 0x103).unwrap();
}
