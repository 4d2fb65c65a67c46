//! Simulations: what the paper found, in sign and order.

use std::num::NonZeroU32;

use fslab_age::profile::find;
use fslab_age::simulate::{Aged, DISKS, Settings, Simulator, Variant, saved_by_fragments};
use fslab_age::workload::{Operation, OperationKind, Population};
use fslab_ext2::alloc::Clustering;

use crate::support::{operations, small};

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
fn seven_months_of_1997_have_the_figures_that_the_slides_tell() {
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

/// A quarter of the paper's volume for two months, as full as the paper's, whose small files ended
/// in fragments.
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

/// Hot files are read and overwritten faster where they stay in their group. On a volume so small
/// one seed's gain is 0.3 to 6.8 % of reading and -0.3 to 2.9 % of overwriting (seeds 1 to 8), so
/// that three are summed.
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

/// Seen on 2026-11-22: 11.9 to 14.5 % and 21.6 to 25.2 % of files split.
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
fn all_space_comes_back() {
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
