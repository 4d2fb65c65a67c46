//! Runs the benchmarks of Smith and Seltzer's slides (1997) on the ext2 engine in this process,
//! over a modelled disk.
//!
//! A workload ages the volume through the engine, with the same policy that is measured afterwards.
//! The disk stores no file content and sums the modelled time of its requests. The requests come
//! from the real engine, with its caches, write order and metadata. The throughput is modelled and
//! must be labelled as such.

mod disk;
mod files;

use std::sync::Arc;

use fslab_ext2::{BlockSize, Ext2, MkfsOptions, VolumeOptions, alloc, mkfs};
use fslab_vfs::FileSystem;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::image::engine_use;
use crate::replay::{self, Replayed, Replayer, WhenFull};
use crate::score::{Rules, Score, score_tree};
use crate::simulate::{Disk, PER_DIRECTORY, Settings, TOTAL, Variant, sizes};
use crate::workload::{Operation, Population};

use disk::ModelledDisk;
use files::Files;

/// A volume of the engine on a modelled disk.
pub struct EngineVolume {
    disk: Arc<ModelledDisk>,
    options: VolumeOptions,
    settings: Settings,
    replayed: Replayed,
}

/// The results for all files of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OfSize {
    /// Size of each file in bytes.
    pub size_bytes: u64,
    /// Modelled throughput of creating these files and writing all data back, in bytes per second.
    pub modelled_create: f64,
    /// Modelled throughput of reading these files with an empty cache, in bytes per second.
    pub modelled_read: f64,
}

/// The results for the hot files, which the last days of the workload changed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HotFiles {
    /// Number of hot files.
    pub files: u64,
    /// Total size of the hot files in bytes.
    pub bytes: u64,
    /// Modelled throughput of reading all hot files with an empty cache, in bytes per second.
    pub modelled_read: f64,
    /// Modelled throughput of overwriting all hot files and writing all data back, in bytes per
    /// second.
    pub modelled_write: f64,
}

impl EngineVolume {
    /// Makes a new file system.
    ///
    /// # Errors
    /// Fails if no such volume is possible, or if the policy does not exist.
    pub fn new(settings: &Settings, variant: Variant, disk: &'static Disk) -> Result<Self> {
        let policy = alloc::policy(variant.policy)
            .ok_or_else(|| Error::parameter(format!("there is no policy {}", variant.policy)))?;
        let geometry = settings.geometry()?;
        let disk = Arc::new(ModelledDisk::new(settings.volume_bytes, disk));
        let options = MkfsOptions {
            block_size: BlockSize::new(settings.block_bytes)
                .ok_or_else(|| Error::parameter("invalid block size"))?,
            simulation: true,
            inode_size: geometry.inode_size,
            blocks_per_group: Some(geometry.blocks_per_group),
            bytes_per_inode: settings.bytes_per_inode,
            reserved_percent: (settings.reserved * 100.0).round() as u8,
            ..MkfsOptions::default()
        };
        mkfs(&*disk, &options)?;
        let options = engine_use(policy, variant.clustering);
        Ok(Self { disk, options, settings: *settings, replayed: Replayed::default() })
    }

    /// Performs the operations of a workload. Operations that do not fit are skipped and counted.
    ///
    /// # Errors
    /// Fails if the engine returns an error or the operations are inconsistent.
    pub fn age(&mut self, operations: impl Iterator<Item = Result<Operation>>) -> Result<()> {
        let engine = self.open()?;
        // The interval of syncs does not affect allocation, because freed blocks can be reused at
        // once.
        let settings = replay::Settings { when_full: WhenFull::Skip, ..Default::default() };
        let mut replayer = Replayer::new(&engine, settings);
        replayer.run(operations, &mut ())?;
        self.replayed = *replayer.replayed();
        drop(replayer);
        end(&engine)
    }

