//! Chunks that are decoded before they are asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_layers::LayerChoice;
use fslab_vfs::testing::client::Client;
use fslab_vfs::{FileSystem, Handle, Ino, MemFs, OpenMode, Request, Result};

use super::below::{text, write_file};

const CHUNK: usize = 16 << 10;
const CHUNKS: usize = 40;
const LAYER: &str = "zstd:chunk=16KiB,threads=2";

/// Counts the reads of more than a header: of frames with content.
#[derive(Default)]
struct Counting {
    inner: MemFs,
    frames_read: AtomicU64,
}

impl FileSystem for Counting {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let count = self.inner.read(request, ino, handle, offset, buffer)?;
        self.frames_read.fetch_add(u64::from(buffer.len() > CHUNK / 2), Ordering::SeqCst);
        Ok(count)
    }
}

impl Counting {
    fn frames_read(&self) -> usize {
        self.frames_read.load(Ordering::SeqCst) as usize
    }

    fn wait_for(&self, frames: usize) {
        while self.frames_read() < frames {
            std::thread::yield_now();
        }
    }
}

/// Content that is stored raw, so that frames are as long as chunks.
fn content() -> Vec<u8> {
    super::below::random(5, CHUNK * CHUNKS)
}

fn mounted(below: &Arc<Counting>, data: &[u8]) -> Arc<dyn FileSystem> {
    let layer: LayerChoice = LAYER.parse().unwrap();
    let fs = layer.build(Arc::clone(below) as Arc<dyn FileSystem>).unwrap();
    write_file(&*fs, "file", data);
    fs
}

/// The chunks behind a reader in sequence are read while he is busy with what he has, each once.
#[test]
fn a_reader_in_sequence_finds_chunks_decoded() {
    let (below, data) = (Arc::new(Counting::default()), content());
    let fs = mounted(&below, &data);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::empty()).unwrap();
    let before = below.frames_read();
    for chunk in 0..CHUNKS {
        let place = chunk * CHUNK;
        let found = file.read(place as u64, CHUNK).unwrap();
        assert!(found == data[place..place + CHUNK], "chunk {chunk}");
        if chunk >= 1 {
            below.wait_for(before + (chunk + 3).min(CHUNKS));
        }
    }
    assert_eq!(below.frames_read() - before, CHUNKS, "frames were read twice");
    file.close().unwrap();
}

/// Chunks that were decoded ahead are written again before the reader comes to them.
#[test]
fn what_was_written_meanwhile_is_what_is_read() {
    let (below, mut data) = (Arc::new(Counting::default()), text(CHUNK * CHUNKS));
    let fs = mounted(&below, &data);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    for round in 0..20 {
        for chunk in 0..CHUNKS {
            let place = chunk * CHUNK;
            let found = file.read(place as u64, CHUNK).unwrap();
            assert!(found == data[place..place + CHUNK], "round {round}, chunk {chunk}");
            let next = (place + CHUNK + 100) % data.len();
            data[next] = round;
            file.write_all(next as u64, &[round]).unwrap();
        }
    }
    file.close().unwrap();
}
