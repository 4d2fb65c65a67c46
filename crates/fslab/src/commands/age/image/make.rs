//! `fslab age image make`: makes a file system, replays a workload on it, and packs its image.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fslab_age::image::{Identity, engine_use, pack};
use fslab_age::replay::{Replayed, Replayer, Settings, WhenFull};
use fslab_age::table::directory_of;
use fslab_age::workload::{Provenance, WorkloadReader, identity_of_file};
use fslab_ext2::MkfsOptions;
use fslab_ext2::alloc::{Clustering, PolicySpec};
use fslab_sys::make_file_system::Kind;
use fslab_sys::signals::Interrupt;
use fslab_vfs::Size;

use super::super::replay::{DataArg, Watcher, sync_every_ns};
use super::super::show::extent;
use super::super::simulate::{parse_clustering, parse_policy};
use super::ground::{self, Form, Ground, engine_options};
use super::tell;
use crate::leaves::check_writable;
use crate::units::bytes;

/// Arguments of `fslab age image make`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file system: ext2, ext3, ext4, xfs or btrfs, which needs root. With --policy, only ext2
    /// is possible, and root is not needed
    #[arg(long, short_alias = 'f', default_value = "ext4")]
    filesystem: Kind,
    /// An option for the mkfs program, such as `--mkfs=-b --mkfs=1024`
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true, conflicts_with = "policy")]
    mkfs: Vec<String>,
    /// Make and age the image with fslab's ext2 engine and this allocation policy, without a mount.
    /// Equal workloads then make equal images
    #[arg(long, value_name = "NAME", value_parser = parse_policy)]
    policy: Option<&'static PolicySpec>,
    /// With --policy: how blocks are clustered. `smart` makes the blocks of a file contiguous while
    /// the file is written; `dumb` does not
    #[arg(long, default_value = "dumb", requires = "policy", value_parser = parse_clustering)]
    clustering: Clustering,
    /// With --policy: bytes of space for each inode
    #[arg(long, value_name = "BYTES", default_value_t = 16_384, requires = "policy")]
    inode_ratio: u32,
    /// With --policy: percentage of blocks that are reserved for root
    #[arg(long, value_name = "PERCENT", default_value_t = 5, requires = "policy")]
    reserved_percent: u8,
    /// With --policy: size of a block group, rounded down to a multiple of 8 blocks [default: as
    /// many blocks as a bitmap block has bits]
    #[arg(long, value_name = "SIZE", requires = "policy")]
    group_size: Option<Size>,
    /// Size of the file system [default: the size that the workload specifies]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Content of the files
    #[arg(long, value_enum, default_value_t = DataArg::Real)]
    data: DataArg,
    /// Threads that replay the workload
    #[arg(long, short, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Sync the target each time this many hours of the workload's time have passed
    #[arg(long, value_name = "HOURS", default_value_t = 1.0)]
    sync_every: f64,
    /// Stop when the file system is full, instead of skipping files
    #[arg(long)]
    stop_when_full: bool,
    /// The packed image to write [default: aged-FILESYSTEM-HASH.zst]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the planned steps, without doing them
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// The workload
    workload: PathBuf,
}

impl Args {
    /// Makes the file system, ages it and packs it.
    pub fn run(self) -> Result<()> {
        let reader = WorkloadReader::open(&self.workload)?;
        let provenance = reader.provenance().clone();
        let size = self.size(&provenance)?;
        let hash = identity_of_file(&self.workload)?;
        let (settings, form) = (self.settings(&hash)?, self.form()?);
        let output = self.output(&hash);
        if self.dry_run {
            return self.rehearse(&form, size, &output, reader);
        }
        // Signals are caught before anything is mounted, so that an interrupted run cleans up.
        let stop = Interrupt::on_signals().context("can't wait for signals")?;
        let ground = Ground::make(&form, size, directory_of(&output))?;
        let mut identity = Identity { workload: hash, facts: self.facts(&provenance) };
        identity.facts.insert("made".to_owned(), one_line(&ground.made));
        let aged = age(&ground, reader, settings, stop)?;
        identity.facts.extend(aged);
        let image = ground.end()?;
        tell(&output, pack(&image.path(), &output, &identity)?, &identity);
        Ok(())
    }

    fn rehearse(
        &self,
        form: &Form,
        size: u64,
        output: &Path,
        reader: WorkloadReader,
    ) -> Result<()> {
        ground::check(form, size)?;
        let (shown, directory) = (output.display(), directory_of(output));
        check_writable(directory)?;
        let instead = if output.exists() { ", replacing the existing file" } else { "" };
        say!("would make {shown}{instead}: {} of {}", self.filesystem, bytes(size));
        say!("on it, would replay {}", extent(reader)?);
        say!("nothing was changed");
        Ok(())
    }

