//! `fslab age simulate`: simulates block allocation on an ageing volume, under one or more
//! policies.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use fslab_age::profile::Generator;
use fslab_age::simulate::{DISKS, Disk, Settings, Simulator, Variant, picture, saved_by_fragments};
use fslab_age::workload::{Population, WorkloadReader};
use fslab_ext2::alloc::{Clustering, POLICIES, PolicySpec};
use fslab_vfs::Size;

use super::operations::Source;
use super::profile::Chosen;
use super::tables::{self, Row, Sequential};
use super::through_engine::{self, Task};
use crate::commands::candidates;

/// Fragment size of the paper's file system, in bytes.
const PAPER_FRAGMENT: u32 = 1024;

const HELP: &str = "\
Figures:
  volume            size of the workload's volume, in whole block groups (--group-size)
  layout score      share of blocks that directly follow the previous block of their file; 1 if
                    no file is fragmented
  split files       files whose first block is in another group than their directory
  hot files         files that were written in the last 30 days of the workload
  over 12 blocks    files that are too large for the direct pointers of an inode
  distance          from the end of a file to the beginning of the one listed after it
  read, overwrite   modelled rate on the disk if each of these files is read or overwritten once,
                    with nothing cached";

/// Arguments of `fslab age simulate`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Simulate this profile instead of a workload file
    #[arg(long, value_name = "NAME", conflicts_with = "workload",
          add = candidates::of_section("profiles"))]
    profile: Option<String>,
    #[command(flatten)]
    chosen: Chosen,
    /// Policies to simulate; `all` for every policy
    #[arg(long, value_delimiter = ',', default_value = "ffs,ffs-noswitch",
          value_parser = parse_policies)]
    policy: Vec<&'static [PolicySpec]>,
    /// How blocks are clustered. `smart` makes the blocks of a file contiguous while the file is
    /// written; `dumb` does not
    #[arg(long, value_delimiter = ',', default_value = "smart,dumb",
          value_parser = parse_clustering)]
    clustering: Vec<Clustering>,
    /// Block size in bytes
    #[arg(long, default_value_t = 8192)]
    block_size: u32,
    /// Size of a block group
    #[arg(long, value_name = "SIZE", default_value = "11280 KiB")]
    group_size: Size,
    /// Enlarge the volume by the space that fragments of this many bytes would save, because the
    /// policies here have no fragments. 0 adds nothing [default: 1024 with --paper, else 0]
    #[arg(long, value_name = "BYTES")]
    fragment_size: Option<u32>,
    /// Percentage of blocks that are kept free
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(..=50))]
    reserved_percent: u8,
    /// The modelled disk; `list` lists all
    #[arg(long, default_value = "fujitsu-m2694es")]
    disk: String,
    /// Also model the sequential benchmark of Smith and Seltzer's slides (1997), on an empty and on
    /// the aged volume
    #[arg(long)]
    sequential: bool,
    /// Simulate with the ext2 engine on a modelled disk. Slower, but includes the engine's caches,
    /// metadata and write order
    #[arg(long, conflicts_with_all = ["map", "chart", "paper"])]
    engine: bool,
    /// Print figures as JSON
    #[arg(long)]
    json: bool,
    /// Also print the figures that Smith and Seltzer published in 1997
    #[arg(long)]
    paper: bool,
    /// For each row of the table, write a picture of the volume to NAME-POLICY-CLUSTERING.svg
    #[arg(long, value_name = "NAME")]
    map: Option<PathBuf>,
    /// Write a chart of the scores over time to this file
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// The workload
    #[arg(required_unless_present = "profile")]
    workload: Option<PathBuf>,
}

impl Args {
    /// Simulates and prints the table.
    pub fn run(self) -> Result<()> {
        if self.disk == "list" {
            DISKS.iter().for_each(|disk| say!("{:<16} {}", disk.name, disk.help));
            return Ok(());
        }
        let Some(disk) = Disk::find(&self.disk) else {
            bail_as!(
                BadInput,
                "there is no modelled disk '{}'; `--disk list` lists them",
                self.disk
            );
        };
        let variants = self.variants();
        let (source, volume_bytes) = self.source()?;
        let enlarged_bytes = self.saved(&source)?;
        let settings = self.settings(volume_bytes + enlarged_bytes);
        if self.engine {
            let (source, sequential) = (&source, self.sequential);
            let task = Task { source, settings, enlarged_bytes, disk, sequential };
            let rows = variants.into_iter().map(|variant| task.measure(variant));
            let rows = rows.collect::<Result<Vec<_>>>()?;
            if self.json {
                return through_engine::print_json(&rows);
            }
            through_engine::print(&rows);
            return Ok(());
        }
        let mut rows = Vec::new();
        for variant in variants {
            let row = self.simulate(&source, settings, variant, disk)?;
            rows.push(Row { enlarged_bytes, ..row });
        }
        if let Some(path) = &self.chart {
            let series: Vec<_> = rows.iter().map(Row::series).collect();
            tables::write_chart(path, &series)?;
        }
        if self.json {
            return tables::print_json(&rows);
        }
        tables::print_simulations(&rows, self.paper);
        tables::print_sequential(&rows);
        Ok(())
    }

