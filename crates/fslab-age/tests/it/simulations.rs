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
#[test]
fn policies_differ_as_in_the_paper() {
    let mut profile = find("smith97").unwrap().on_volume(256 << 20);
    profile.days = 60;
    let operations = operations(profile, 7);
    let mut population = Population::default();
    operations.iter().for_each(|operation| population.apply(operation).unwrap());
    let saved = saved_by_fragments(&population, 8192, NonZeroU32::new(1024).unwrap());
    assert!((20 << 20..60 << 20).contains(&saved), "{saved}");
    let settings = Settings { volume_bytes: (256 << 20) + saved, ..Settings::default() };
    let aged = variants().map(|variant| simulate(&operations, settings, variant));
    for one in &aged {
        assert_eq!(one.no_space, 0);
        assert_eq!(one.operations, operations.len() as u64);
    }
    let [smart, dumb, noswitch_smart, noswitch_dumb] = &aged;
    let breaks = |aged: &Aged| aged.score.total.breaks;
    assert!(breaks(dumb) > breaks(smart) * 5 / 4, "{} {}", breaks(dumb), breaks(smart));
    let split = |aged: &Aged| aged.score.total.split;
    assert!(split(noswitch_smart) > split(smart), "{} {}", split(noswitch_smart), split(smart));
    assert!(split(noswitch_dumb) > split(dumb));
    // Hot files are read and overwritten faster where they stay in their group.
    let reads = |aged: &Aged| aged.hot.modelled_read;
    assert!(reads(noswitch_smart) > reads(smart), "{} {}", reads(noswitch_smart), reads(smart));
    let writes = |aged: &Aged| aged.hot.modelled_write;
    assert!(writes(noswitch_smart) > writes(smart), "{} {}", writes(noswitch_smart), writes(smart));
    assert!(smart.hot.large > 20, "{}", smart.hot.large);
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
