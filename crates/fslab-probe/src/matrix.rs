//! Verifies the prober on file systems that are made for this purpose, so that the true values are
//! known.

mod stage;

use std::path::Path;

use fslab_sys::make_file_system::Kind;
use fslab_sys::memory_bound::MemoryBound;
use fslab_sys::signals::Interrupt;

use super::finding::{Finding, Method};
use super::ground::{Ground, Options};
use super::timing::{self, Timing};
use super::truth::{self, Truth, Truths, Verdict};
use super::{ATTRIBUTES, find};
use fslab_compare::{Error, Host, Result};

pub(super) use stage::Stage;

/// One file system of the matrix.
#[derive(Clone, Debug)]
#[must_use]
pub struct Cell {
    base: Base,
    mount_options: &'static str,
    top: Top,
    /// The device's read-ahead in KiB, if the cell sets it.
    read_ahead_kib: Option<u64>,
    /// The memory limit of the prober in MiB, if there is one.
    pub memory_mib: Option<u64>,
    /// Attributes that are skipped because they would take too long.
    without: &'static [&'static str],
    /// Whether the short matrix contains this cell.
    pub short: bool,
}

#[derive(Clone, Copy, Debug)]
enum Base {
    /// A file system on an image. The options of mkfs are separated by spaces.
    Image { kind: Kind, mkfs: &'static str },
    /// tmpfs.
    Memory,
}

/// A mount over the base file system, or in place of the kernel's mount of it. The prober then
/// examines this mount. The host defines the names of layers and leaves.
#[derive(Clone, Debug)]
enum Top {
    /// Nothing: the base file system itself is probed.
    Nothing,
    /// An overlay over the base file system.
    Overlay,
    /// Layers over the base file system. If `transparent`, they pass requests on; otherwise they
    /// store files in another format.
    Layers { layers: &'static [&'static str], transparent: bool },
    /// The image of the base file system, served by the host's leaf `scheme`. `options` follow the
    /// image's name.
    Image { scheme: &'static str, options: String },
}

impl Cell {
    /// Makes a file system on an image.
    pub const fn image(kind: Kind, mkfs: &'static str) -> Self {
        Self {
            base: Base::Image { kind, mkfs },
            mount_options: "",
            top: Top::Nothing,
            read_ahead_kib: None,
            memory_mib: None,
            without: &[],
            short: false,
        }
    }

    /// Adds the cell to the short matrix.
    pub fn in_short(self) -> Self {
        Self { short: true, ..self }
    }

    /// Puts layers that pass requests on over the file system. The first layer is the top one.
    pub fn under(self, layers: &'static [&'static str]) -> Self {
        Self { top: Top::Layers { layers, transparent: true }, ..self }
    }

