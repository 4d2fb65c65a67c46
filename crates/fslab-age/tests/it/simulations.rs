//! Simulations reproduce the results of Smith and Seltzer (1997): the signs of differences and
//! their order of magnitude.

use std::num::NonZeroU32;
use std::sync::Arc;

use fslab_age::image::engine_use;
use fslab_age::in_process::EngineVolume;
use fslab_age::profile::find;
use fslab_age::replay::Replayer;
use fslab_age::score::{Rules, Score, score_tree};
use fslab_age::simulate::{Aged, DISKS, Settings, Simulator, Variant, saved_by_fragments};
use fslab_age::workload::{Operation, OperationKind, Population};
use fslab_ext2::alloc::{self, Clustering};
use fslab_ext2::{BlockSize, Ext2, MkfsOptions, mkfs};
use fslab_vfs::{FileSystem, MemoryDevice};

use crate::support::{operations, settings as of_replay, small, stream};

fn simulate(operations: &[Operation], settings: Settings, variant: Variant) -> Aged {
    let mut simulator = Simulator::new(settings, variant, 1).unwrap();
    operations.iter().for_each(|operation| simulator.apply(operation).unwrap());
    simulator.finish(&DISKS[0])
}

fn variants() -> [Variant; 4] {
    let variant = |policy, clustering| Variant { policy, clustering };
    [
        variant("ffs", Clustering::Smart),
        variant("ffs", Clustering::Dumb),
        variant("ffs-noswitch", Clustering::Smart),
        variant("ffs-noswitch", Clustering::Dumb),
    ]
}

#[test]
fn smith97_profile_matches_the_figures_of_the_slides() {
    let operations = operations(find("smith97").unwrap().clone(), 1997);
    let written: u64 = operations
        .iter()
        .filter(|operation| operation.kind == OperationKind::Write)
        .map(|operation| operation.length)
        .sum();
    let count = operations.len();
    assert!((1_200_000..1_400_000).contains(&count), "{count} operations");
    assert!((83e9..92e9).contains(&(written as f64)), "{written} bytes");
}

/// Simulates two months on a quarter of the volume of Smith and Seltzer (1997). Their file system
/// saved space by fragments; the volume is enlarged by that space, so the utilisation is the same.
fn quarter(seed: u64, variants: &[Variant]) -> Vec<Aged> {
    let mut profile = find("smith97").unwrap().on_volume(256 << 20);
    profile.days = 60;
    let operations = operations(profile, seed);
    let mut population = Population::default();
    operations.iter().for_each(|operation| population.apply(operation).unwrap());
    let saved = saved_by_fragments(&population, 8192, NonZeroU32::new(1024).unwrap());
    assert!((20 << 20..60 << 20).contains(&saved), "{saved}");
    let settings = Settings { volume_bytes: (256 << 20) + saved, ..Settings::default() };
    let aged = variants.iter().map(|variant| simulate(&operations, settings, *variant));
    let aged: Vec<_> = aged.collect();
    for one in &aged {
        assert_eq!(one.no_space, 0);
        assert_eq!(one.operations, operations.len() as u64);
    }
    aged
}

#[test]
fn policies_differ_as_in_the_paper() {
    let aged = quarter(7, &variants());
    let [smart, dumb, noswitch_smart, noswitch_dumb] = aged.as_slice() else { panic!() };
    let breaks = |aged: &Aged| aged.score.total.breaks;
    assert!(breaks(dumb) > breaks(smart) * 5 / 4, "{} {}", breaks(dumb), breaks(smart));
    let split = |aged: &Aged| aged.score.total.split;
    assert!(split(noswitch_smart) > split(smart), "{} {}", split(noswitch_smart), split(smart));
    assert!(split(noswitch_dumb) > split(dumb));
    assert!(smart.hot.large > 20, "{}", smart.hot.large);
}

/// Hot files are read and overwritten faster if their blocks remain in their group. On such a small
/// volume the gain varies between seeds 1 to 8: 0.3 to 6.8 % for reading and -0.3 to 2.9 % for
/// overwriting. Therefore the results of three seeds are added.
#[test]
fn hot_files_gain_from_staying_in_their_group() {
    let [smart, _, noswitch, _] = variants();
    let (mut reads, mut writes) = ([0.0; 2], [0.0; 2]);
    for seed in 1..=3 {
        let aged = quarter(seed, &[smart, noswitch]);
        for (place, one) in aged.iter().enumerate() {
            reads[place] += one.hot.modelled_read;
            writes[place] += one.hot.modelled_write;
        }
        let split = |place: usize| aged[place].score.total.split;
        assert!(split(1) > split(0) * 11 / 10, "seed {seed}: {} {}", split(1), split(0));
    }
    assert!(reads[1] > reads[0] * 1.01 && writes[1] > writes[0], "{reads:?} {writes:?}");
}