    /// Returns the bytes by which the volume is larger than in the workload. In a volume without
    /// fragments, small files need this additional space.
    fn saved(&self, source: &Source) -> Result<u64> {
        let default = if self.paper { PAPER_FRAGMENT } else { 0 };
        let size = NonZeroU32::new(self.fragment_size.unwrap_or(default));
        let Some(fragment) = size else { return Ok(0) };
        let mut population = Population::default();
        source.each(&mut |operation| population.apply(operation))?;
        Ok(saved_by_fragments(&population, self.block_size, fragment))
    }

    fn settings(&self, volume_bytes: u64) -> Settings {
        Settings {
            volume_bytes,
            block_bytes: self.block_size,
            group_bytes: self.group_size.bytes(),
            reserved: f64::from(self.reserved_percent) / 100.0,
            ..Settings::default()
        }
    }

    fn variants(&self) -> Vec<Variant> {
        let is_chosen = |policy: &&PolicySpec| {
            self.policy.iter().copied().flatten().any(|chosen| chosen.name == policy.name)
        };
        let pairs = POLICIES.iter().filter(is_chosen).flat_map(|policy| {
            let clusterings = self.clustering.iter();
            clusterings.map(|clustering| Variant { policy: policy.name, clustering: *clustering })
        });
        pairs.collect()
    }

    fn source(&self) -> Result<(Source, u64)> {
        if let Some(name) = &self.profile {
            let generator: Generator = self.chosen.generator(name)?;
            let volume_bytes = generator.provenance().volume_bytes;
            let operations = generator.collect::<fslab_age::Result<Vec<_>>>()?;
            return Ok((Source::Made(operations), volume_bytes));
        }
        let path = self.workload.clone().context("neither a workload nor a profile is given")?;
        let claimed = WorkloadReader::open(&path)?.provenance().volume_bytes;
        let volume = self.chosen.volume.map_or(claimed, |size| size.bytes());
        if volume == 0 {
            let shown = path.display();
            bail_as!(BadInput, "{shown} does not specify the size of its volume; use --volume");
        }
        Ok((Source::File(path), volume))
    }

    fn simulate(
        &self,
        source: &Source,
        settings: Settings,
        variant: Variant,
        disk: &'static Disk,
    ) -> Result<Row> {
        let start = Instant::now();
        let mut simulator = Simulator::new(settings, variant, self.chosen.seed)?;
        source.each(&mut |operation| simulator.apply(operation))?;
        if let Some(base) = &self.map {
            write_map(base, &simulator, variant)?;
        }
        let aged = simulator.finish(disk);
        let took = start.elapsed();
        let sequential = self.sequential.then(|| -> fslab_age::Result<Sequential> {
            let mut empty = Simulator::new(settings, variant, self.chosen.seed)?;
            Ok(Sequential {
                first_switch: empty.first_switch()?,
                empty: empty.sequential(disk)?,
                aged: simulator.sequential(disk)?,
            })
        });
        Ok(Row { variant, aged, enlarged_bytes: 0, sequential: sequential.transpose()?, took })
    }
}

/// Returns the policies that an argument selects: one by its name, or `all`.
fn parse_policies(text: &str) -> Result<&'static [PolicySpec], String> {
    if text == "all" { Ok(POLICIES) } else { parse_policy(text).map(std::slice::from_ref) }
}

pub(super) fn parse_policy(text: &str) -> Result<&'static PolicySpec, String> {
    POLICIES.iter().find(|policy| policy.name == text).ok_or_else(|| {
        let names: Vec<_> = POLICIES.iter().map(|policy| policy.name).collect();
        format!("there is no policy '{text}'; there are {}", names.join(", "))
    })
}

pub(super) fn parse_clustering(text: &str) -> Result<Clustering, String> {
    Clustering::from_name(text).ok_or_else(|| format!("clustering is smart or dumb, not '{text}'"))
}

fn write_map(base: &Path, simulator: &Simulator, variant: Variant) -> Result<()> {
    let name = format!("{}-{}", variant.policy, variant.clustering.name());
    let path = PathBuf::from(format!("{}-{name}.svg", base.display()));
    std::fs::write(&path, picture(simulator, &name)).with_context(|| path.display().to_string())
}
