//! Tests that plans are true and costs are counted, for archives in S3 stores, as a user sees them.

use std::fs;
use std::process::Output;

use fslab_s3::testing::{BUCKET, MemoryStore, Server};
use serde_json::Value;

use crate::support::{Place, can_not_mount};
use crate::tier_s3::{done, with_store};
use crate::tiering::noise;
use fslab_vfs_testing::skip::skip;

const MIB: usize = 1 << 20;

const REQUESTS: [&str; 4] = ["put_requests", "get_requests", "list_requests", "delete_requests"];
const BYTES: [&str; 2] = ["sent_bytes", "received_bytes"];

const PRICES: &str = "currency = 'EUR'\n\n[[price]]\narchive = 's3'\nput_per_1000 = 1000\n\
    get_per_1000 = 10\nlist_per_1000 = 0\ndelete_per_1000 = 0\nstored_per_gib_month = 0.02\n\
    received_per_gib = 0\n";

/// A mounted tier whose archive is in a store.
struct World {
    place: Place,
    port: u16,
    /// The directory of the home and of the file with prices.
    beside: tempfile::TempDir,
}

impl World {
    fn new(port: u16) -> Self {
        let (place, beside) = (Place::new(), tempfile::tempdir().unwrap());
        let world = Self { place, port, beside };
        let (home, lower) = (world.beside("home"), world.place.lower.to_str().unwrap().to_owned());
        // With a long lease, no renewal occurs during the test.
        let archive = format!("s3://{BUCKET}/costs;lease=3600");
        world.fslab(&["tier", "init", "--archive", &archive, "--home", &home, &lower]);
        world.fslab(&["mount", "-l", "tier", &lower, world.point()]);
        fs::write(world.place.point.join("large"), noise(11, 9 * MIB + 5)).unwrap();
        fs::write(world.place.point.join("middle"), noise(12, 70_000)).unwrap();
        for number in 0..50_u8 {
            let small = noise(u64::from(number) + 20, 300);
            fs::write(world.place.point.join(format!("small{number}")), small).unwrap();
        }
        fs::write(world.beside("prices.toml"), PRICES).unwrap();
        world
    }

    fn beside(&self, name: &str) -> String {
        self.beside.path().join(name).to_str().unwrap().to_owned()
    }

    fn point(&self) -> &str {
        self.place.point.to_str().unwrap()
    }

    fn fslab(&self, arguments: &[&str]) -> String {
        done(&mut with_store(arguments, self.port))
    }

    /// Returns the JSON objects that a command of `fslab tier` prints, without the last one.
    fn events(&self, arguments: &[&str]) -> Vec<Value> {
        let told = self.fslab(&[&["tier", "--json"], arguments].concat());
        let mut events: Vec<Value> =
            told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events.pop().unwrap()["event"], "end");
        events
    }

    fn usage<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let archives = self.events(&["archives", self.point()]);
        names.map(|name| archives[0][name].as_u64().unwrap())
    }

    /// Checks that a command causes the planned requests, and at most the planned bytes. Returns
    /// the plan.
    fn check(&self, command: &str) -> Value {
        let prices = self.beside("prices.toml");
        let dry = [command, "-n", "--prices", &prices, self.point()];
        let plan = self.events(&dry).pop().unwrap();
        assert_eq!(plan["event"], "plan", "{plan}");
        let planned = &plan["archives"][0];
        let before = (self.usage(REQUESTS), self.usage(BYTES));
        self.fslab(&["tier", command, self.point()]);
        let after = (self.usage(REQUESTS), self.usage(BYTES));
        for (number, name) in REQUESTS.into_iter().enumerate() {
            let caused = after.0[number] - before.0[number];
            assert_eq!(planned[name].as_u64(), Some(caused), "{command}: {name}: {plan}");
        }
        for (number, name) in BYTES.into_iter().enumerate() {
            let (caused, most) = (after.1[number] - before.1[number], planned[name].as_u64());
            let most = most.unwrap();
            // Beside data, each request sends and receives at most a few KiB.
            let least = most.saturating_sub(5 * 1024 * (10 + 4 * 52));
            assert!((least..=most).contains(&caused), "{command}: {name}: {caused}: {plan}");
        }
        plan
    }
}

