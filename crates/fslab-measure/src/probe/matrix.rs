//! The prober against file systems of which the truth is known, made for it.

use std::fs::File;
use std::path::Path;

use fslab_sys::loop_device::{self, LoopDevice};
use fslab_sys::make_file_system::{self, Kind};
use fslab_sys::mounts::Mount;

use super::finding::Finding;
use super::ground::{Ground, Options};
use super::truth::{self, Truth, Verdict};
use super::{ATTRIBUTES, find};
use crate::error::{Error, Result};

/// One file system of the matrix.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// `None` for tmpfs.
    kind: Option<Kind>,
    /// Options of mkfs, separated by blanks.
    mkfs: &'static str,
    /// The device's read-ahead, where it is not left as it is.
    read_ahead_kib: Option<u64>,
    /// Whether the short matrix has it too.
    short: bool,
}

const fn cell(kind: Kind, mkfs: &'static str, short: bool) -> Cell {
    Cell { kind: Some(kind), mkfs, read_ahead_kib: None, short }
}

const fn with_read_ahead(kind: Kind, kib: u64, short: bool) -> Cell {
    Cell { kind: Some(kind), mkfs: "", read_ahead_kib: Some(kib), short }
}

/// The whole matrix.
pub const MATRIX: &[Cell] = &[
    cell(Kind::Ext2, "-b 1024", true),
    cell(Kind::Ext2, "-b 2048", false),
    cell(Kind::Ext2, "-b 4096", true),
    cell(Kind::Ext2, "-b 4096 -I 128", false),
    cell(Kind::Ext3, "-b 1024", false),
    cell(Kind::Ext3, "-b 2048", true),
    cell(Kind::Ext3, "-b 4096", false),
    cell(Kind::Ext4, "-b 1024", false),
    cell(Kind::Ext4, "-b 4096", true),
    cell(Kind::Ext4, "-b 1024 -O inline_data", false),
    cell(Kind::Ext4, "-b 4096 -O inline_data", true),
    cell(Kind::Ext4, "-b 4096 -I 512 -O inline_data", false),
    cell(Kind::Ext4, "-b 1024 -O ^extents,^64bit", false),
    cell(Kind::Ext4, "-b 4096 -O ^extents,^64bit", true),
    cell(Kind::Ext4, "-b 1024 -O bigalloc", false),
    cell(Kind::Ext4, "-b 4096 -O bigalloc", true),
    cell(Kind::Xfs, "-b size=1024", true),
    cell(Kind::Xfs, "-b size=2048", false),
    cell(Kind::Xfs, "-b size=4096", true),
    cell(Kind::Xfs, "-b size=4096 -i size=1024", false),
    cell(Kind::Xfs, "-b size=4096 -i size=2048", false),
    cell(Kind::Btrfs, "", true),
    Cell { kind: None, mkfs: "", read_ahead_kib: None, short: true },
    with_read_ahead(Kind::Ext4, 0, true),
    with_read_ahead(Kind::Ext4, 16, false),
    with_read_ahead(Kind::Ext4, 128, true),
    with_read_ahead(Kind::Ext4, 512, false),
    with_read_ahead(Kind::Xfs, 0, false),
    with_read_ahead(Kind::Xfs, 16, false),
    with_read_ahead(Kind::Xfs, 128, false),
    with_read_ahead(Kind::Xfs, 512, false),
    with_read_ahead(Kind::Btrfs, 16, false),
];

/// Large enough for every file system of the matrix (XFS wants 300 MB) and the prober's files.
const IMAGE_SIZE: u64 = 1 << 30;

impl Cell {
    /// Whether the short matrix has it.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.short
    }

    /// The file system and how it was made.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = self.kind.map_or("tmpfs", Kind::name).to_owned();
        if !self.mkfs.is_empty() {
            name = format!("{name} {}", self.mkfs);
        }
        match self.read_ahead_kib {
            Some(kib) => format!("{name}, read-ahead {kib} KiB"),
            None => name,
        }
    }

    /// Makes the file system on an image in a directory, probes it and judges the answers.
    ///
    /// # Errors
    /// Where the file system can't be made or mounted: for want of privileges or tools.
    pub fn verify(&self, work_directory: &Path) -> Result<Vec<Judged>> {
        let directory = tempfile::Builder::new()
            .prefix("fslab-probe-")
            .tempdir_in(work_directory)
            .map_err(Error::file(work_directory))?;
        let mountpoint = directory.path().join("mounted");
        std::fs::create_dir(&mountpoint).map_err(Error::file(&mountpoint))?;
        let Some(kind) = self.kind else {
            let size = format!("size={IMAGE_SIZE}");
            let _mount = Mount::new(Path::new("fslab"), &mountpoint, "tmpfs", &size)?;
            return judge(&mountpoint);
        };
        let image = directory.path().join("image");
        let file = File::create_new(&image).map_err(Error::file(&image))?;
        file.set_len(IMAGE_SIZE).map_err(Error::file(&image))?;
        let options: Vec<String> = self.mkfs.split_whitespace().map(str::to_owned).collect();
        make_file_system::make(kind, &image, &options)?;
        let device = LoopDevice::attach(&image, loop_device::Options::default())?;
        if let Some(kib) = self.read_ahead_kib {
            let file = device.device_number().sysfs("bdi/read_ahead_kb");
            std::fs::write(&file, kib.to_string()).map_err(Error::file(&file))?;
        }
        let _mount = Mount::new(device.path(), &mountpoint, kind.name(), "")?;
        judge(&mountpoint)
    }
}

/// An answer of the prober's, beside the truth.
#[derive(Debug)]
pub struct Judged {
    /// The attribute.
    pub attribute: &'static str,
    /// What was found.
    pub finding: Finding,
    /// What is so.
    pub truth: Truth,
    /// How the two compare.
    pub verdict: Verdict,
}

/// Probes a directory and judges every answer of which the truth is known.
///
/// # Errors
/// Where the directory can't be used.
pub fn judge(directory: &Path) -> Result<Vec<Judged>> {
    let truths = truth::read(directory).map_err(Error::file(directory))?;
    let ground = Ground::prepare(directory, Options::default())?;
    let mut judged = Vec::new();
    for attribute in ATTRIBUTES {
        let Some(truth) = truths.get(attribute.name) else { continue };
        let finding = find(attribute, &ground).finding;
        let verdict = truth.judge(&finding);
        judged.push(Judged { attribute: attribute.name, finding, truth: truth.clone(), verdict });
    }
    ground.clear()?;
    Ok(judged)
}