    /// Puts layers that store files in another format over the file system. The first layer is the
    /// top one.
    pub fn transformed_by(self, layers: &'static [&'static str]) -> Self {
        Self { top: Top::Layers { layers, transparent: false }, ..self }
    }

    /// Serves the image by a leaf of the host instead of mounting it in the kernel.
    pub fn served_by(self, scheme: &'static str, options: String) -> Self {
        Self { top: Top::Image { scheme, options }, ..self }
    }

    /// Skips attributes that would take too long on this file system.
    pub fn without(self, without: &'static [&'static str]) -> Self {
        Self { without, ..self }
    }

    pub(super) fn read_ahead(self, kib: u64) -> Self {
        Self { read_ahead_kib: Some(kib), ..self }
    }

    /// Returns the name of the cell: the file system, with the options and mounts that it is made
    /// with.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = match self.base {
            Base::Image { kind, mkfs: "" } => kind.name().to_owned(),
            Base::Image { kind, mkfs } => format!("{} {mkfs}", kind.name()),
            Base::Memory => "tmpfs".to_owned(),
        };
        if !self.mount_options.is_empty() {
            name = format!("{name}, -o {}", self.mount_options);
        }
        name = match &self.top {
            Top::Nothing => name,
            Top::Overlay => format!("overlay on {name}"),
            Top::Layers { layers, .. } => format!("{} on {name}", layers.join(" / ")),
            Top::Image { scheme, options } => format!("{scheme}IMAGE{options} on {name}"),
        };
        match (self.read_ahead_kib, self.memory_mib) {
            (Some(kib), _) => format!("{name}, read-ahead {kib} KiB"),
            (None, Some(mib)) => format!("{name}, memory {mib} MiB"),
            (None, None) => name,
        }
    }

    /// Makes the cell's file system, probes it and judges the answers.
    ///
    /// # Errors
    /// Fails if the file system can't be made or mounted, for lack of privileges or tools.
    pub fn verify(&self, how: &How<'_>) -> Result<Vec<Judged>> {
        let directory =
            if self.memory_mib.is_some() { how.work_directory } else { how.fast_directory };
        let stage = Stage::make(self, directory, how.host)?;
        let truths = self.truths(&stage, how.options.bound_memory)?;
        let options = Options {
            // The memory limit is found only if it is smaller than a file of half the budget.
            budget: self.memory_mib.map_or(Options::default().budget, |mib| (4 * mib) << 20),
            ..how.options
        };
        let remount = || stage.remount().map_err(std::io::Error::other);
        let timing = how.timing.map(|timing| Timing {
            make_cold: stage.can_remount().then_some(&remount as &dyn Fn() -> _),
            ..timing
        });
        // The memory limit begins only after the file system was made and mounted.
        let bound = self.memory_mib.map(|mib| MemoryBound::enter(mib << 20)).transpose()?;
        let judged = judge_by(&stage.path(), options, &truths, timing.as_ref(), how.interrupt);
        bound.map(MemoryBound::leave).transpose()?;
        judged
    }

    /// Returns the true values of the attributes that this cell tests.
    fn truths(&self, stage: &Stage, bound_memory: bool) -> Result<Truths> {
        let (path, below) = (stage.path(), stage.lower());
        let read = match &self.top {
            Top::Nothing => truth::read(&path),
            Top::Overlay => truth::of_overlay(&path, &below),
            Top::Layers { transparent, .. } => truth::of_layers(&path, &below, *transparent),
            Top::Image { .. } => truth::of_image(&path, &stage.image()),
        };
        let mut truths = read.map_err(Error::file(&path))?;
        let on_device = matches!((&self.top, self.base), (Top::Nothing, Base::Image { .. }));
        if bound_memory && on_device {
            truths.extend(truth::of_replacement().map(|truth| ("cache-replacement", truth)));
        }
        if let Some(mib) = self.memory_mib {
            truths = truth::of_memory(mib << 20);
        } else if self.read_ahead_kib.is_some() {
            // This cell tests only read-ahead; other cells test the other attributes.
            truths.retain(|name, _| name.starts_with("read-ahead"));
        }
        truths.retain(|name, _| !self.without.contains(name));
        Ok(truths)
    }
}

/// The settings of a verification.
#[derive(Clone, Copy)]
pub struct How<'a> {
    /// The directory for images.
    pub work_directory: &'a Path,
    /// The directory for images of cells without a memory limit. It may be on tmpfs, which is
    /// faster but would count towards a limit.
    pub fast_directory: &'a Path,
    /// The host, which mounts layers.
    pub host: &'a dyn Host,
    /// Limits and permissions of the prober.
    pub options: Options,
    /// The clock and settings for timing, if requested.
    pub timing: Option<Timing<'a>>,
    /// Interrupts the verification. It is checked between attributes.
    pub interrupt: &'a Interrupt,
}