    /// Returns the counts of the replay that aged the volume.
    #[must_use]
    pub fn replayed(&self) -> &Replayed {
        &self.replayed
    }

    /// Returns the layout score of all files.
    ///
    /// # Errors
    /// Fails if the engine returns an error.
    pub fn score(&self) -> Result<Score> {
        let engine = self.open()?;
        let geometry = self.settings.geometry()?;
        let block_bytes = u64::from(self.settings.block_bytes);
        let group_bytes = Some(u64::from(geometry.blocks_per_group) * block_bytes);
        let score = score_tree(&engine, Rules { block_bytes, group_bytes, map_bytes: None })?;
        end(&engine)?;
        Ok(score)
    }

    /// For each size, creates, reads and removes files with a total of 32 MiB.
    ///
    /// # Errors
    /// Fails if the engine returns an error, for example because the files do not fit.
    pub fn sequential(&self) -> Result<Vec<OfSize>> {
        sizes().map(|size| self.of_size(size)).collect()
    }

    fn of_size(&self, size: u64) -> Result<OfSize> {
        let count = TOTAL / size;
        let directory = |file: u64| format!("size-{size}-{}", file / PER_DIRECTORY);
        let path = |file: u64| format!("{}/file-{file}", directory(file));
        let create = self.rate(|files| {
            for file in 0..count {
                if file % PER_DIRECTORY == 0 {
                    files.make_directory(directory(file).as_bytes())?;
                }
                files.create(path(file).as_bytes(), size)?;
            }
            Ok(count * size)
        })?;
        let read = self.rate(|files| {
            (0..count).try_fold(0, |sum, file| Ok(sum + files.read(path(file).as_bytes())?))
        })?;
        self.rate(|files| {
            (0..count).try_for_each(|file| files.remove(path(file).as_bytes()))?;
            let directories = (0..count).step_by(PER_DIRECTORY as usize);
            directories
                .map(directory)
                .try_for_each(|path| files.remove_directory(path.as_bytes()))?;
            Ok(0)
        })?;
        Ok(OfSize { size_bytes: size, modelled_create: create.1, modelled_read: read.1 })
    }

    /// Reads and then overwrites the files that the last days of a workload changed.
    ///
    /// # Errors
    /// Fails if the engine returns an error, for example because a hot file did not fit and is
    /// missing.
    pub fn hot_files(&self, population: &Population) -> Result<HotFiles> {
        let paths = population.hot_paths(self.settings.hot_days);
        let all = |work: &dyn Fn(&mut Files<'_>, &[u8]) -> Result<u64>| {
            self.rate(|files| paths.iter().try_fold(0, |sum, path| Ok(sum + work(files, path)?)))
        };
        let (bytes, modelled_read) = all(&|files, path| files.read(path))?;
        let (_, modelled_write) = all(&|files, path| files.overwrite(path))?;
        Ok(HotFiles { files: paths.len() as u64, bytes, modelled_read, modelled_write })
    }

    /// Opens the volume with an empty cache, runs `work` and writes all data back. Returns the
    /// bytes that `work` processed and its throughput, in bytes per second of modelled time.
    fn rate(&self, work: impl FnOnce(&mut Files<'_>) -> Result<u64>) -> Result<(u64, f64)> {
        let engine = self.open()?;
        let start_us = self.disk.elapsed_us();
        let mut files = Files::new(&engine);
        let bytes = work(&mut files)?;
        files.sync()?;
        let took_us = self.disk.elapsed_us() - start_us;
        drop(files);
        end(&engine)?;
        Ok((bytes, if took_us > 0.0 { bytes as f64 / took_us * 1e6 } else { 0.0 }))
    }

    fn open(&self) -> Result<Ext2> {
        let device = Arc::clone(&self.disk);
        Ok(Ext2::open(device, self.options.clone())?)
    }
}

fn end(engine: &Ext2) -> Result<()> {
    engine.shutdown().map_err(Error::volume("can't shut down the file system"))
}
