//! Tests of a power cut while a stored file is emptied and rewritten without syncs.

use std::sync::Arc;

use fslab_layers::LayerChoice;
use fslab_vfs::{FileSystem, Ino, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::{CrashFs, Order, Plan, State};

const CHUNK_BYTES: usize = 4096;
const CHUNKS: usize = 3;
const LAYERS: [&str; 2] =
    ["copy:chunk=4KiB,threads=1,cache=0", "gzip:chunk=4KiB,threads=1,cache=0,size-xattr=off"];

/// After a power cut, the file has all of its old content or none of it. New bytes never appear in
/// old frames, and the size always matches the readable content. Both stored files have the same
/// length, so that the old size xattr would fit the new file.
#[test]
fn rewritten_file_never_mixes_old_and_new_content() {
    for layer in LAYERS {
        for is_old_durable in [true, false] {
            let rewritten = rewrite(layer, is_old_durable);
            for order in [Order::Independent, Order::Journal] {
                if let Err(problem) = rewritten.look_at_all_states(order) {
                    panic!("{layer}, {order:?}, durable {is_old_durable}: {problem}");
                }
            }
        }
    }
}

struct Rewritten {
    layer: LayerChoice,
    crash: Arc<CrashFs>,
    /// Position in the record at which the rewriting began.
    start: usize,
}

fn rewrite(layer: &str, is_old_durable: bool) -> Rewritten {
    let layer = crate::layer(layer);
    let crash = Arc::new(CrashFs::default());
    let built = layer.build(crash.clone()).unwrap();
    let (before, after) = (vec![b'o'; CHUNKS * CHUNK_BYTES], vec![b'n'; CHUNKS * CHUNK_BYTES]);
    let client = Client::new(&*built);
    let (attr, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
    file.write_all(0, &before).unwrap();
    if is_old_durable {
        file.fsync(false).unwrap();
    }
    file.close().unwrap();
    crash.settle().unwrap();
    let start = crash.position();
    let mode = OpenMode::READ_WRITE | OpenMode::TRUNCATE;
    let file = client.open(attr.ino, mode).unwrap();
    file.write_all(0, &after).unwrap();
    if is_old_durable {
        file.fsync(false).unwrap();
    }
    file.close().unwrap();
    Rewritten { layer, crash, start }
}

impl Rewritten {
    fn look_at_all_states(&self, order: Order) -> Result<(), String> {
        let log = self.crash.log();
        let mut visit = |state: &State| self.look(state);
        log.for_each_state(order, &Plan::full(1), &|point| point >= self.start, &mut visit)
            .map(drop)
    }

    fn look(&self, state: &State) -> Result<(), String> {
        let told = |error: fslab_vfs::Error| error.to_string();
        let memory: Arc<dyn FileSystem> = Arc::new(state.open().map_err(told)?);
        let built = self.layer.build(memory).map_err(|error| error.to_string())?;
        let client = Client::new(&*built);
        let attr = client.lookup(Ino::ROOT, "file").map_err(told)?;
        let file = client.open(attr.ino, OpenMode::empty()).map_err(told)?;
        let chunks: Vec<char> = (0..attr.size)
            .step_by(CHUNK_BYTES)
            .map(|start| match file.read(start, CHUNK_BYTES) {
                Ok(bytes) if bytes.iter().all(|byte| *byte == bytes[0]) => bytes[0] as char,
                Ok(_) => '?',
                // The content is torn. This is allowed for new content, but not for old content.
                Err(_) => 'n',
            })
            .collect();
        let is_old = chunks == ['o'; CHUNKS];
        let is_part_of_new =
            chunks.len() <= CHUNKS && chunks.iter().all(|chunk| matches!(chunk, 'n' | '\0'));
        if is_old || is_part_of_new { Ok(()) } else { Err(format!("chunks {chunks:?}")) }
    }
}
