//! Recall threads that are reserved for archives, while archives are attached and detached.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::command::{Command, execute};
use fslab_tier::home::{Home, TierDescription};
use fslab_tier::{Archived, Id, Settings, own_request};
use fslab_vfs::{FileSystem, Ino, MemFs};
use fslab_vfs_testing::client::Client;

use crate::call_timeouts::Resumes;
use crate::support::{Bench, MIB, PATIENCE, TIER, noise, open, until};

fn blocked(archive: &MemoryArchive) -> u64 {
    archive.faults().blocked.load(Ordering::SeqCst)
}

#[test]
fn no_thread_stays_reserved_for_a_detached_archive() {
    let (scratch, around) = (tempfile::tempdir().unwrap(), Bench::new().around);
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    let place = |name: &str| scratch.path().join(name);
    let addresses = ["a", "b", "c", "d"].map(|name| place(name).into());
    let wish = TierDescription::usual(addresses.into(), None);
    let home = Home::init(&place("home"), &*lower, &wish, &around).unwrap();
    let ids: Vec<Id> = home.description.archives.iter().map(|archive| archive.id).collect();
    let archives: Vec<_> =
        ids.iter().map(|id| Arc::new(MemoryArchive::new(*id, &id.to_string()))).collect();
    let settings = Settings { ahead: 0, bundled: 0, ..home.settings() };
    let (tier, fs) = open(&lower, &settings, &archives, home.catalogue().unwrap(), &around);
    let client = Client::new(&*fs);
    let offline = |number: u64| {
        let (name, data) = (format!("file{number}"), noise(number, MIB));
        let ino = client.file(Ino::ROOT, &name, &data).unwrap();
        let archived = tier.archive(ino, name.as_bytes(), &own_request()).unwrap();
        assert!(matches!(archived, Archived::Now { .. }));
        assert_eq!(tier.release(ino, name.as_bytes(), 0).unwrap().bytes, MIB);
        ino
    };
    let inos: Vec<Ino> = (0..settings.movers as u64).map(offline).collect();
    for id in &ids[1..] {
        let detach = Command::Detach { archive: id.to_string() };
        execute(&tier, &detach, &own_request(), &mut |_| true).unwrap();
    }
    *archives[0].faults().stalled.lock() = true;
    std::thread::scope(|scope| {
        let _resumes = Resumes(&archives[0]);
        for ino in &inos {
            scope.spawn(|| Client::new(&*fs).contents(*ino).unwrap());
        }
        until(|| blocked(&archives[0]) == inos.len() as u64);
    });
}

#[test]
fn archive_that_is_attached_has_a_thread_reserved() {
    let settings = Settings { ahead: 0, bundled: 0, ..Settings::of(TIER) };
    let movers = settings.movers as u8;
    let bench = Bench::with(Arc::new(MemFs::default()), settings, movers);
    let new = Arc::new(MemoryArchive::new(Id([movers + 1; 16]), "new"));
    bench.tier.attach(new.clone());
    let mut inos = Vec::new();
    for (number, archive) in bench.archives.iter().chain([&new]).enumerate() {
        let name = format!("file{number}");
        inos.push(bench.offline(&bench.client(), &name, &noise(number as u64, MIB)));
        assert_eq!(archive.containers(), 1);
        archive.faults().full.store(true, Ordering::SeqCst);
    }
    bench.archives.iter().for_each(|archive| *archive.faults().stalled.lock() = true);
    std::thread::scope(|scope| {
        let resumes: Vec<_> = bench.archives.iter().map(|archive| Resumes(archive)).collect();
        let (fs, last) = (&*bench.fs, inos.pop().unwrap());
        for ino in &inos {
            scope.spawn(|| Client::new(fs).contents(*ino).unwrap());
        }
        until(|| bench.archives.iter().all(|archive| blocked(archive) > 0));
        let (done, is_done) = mpsc::channel();
        scope.spawn(move || done.send(Client::new(fs).contents(last)).unwrap_or_default());
        let read = is_done.recv_timeout(PATIENCE);
        drop(resumes);
        let read = read.expect("it waits for other archives").unwrap();
        assert!(read == noise(inos.len() as u64, MIB));
    });
}