fn check_costs(port: u16) {
    let world = World::new(port);
    let plan = world.check("archive");
    assert_eq!((&plan["files"], &plan["bound"]), (&52.into(), &"at-most".into()));
    assert_eq!(plan["estimated_seconds"], Value::Null, "no transfer was measured");
    let requests = |name: &str| plan["archives"][0][name].as_u64().unwrap() as f64;
    let cost = requests("put_requests") + requests("get_requests") / 100.0;
    let told = plan["cost"]["requests"].as_f64().unwrap();
    assert!((told - cost).abs() < 1e-6, "{plan}");
    let plan = world.check("release");
    assert!(plan["freed_bytes"].as_u64().unwrap() > 9 * MIB as u64, "{plan}");
    let plan = world.check("recall");
    assert_eq!(plan["needed_bytes"], plan["bytes"], "{plan}");
    assert!(plan["estimated_seconds"].as_f64().is_some(), "{plan}");

    let [puts, gets] = world.usage(["put_requests", "get_requests"]);
    let metrics = world.fslab(&["stats", "--prometheus", world.point()]);
    for (kind, count) in [("put", puts), ("get", gets)] {
        let name = format!("fslab_layer_tier_archive_{kind}_requests_total{{");
        let line = metrics.lines().find(|line| line.starts_with(&name)).unwrap();
        assert!(line.contains("archive=\"") && line.ends_with(&format!(" {count}")), "{line}");
    }
    let prices = world.beside("prices.toml");
    let archives = world.fslab(&["tier", "archives", "--prices", &prices, world.point()]);
    assert!(archives.contains("cost: EUR "), "{archives}");
    fs::write(world.place.point.join("new"), noise(1, MIB)).unwrap();
    let plan = ["tier", "archive", "--plan", "--prices", &prices, world.point()];
    let plan = world.fslab(&plan);
    let expected =
        ["would archive 1 file", "at most ", "cost: at most EUR ", "nothing was changed"];
    assert!(expected.iter().all(|part| plan.contains(part)), "{plan}");

    // The requests of the mount are recorded in the tier's home.
    world.fslab(&["umount", world.point()]);
    let lower = world.place.lower.to_str().unwrap();
    let later = world.events(&["archives", lower])[0]["put_requests"].as_u64().unwrap();
    assert!(later > puts, "{later} of {puts}");
}

#[test]
fn plans_are_true_and_costs_are_counted_for_a_store_in_memory() {
    if can_not_mount("tier_costs::memory") {
        return;
    }
    let store = MemoryStore::start().unwrap();
    check_costs(store.port());
}

#[test]
fn plans_are_true_and_costs_are_counted_for_seaweedfs() {
    const TEST: &str = "tier_costs::seaweedfs";
    if can_not_mount(TEST) {
        return;
    }
    let server = match Server::seaweedfs() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return skip(TEST, &format!("{error}; `cargo xtask setup` installs it"));
        }
        server => server.unwrap(),
    };
    check_costs(server.port());
}

#[test]
fn wrong_prices_are_one_line_and_exit_code_3() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("prices.toml");
    fs::write(&file, PRICES.replace("get_per_1000", "get")).unwrap();
    let run = |arguments: &[&str]| {
        let Output { status, stderr, .. } = crate::support::fslab(arguments).output().unwrap();
        (status.code(), String::from_utf8_lossy(&stderr).into_owned())
    };
    let (file, tree) = (file.to_str().unwrap(), scratch.path().to_str().unwrap());
    let (code, message) = run(&["tier", "archive", "-n", "--prices", file, tree]);
    assert_eq!((code, message.lines().count()), (Some(3), 1), "{message}");
    assert!(message.contains("prices.toml, line 6: unknown field `get`"), "{message}");
    let (code, message) = run(&["tier", "archive", "--prices", file, tree]);
    assert!(code == Some(2) && message.contains("--dry-run"), "{message}");
}
