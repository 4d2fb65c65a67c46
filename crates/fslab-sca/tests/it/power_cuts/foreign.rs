//! Tests of a power cut while a foreign file is emptied and becomes a stored file.

use std::sync::Arc;

use fslab_layers::LayerChoice;
use fslab_vfs::{FileSystem, Ino, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::{CrashFs, Order, Plan, State};

const LAYER: &str = "copy:chunk=4KiB,threads=1,cache=0";

/// The file has its old content, is empty, or has its new content. A mount never shows the encoded
/// bytes of the stored file as content, and never mistakes the old content for a damaged stored
/// file.
#[test]
fn foreign_file_is_old_empty_or_new_after_a_power_cut() {
    let crash = Arc::new(CrashFs::default());
    // Zeros at the beginning look like a head that was never written.
    let mut before = vec![0; 6000];
    Client::new(&*crash).file(Ino::ROOT, "file", &before).unwrap();
    let layer = crate::layer(LAYER);
    let built = layer.build(crash.clone()).unwrap();
    let client = Client::new(&*built);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(5000, b"foreign").unwrap();
    file.close().unwrap();
    before[5000..5007].copy_from_slice(b"foreign");
    crash.settle().unwrap();
    let start = crash.position();
    let file = client.open(ino, OpenMode::READ_WRITE | OpenMode::TRUNCATE).unwrap();
    file.write_all(0, b"after").unwrap();
    file.close().unwrap();
    let mut visit = |state: &State| {
        let found = content(&layer, state)?;
        let is_right = found == before || found.is_empty() || found == b"after";
        if is_right { Ok(()) } else { Err(format!("{} bytes were found", found.len())) }
    };
    let (log, plan) = (crash.log(), Plan::full(1));
    for order in [Order::Independent, Order::Journal] {
        log.for_each_state(order, &plan, &|point| point >= start, &mut visit).unwrap();
    }
}

fn content(layer: &LayerChoice, state: &State) -> Result<Vec<u8>, String> {
    let told = |error: fslab_vfs::Error| error.to_string();
    let memory: Arc<dyn FileSystem> = Arc::new(state.open().unwrap());
    let built = layer.build(memory).map_err(|error| error.to_string())?;
    let client = Client::new(&*built);
    let ino = client.lookup(Ino::ROOT, "file").map_err(told)?.ino;
    client.contents(ino).map_err(told)
}