/// Measured on 2026-11-22, with smart clustering: ffs splits 11.9 to 14.5 % of the files, and
/// ffs-noswitch 21.6 to 25.2 %.
#[test]
#[ignore = "a measurement: seven months, eight seeds; run with --release -- --ignored"]
fn signs_and_order_of_the_paper_hold_over_seeds() {
    for seed in [1997, 1, 2, 3, 4, 5, 6, 7] {
        let operations = operations(find("smith97").unwrap().clone(), seed);
        let mut population = Population::default();
        operations.iter().for_each(|operation| population.apply(operation).unwrap());
        let saved = saved_by_fragments(&population, 8192, NonZeroU32::new(1024).unwrap());
        let settings = Settings { volume_bytes: (1 << 30) + saved, ..Settings::default() };
        let [smart, dumb, noswitch_smart, noswitch_dumb] =
            variants().map(|variant| simulate(&operations, settings, variant));
        let told = |aged: &Aged| {
            let total = &aged.score.total;
            let breaks = total.breaks as f64 / total.pairs as f64;
            (total.split_share().unwrap_or_default(), breaks, aged.hot.score.unwrap_or_default())
        };
        let all = [&smart, &dumb, &noswitch_smart, &noswitch_dumb].map(told);
        let gain = noswitch_smart.hot.modelled_read / smart.hot.modelled_read;
        let overwrite = noswitch_smart.hot.modelled_write / smart.hot.modelled_write;
        eprintln!("seed {seed}: {all:?}, read {gain:.4}, overwrite {overwrite:.4}");
        let [smart, dumb, noswitch_smart, noswitch_dumb] = all;
        assert!((0.10..0.16).contains(&smart.0), "split: {all:?}");
        assert!((1.4..2.6).contains(&(noswitch_smart.0 / smart.0)), "NoSwitch splits: {all:?}");
        assert!(noswitch_dumb.0 > dumb.0 * 1.4, "NoSwitch splits: {all:?}");
        assert!((1.6..2.4).contains(&(dumb.1 / smart.1)), "clustering halves breaks: {all:?}");
        assert!((noswitch_smart.2 - smart.2).abs() < 0.02, "hot scores are equal: {all:?}");
        assert!((1.005..1.10).contains(&gain) && overwrite > 1.0, "{gain} {overwrite}");
    }
}

#[test]
fn removing_all_files_frees_all_space() {
    let mut operations = operations(small("mail"), 2);
    let live: std::collections::BTreeSet<u64> = {
        let made = operations.iter().filter(|one| one.kind == OperationKind::Create);
        let gone = operations.iter().filter(|one| one.kind == OperationKind::Remove);
        let gone: std::collections::BTreeSet<u64> = gone.map(|one| one.file).collect();
        made.map(|one| one.file).filter(|file| !gone.contains(file)).collect()
    };
    let time_ns = operations.last().unwrap().time_ns;
    operations.extend(live.into_iter().map(|file| Operation {
        time_ns,
        kind: OperationKind::Remove,
        file,
        ..Operation::default()
    }));
    let settings = Settings { volume_bytes: 64 << 20, ..Settings::default() };
    for variant in variants() {
        let aged = simulate(&operations, settings, variant);
        assert_eq!((aged.score.total.files, aged.bytes, aged.no_space), (0, 0, 0));
        assert!(aged.used < 0.2, "{}", aged.used);
    }
}

/// Returns the layout that the engine produces on a volume of the same size. The engine's metadata
/// needs a few more blocks than the simulator's, for `lost+found` and larger directories.
fn on_the_engine(made: &[Operation], settings: Settings, variant: Variant) -> Score {
    let device = Arc::new(MemoryDevice::of_metadata(settings.volume_bytes));
    let geometry = settings.geometry().unwrap();
    let options = MkfsOptions {
        block_size: BlockSize::new(settings.block_bytes).unwrap(),
        simulation: true,
        inode_size: geometry.inode_size,
        blocks_per_group: Some(geometry.blocks_per_group),
        bytes_per_inode: settings.bytes_per_inode,
        reserved_percent: (settings.reserved * 100.0) as u8,
        ..MkfsOptions::default()
    };
    mkfs(&*device, &options).unwrap();
    let policy = alloc::policy(variant.policy).unwrap();
    let ext2 = Ext2::open(device, engine_use(policy, variant.clustering)).unwrap();
    let mut replayer = Replayer::new(&ext2, of_replay(1));
    assert!(replayer.run(stream(made), &mut ()).unwrap());
    assert_eq!(replayer.replayed().no_space, 0);
    drop(replayer);
    let group_bytes = u64::from(geometry.blocks_per_group) * u64::from(settings.block_bytes);
    let block_bytes = settings.block_bytes.into();
    let rules = Rules { block_bytes, group_bytes: Some(group_bytes), map_bytes: None };
    let score = score_tree(&ext2, rules).unwrap();
    ext2.shutdown().unwrap();
    score
}

