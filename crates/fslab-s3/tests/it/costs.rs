//! Requests and bytes are counted where they are sent, with every attempt.

use fslab_s3::testing::Fault;
use fslab_tier::archive::{Archive, Container, Traffic};

use crate::support::{LONG, TIER, World, files, listed, noise, write};
use fslab_s3::testing::Place;

/// Returns what a call adds to the counters: requests by kind, and retries.
fn caused(archive: &dyn Archive, call: impl FnOnce()) -> (Traffic, u64) {
    let meter = archive.meter().unwrap();
    let before = meter.usage();
    call();
    let (now, was) = (meter.usage().traffic, before.traffic);
    let traffic = Traffic {
        put_requests: now.put_requests - was.put_requests,
        get_requests: now.get_requests - was.get_requests,
        list_requests: now.list_requests - was.list_requests,
        delete_requests: now.delete_requests - was.delete_requests,
        sent_bytes: now.sent_bytes - was.sent_bytes,
        received_bytes: now.received_bytes - was.received_bytes,
    };
    (traffic, meter.usage().retries - before.retries)
}

fn requests(traffic: &Traffic) -> [u64; 4] {
    let Traffic { put_requests, get_requests, list_requests, delete_requests, .. } = *traffic;
    [put_requests, get_requests, list_requests, delete_requests]
}

/// Counts the requests that the proxy has seen.
fn seen(world: &World) -> [u64; 4] {
    let count = |method, part| world.proxy.count(method, part) as u64;
    let lists = count("GET", "prefix=");
    [count("PUT", "") + count("POST", ""), count("GET", "") - lists, lists, count("DELETE", "")]
}

fn opened(world: &World) -> std::sync::Arc<dyn Archive> {
    Place::new(world.proxy.port(), LONG).unwrap().open(TIER, None).unwrap()
}

#[test]
fn counters_equal_the_requests_that_arrive() {
    let world = World::new();
    let archive = opened(&world);
    let meter = archive.meter().unwrap();
    assert_eq!(requests(&meter.usage().traffic), seen(&world), "opening the archive");
    write(&*archive, files(1), &noise(1, 1000)).unwrap();
    write(&*archive, files(2), &noise(2, 20 << 20)).unwrap();
    archive.read(files(2), 5, &mut [0; 77]).unwrap();
    listed(&*archive).unwrap();
    archive.delete(files(1)).unwrap();
    assert_eq!(requests(&meter.usage().traffic), seen(&world));
    assert_eq!(meter.usage().retries, 0);
    drop(archive);
    assert_eq!(requests(&meter.usage().traffic), seen(&world), "closing the archive");
}

#[test]
fn every_attempt_is_counted() {
    let world = World::new();
    let archive = opened(&world);
    let bytes = noise(1, 100_000);
    world.proxy.add("PUT", "/files/", Fault::Status(503, None), 2);
    let before = seen(&world);
    let write = || write(&*archive, files(1), &bytes).unwrap();
    let (traffic, retries) = caused(&*archive, write);
    let arrived: Vec<u64> =
        seen(&world).iter().zip(before).map(|(now, before)| now - before).collect();
    assert_eq!(requests(&traffic).to_vec(), arrived);
    assert_eq!((traffic.put_requests, retries), (4, 2), "three attempts, and the lease");
    assert!(traffic.sent_bytes >= 300_000, "the data was sent three times: {traffic:?}");
    world.proxy.add("GET", "/files/", Fault::Short, 1);
    let read = || assert_eq!(archive.read(files(1), 0, &mut [0; 50_000]).unwrap(), 50_000);
    let (traffic, retries) = caused(&*archive, read);
    assert_eq!((requests(&traffic), retries), ([0, 2, 0, 0], 1));
    assert!(traffic.received_bytes > 90_000, "bytes of the failed attempt count: {traffic:?}");
}

/// Checks that a call causes the planned requests, and at most the planned bytes.
#[track_caller]
fn check(archive: &dyn Archive, planned: Traffic, call: impl FnOnce()) {
    let (traffic, retries) = caused(archive, call);
    assert_eq!((requests(&traffic), retries), (requests(&planned), 0));
    for (caused, planned) in
        [(traffic.sent_bytes, planned.sent_bytes), (traffic.received_bytes, planned.received_bytes)]
    {
        // Beside data, only small messages are sent and received.
        assert!(caused <= planned && planned - caused < (32 << 10), "{caused} of {planned}");
    }
}

#[test]
fn writes_and_reads_cause_the_planned_requests() {
    let world = World::new();
    let archive = opened(&world);
    let sizes = [0, 1, 8 << 20, (8 << 20) + 1, 17 << 20, 24 << 20];
    for (number, size) in (1..).zip(sizes) {
        let (container, bytes): (Container, _) = (files(number), noise(number, size));
        check(&*archive, archive.traffic_of_writing(size as u64), || {
            write(&*archive, container, &bytes).unwrap();
        });
        if size == 0 {
            continue;
        }
        for is_forgotten in [false, true] {
            if is_forgotten {
                archive.forget(container);
            }
            assert_eq!(archive.is_located(container), !is_forgotten);
            let length = size.min(300_000);
            let planned = archive.traffic_of_reading(0..length as u64, size as u64, !is_forgotten);
            check(&*archive, planned, || {
                archive.read(container, 0, &mut vec![0; length]).unwrap();
            });
        }
    }
}