    fn size(&self, provenance: &Provenance) -> Result<u64> {
        let size = self.size.map_or(provenance.volume_bytes, |size| size.bytes());
        if size > 0 {
            return Ok(size);
        }
        let shown = self.workload.display();
        bail_as!(BadInput, "{shown} does not specify the size of its volume; use --size")
    }

    fn settings(&self, hash: &str) -> Result<Settings> {
        Ok(Settings {
            data: self.data.into(),
            when_full: if self.stop_when_full { WhenFull::Stop } else { WhenFull::Skip },
            threads: usize::from(self.threads),
            sync_every_ns: sync_every_ns(self.sync_every)?,
            workload_hash: hash.to_owned(),
            ..Settings::default()
        })
    }

    fn form(&self) -> Result<Form> {
        if self.filesystem.is_read_only() {
            bail_as!(BadInput, "{} is read-only, so it can't be aged", self.filesystem);
        }
        let Some(policy) = self.policy else {
            return Ok(Form::Kernel { kind: self.filesystem, mkfs: self.mkfs.clone() });
        };
        if self.filesystem != Kind::Ext2 {
            let kind = self.filesystem;
            bail_as!(BadInput, "--policy works only for ext2 images: use -f ext2, not {kind}");
        }
        let mkfs = engine_options(self.inode_ratio, self.reserved_percent, self.group_blocks());
        if self.clustering == Clustering::Smart && !matches!(self.data, DataArg::Real) {
            bail_as!(BadInput, "--clustering smart works only if data is written: use --data real");
        }
        Ok(Form::Engine { mkfs, options: engine_use(policy, self.clustering) })
    }

    fn group_blocks(&self) -> Option<u32> {
        let block_bytes = u64::from(MkfsOptions::default().block_size.bytes_u32());
        let blocks = self.group_size?.bytes() / block_bytes / 8 * 8;
        Some(u32::try_from(blocks).unwrap_or(u32::MAX))
    }

    fn output(&self, hash: &str) -> PathBuf {
        let named = || PathBuf::from(format!("aged-{}-{}.zst", self.filesystem, &hash[..16]));
        self.output.clone().unwrap_or_else(named)
    }

    /// Returns the facts about the image that are known before it is made.
    fn facts(&self, provenance: &Provenance) -> BTreeMap<String, String> {
        let engine = |policy: &PolicySpec| format!("{} {}", policy.name, self.clustering.name());
        let facts = [
            ("filesystem", self.filesystem.to_string()),
            ("policy", self.policy.map_or_else(|| "the kernel's".to_owned(), engine)),
            ("data", format!("{:?}", self.data).to_lowercase()),
            ("threads", self.threads.to_string()),
            ("sync_every_hours", self.sync_every.to_string()),
            ("source", one_line(&provenance.source)),
            ("seed", provenance.seed.to_string()),
            ("made_by", format!("fslab {}", env!("CARGO_PKG_VERSION"))),
        ];
        facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Replays the workload, and returns the facts about the image that are known afterwards.
fn age(
    ground: &Ground,
    reader: WorkloadReader,
    settings: Settings,
    stop: Interrupt,
) -> Result<Vec<(String, String)>> {
    let mut watcher = Watcher::new(reader.total(), stop, ground.place.clone());
    let mut replayer = Replayer::new(&*ground.file_system, settings);
    let ended = replayer.run(reader, &mut watcher);
    watcher.bar.finish_and_clear();
    if !ended? {
        bail!("interrupted; no image was written");
    }
    let Replayed { operations, bytes_written, no_space, left_out, .. } = *replayer.replayed();
    let complete = no_space + left_out == 0;
    let expected = replayer.population().checksum()?;
    drop(replayer);
    let tree = fslab_age::score::tree_checksum(&*ground.file_system, true)?;
    if complete && tree != expected {
        bail!("the aged tree differs from the tree of the workload; no image was written");
    }
    let score = watcher.score()?.total.score();
    let facts = [
        ("operations", operations.to_string()),
        ("bytes_written", bytes_written.to_string()),
        ("no_space", no_space.to_string()),
        ("left_out", left_out.to_string()),
        ("tree", tree),
        ("layout_score", score.map_or_else(|| "none".to_owned(), |score| format!("{score:.6}"))),
    ];
    Ok(facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// Replaces line breaks by spaces, because a fact must fit on one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
