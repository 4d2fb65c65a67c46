//! Figures of dry runs, compared with those of the commands.

use std::sync::Arc;

use fslab_tier::catalogue::{Catalogue, ObjectRow, ObjectState};
use fslab_tier::command::{Command, Event, execute};
use fslab_tier::{Settings, Tier, own_request};
use fslab_vfs::{Ino, MemFs, OpenMode};

use crate::support::{Bench, MIB, TIER, noise, open};

fn told(tier: &Arc<Tier>, command: &Command) -> Vec<Event> {
    let mut told = Vec::new();
    let mut tell = |event| {
        told.push(event);
        true
    };
    execute(tier, command, &own_request(), &mut tell).unwrap();
    told
}

/// Returns the bytes that a recall of a range reports.
fn recalled(tier: &Arc<Tier>, range: Option<(u64, u64)>, dry_run: bool) -> Vec<u64> {
    let recall = Command::Recall { paths: vec![b"file".to_vec()], range, rate: 0 };
    let dry = Command::DryRun { of: Box::new(recall.clone()) };
    let events = told(tier, if dry_run { &dry } else { &recall });
    let bytes = |event: &Event| match event {
        Event::Done { bytes, .. } => Some(*bytes),
        Event::Plan(_) if dry_run => None,
        other => panic!("{other:?}"),
    };
    events.iter().filter_map(bytes).collect()
}

#[test]
fn dry_run_of_a_recall_counts_offline_blocks_of_the_range() {
    let settings = Settings { ahead: 0, ..Settings::of(TIER) };
    let ranges = [
        (Some((0, MIB)), vec![]),
        (Some((MIB / 2, MIB)), vec![MIB]),
        (Some((3 * MIB, 10 * MIB)), vec![MIB + 9]),
        (Some((5 * MIB, MIB)), vec![]),
        (Some((2 * MIB, 0)), vec![]),
        (None, vec![3 * MIB + 9]),
    ];
    for (range, expected) in ranges {
        let bench = Bench::with(Arc::new(MemFs::default()), settings.clone(), 1);
        let client = bench.client();
        let ino = bench.offline(&client, "file", &noise(1, 4 * MIB + 9));
        client.open(ino, OpenMode::empty()).unwrap().read(0, 1).unwrap();
        assert_eq!(bench.offline_blocks(ino), [1, 2, 3, 4]);
        assert_eq!(recalled(&bench.tier, range, true), expected, "{range:?}");
        assert_eq!(recalled(&bench.tier, range, false), expected, "{range:?}");
    }
}

/// Returns the figures with these names.
fn figures<const N: usize>(events: &[Event], names: [&str; N]) -> [u64; N] {
    let figures = events.iter().find_map(|event| match event {
        Event::Total { figures } => Some(figures),
        _ => None,
    });
    names.map(|name| figures.unwrap().iter().find(|(found, _)| found == name).unwrap().1)
}

#[test]
fn dry_run_of_a_scrub_counts_copies_that_a_scrub_reads() {
    let settings = Settings { copies: 2, bundled: 0, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings.clone(), 2);
    for number in 0..2 {
        let name = format!("file{number}");
        let ino = bench.client().file(Ino::ROOT, &name, &noise(number, MIB)).unwrap();
        bench.archive(ino, &name).unwrap();
    }
    let mut rows: Vec<ObjectRow> = Vec::new();
    let mut keep = |row: ObjectRow| {
        rows.push(row);
        Ok(())
    };
    bench.tier.catalogue().for_each(&mut keep).unwrap();
    bench.tier.shutdown().unwrap();
    // The second archive is not attached.
    let first = [Arc::clone(&bench.archives[0])];
    let catalogue = Catalogue::in_memory().unwrap();
    let settings = Settings { copies: 1, ..settings };
    let (tier, _fs) = open(&bench.lower, &settings, &first, catalogue, &bench.around);
    let unfinished = ObjectRow { state: ObjectState::Pending, ..rows[1].clone() };
    tier.catalogue().put(&[rows[0].clone(), unfinished]).unwrap();
    let scrub = Command::Scrub { rate: 0 };
    let dry = told(&tier, &Command::DryRun { of: Box::new(scrub.clone()) });
    assert_eq!(figures(&dry, ["versions", "copies", "content_bytes"]), [1, 1, MIB]);
    assert_eq!(figures(&told(&tier, &scrub), ["copies_verified"]), [1]);
}