/// Returns the matrix of file systems that the kernel mounts.
#[must_use]
pub fn native() -> Vec<Cell> {
    let mut cells = vec![
        Cell::image(Kind::Ext2, "-b 1024").in_short(),
        Cell::image(Kind::Ext2, "-b 2048"),
        Cell::image(Kind::Ext2, "-b 4096").in_short(),
        Cell::image(Kind::Ext2, "-b 4096 -I 128"),
        // Names are searched linearly, so tens of thousands of links would take long.
        Cell::image(Kind::Ext2, "-b 4096 -O ^dir_index").without(&["links-max"]).in_short(),
        Cell::image(Kind::Ext3, "-b 1024"),
        Cell::image(Kind::Ext3, "-b 2048").in_short(),
        Cell::image(Kind::Ext3, "-b 4096"),
        Cell::image(Kind::Ext4, "-b 1024"),
        Cell::image(Kind::Ext4, "-b 4096").in_short(),
        Cell { mount_options: "data=journal", ..Cell::image(Kind::Ext4, "-b 4096") },
        Cell::image(Kind::Ext4, "-b 4096 -O ^has_journal"),
        Cell::image(Kind::Ext4, "-b 4096 -O fast_commit"),
        Cell::image(Kind::Ext4, "-b 1024 -O inline_data"),
        Cell::image(Kind::Ext4, "-b 4096 -O inline_data").in_short(),
        Cell::image(Kind::Ext4, "-b 4096 -I 512 -O inline_data"),
        Cell::image(Kind::Ext4, "-b 1024 -O ^extents,^64bit"),
        Cell::image(Kind::Ext4, "-b 4096 -O ^extents,^64bit").in_short(),
        Cell::image(Kind::Ext4, "-b 1024 -O bigalloc"),
        Cell::image(Kind::Ext4, "-b 4096 -O bigalloc").in_short(),
        Cell::image(Kind::Xfs, "-b size=1024").in_short(),
        Cell::image(Kind::Xfs, "-b size=2048"),
        Cell::image(Kind::Xfs, "-b size=4096").in_short(),
        Cell::image(Kind::Xfs, "-b size=4096 -i size=1024"),
        Cell::image(Kind::Xfs, "-b size=4096 -i size=2048"),
        Cell::image(Kind::Btrfs, "").in_short(),
        Cell { base: Base::Memory, ..Cell::image(Kind::Ext4, "") }.in_short(),
        Cell { top: Top::Overlay, ..Cell::image(Kind::Ext4, "-b 4096") }.in_short(),
    ];
    for (kind, windows) in [
        (Kind::Ext4, &[0, 16, 128, 512][..]),
        (Kind::Xfs, &[0, 16, 128, 512]),
        (Kind::Btrfs, &[16]),
    ] {
        for kib in windows {
            let cell = Cell::image(kind, "").read_ahead(*kib);
            let short = kind == Kind::Ext4 && *kib % 128 == 0 && *kib < 512;
            cells.push(Cell { short, ..cell });
        }
    }
    for kind in [Kind::Ext4, Kind::Xfs, Kind::Btrfs] {
        let bounded = |mib| Cell { memory_mib: Some(mib), ..Cell::image(kind, "") };
        cells.extend([40, 80].map(bounded));
    }
    for cell in &mut cells {
        cell.short |= cell.name() == "ext4, memory 40 MiB";
    }
    cells
}

/// An answer of the prober, with the true value and a verdict.
#[derive(Debug)]
pub struct Judged {
    /// The attribute.
    pub attribute: &'static str,
    /// The result of counting.
    pub finding: Finding,
    /// The result of timing, if requested.
    pub timing: Option<Method>,
    /// The true value.
    pub truth: Truth,
    /// The verdict on counting.
    pub verdict: Verdict,
}

impl Judged {
    /// Returns the verdict on timing. It is never [`Verdict::Wrong`] if timing found no value.
    #[must_use]
    pub fn timing_verdict(&self) -> Option<Verdict> {
        let timed = self.timing.as_ref()?;
        Some(self.truth.judge(&Finding::by(timed.clone())))
    }
}

/// Probes a directory and judges every answer whose true value is known.
///
/// # Errors
/// Fails if the directory can't be used.
pub fn judge(
    directory: &Path,
    options: Options,
    timing: Option<&Timing<'_>>,
    interrupt: &Interrupt,
) -> Result<Vec<Judged>> {
    let truths = truth::read(directory).map_err(Error::file(directory))?;
    judge_by(directory, options, &truths, timing, interrupt)
}

fn judge_by(
    directory: &Path,
    options: Options,
    truths: &Truths,
    timing: Option<&Timing<'_>>,
    interrupt: &Interrupt,
) -> Result<Vec<Judged>> {
    let ground = Ground::prepare(directory, options)?;
    let mut judged = Vec::new();
    for attribute in ATTRIBUTES {
        let Some(truth) = truths.get(attribute.name) else { continue };
        if interrupt.is_raised() {
            return Err(Error::Interrupted);
        }
        let finding = find(attribute, &ground, None).finding;
        let timed = timing.and_then(|timing| timing::time(attribute.name, &ground, timing));
        let verdict = truth.judge(&finding);
        judged.push(Judged {
            attribute: attribute.name,
            finding,
            timing: timed,
            truth: truth.clone(),
            verdict,
        });
    }
    ground.clear()?;
    Ok(judged)
}