/// The engine must reuse freed blocks at once. When it reused them only after a flush, it
/// fragmented a third more files than the simulator.
#[test]
fn engine_and_simulator_give_similar_layouts() {
    let mut profile = find("smith97").unwrap().on_volume(64 << 20);
    profile.days = 30;
    let made = operations(profile, 3);
    let settings = Settings { volume_bytes: 96 << 20, ..Settings::default() };
    for variant in variants() {
        let simulated = simulate(&made, settings, variant).score.total;
        let placed = on_the_engine(&made, settings, variant).total;
        let told = format!("{variant:?}: {simulated:?}, {placed:?}");
        assert_eq!((placed.files, placed.blocks), (simulated.files, simulated.blocks), "{told}");
        assert!(placed.breaks.abs_diff(simulated.breaks) * 20 <= simulated.breaks, "{told}");
        assert!(placed.split.abs_diff(simulated.split) * 10 <= simulated.split, "{told}");
    }
}

/// Blocks are written far past the end of files. Later writes fill parts of the holes, and one file
/// is truncated within a hole.
#[test]
fn sparse_writes_leave_the_same_holes_in_simulator_and_replay() {
    let write = |time_ns, file, offset, length| {
        let kind = OperationKind::Write;
        Operation { time_ns, kind, file, offset, length, ..Operation::default() }
    };
    let mut made: Vec<_> = (1..=4)
        .map(|file| {
            let kind = OperationKind::Create;
            Operation { kind, file, mode: 0o644, ..Operation::default() }
        })
        .collect();
    made.extend([
        write(1, 1, 40 * 8192, 3 * 8192),
        write(2, 1, 0, 8192),
        write(3, 2, 5000 * 8192 + 5, 100_000),
        write(4, 3, 3 * 8192, 8192),
        write(5, 1, 8 * 8192, 30 * 8192),
        write(6, 2, 11 * 8192, 4 * 8192),
        write(7, 4, 1000, 20 * 8192),
        write(8, 3, 20 * 8192, 10 * 8192),
    ]);
    let cut = Operation {
        time_ns: 9,
        kind: OperationKind::Truncate,
        file: 3,
        ..write(9, 3, 0, 15 * 8192)
    };
    made.push(cut);
    let blocks = [3 + 1 + 30, 13 + 4, 1, 21].into_iter().sum::<u64>();
    let bytes = [43 * 8192, 5000 * 8192 + 100_005, 15 * 8192, 20 * 8192 + 1000];
    let settings = Settings { volume_bytes: 96 << 20, ..Settings::default() };
    for variant in variants() {
        let simulated = simulate(&made, settings, variant);
        let placed = on_the_engine(&made, settings, variant).total;
        assert_eq!((simulated.score.total.blocks, placed.blocks), (blocks, blocks), "{variant:?}");
        assert_eq!(simulated.bytes, bytes.iter().sum::<u64>(), "{variant:?}");
        // The number of breaks may differ, because the metadata of the engine and of the simulator
        // occupies different blocks.
        assert!(simulated.score.total.breaks.abs_diff(placed.breaks) <= 2, "{variant:?}");
    }
}

/// With FFS, files with one block more than an inode maps directly are read much slower than files
/// without this block. With NoSwitch, they are read only slightly slower.
#[test]
fn modelled_disk_shows_a_read_dip_at_13_blocks_only_with_ffs() {
    let settings = Settings { volume_bytes: 256 << 20, ..Settings::default() };
    let fall = |policy| {
        let variant = Variant { policy, clustering: Clustering::Smart };
        let volume = EngineVolume::new(&settings, variant, &DISKS[0]).unwrap();
        let sizes = volume.sequential().unwrap();
        assert_eq!(sizes.len(), 13);
        for size in &sizes {
            assert!(size.modelled_create > 1e5 && size.modelled_read > 1e6, "{size:?}");
            assert!(size.modelled_read < 5e6, "faster than the disk: {size:?}");
        }
        let of = |kib: u64| sizes.iter().find(|size| size.size_bytes == kib << 10).unwrap();
        of(104).modelled_read / of(96).modelled_read
    };
    let (ffs, noswitch) = (fall("ffs"), fall("ffs-noswitch"));
    assert!(ffs < 0.75 && noswitch > 0.85, "{ffs} {noswitch}");
}

/// A volume aged with the engine has the hot files of the workload. They are read about as fast as
/// in the simulator.
#[test]
fn engine_and_simulator_agree_on_hot_files() {
    let mut profile = find("smith97").unwrap().on_volume(64 << 20);
    profile.days = 40;
    let made = operations(profile, 3);
    let mut population = Population::default();
    made.iter().for_each(|operation| population.apply(operation).unwrap());
    let settings = Settings { volume_bytes: 96 << 20, hot_days: 10, ..Settings::default() };
    let variant = Variant { policy: "ffs", clustering: Clustering::Smart };
    let simulated = simulate(&made, settings, variant).hot;
    let mut volume = EngineVolume::new(&settings, variant, &DISKS[0]).unwrap();
    volume.age(stream(&made)).unwrap();
    assert_eq!(volume.replayed().no_space, 0);
    let hot = volume.hot_files(&population).unwrap();
    assert!(hot.files < population.len() as u64 / 2, "{hot:?}");
    assert_eq!((hot.files, hot.bytes), (simulated.sums.files, simulated.bytes));
    assert!(
        (hot.modelled_read / simulated.modelled_read - 1.0).abs() < 0.25,
        "{hot:?} {simulated:?}"
    );
}
