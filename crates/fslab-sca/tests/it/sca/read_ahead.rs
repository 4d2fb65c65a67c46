//! Tests of chunks that are decoded before they are requested.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fslab_vfs::{FileSystem, Handle, Ino, MemFs, OpenMode, Request, Result};
use fslab_vfs_testing::client::Client;

use super::below::{text, write_file};

const CHUNK: usize = 16 << 10;
const CHUNKS: usize = 40;
const LAYER: &str = "zstd:chunk=16KiB,threads=2";

/// A file system that counts reads longer than a header, that is, reads of content frames.
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

/// Incompressible content, stored raw, so that frames are as long as chunks.
fn content() -> Vec<u8> {
    super::below::random(5, CHUNK * CHUNKS)
}

fn mounted(below: &Arc<Counting>, data: &[u8]) -> Arc<dyn FileSystem> {
    let layer = crate::layer(LAYER);
    let fs = layer.build(Arc::clone(below) as Arc<dyn FileSystem>).unwrap();
    write_file(&*fs, "file", data);
    fs
}

/// The chunks ahead of a sequential reader are decoded while it processes earlier ones, each only
/// once.
#[test]
fn sequential_reader_finds_chunks_decoded_ahead() {
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

/// If a chunk that was decoded in advance is rewritten, the reader must see the new content.
#[test]
fn reader_sees_writes_to_chunks_decoded_ahead() {
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

/// The truncation and the rewrite replace the frames that were decoded in advance.
#[test]
fn reader_sees_new_content_after_truncation_and_rewrite() {
    let (below, data) = (Arc::new(Counting::default()), content());
    let fs = mounted(&below, &data);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::empty()).unwrap();
    let before = below.frames_read();
    for chunk in 0..2 {
        file.read((chunk * CHUNK) as u64, CHUNK).unwrap();
    }
    below.wait_for(before + 4);
    let other = super::below::random(6, CHUNK * CHUNKS);
    client.truncate(ino, 0).unwrap();
    let writer = client.open(ino, OpenMode::READ_WRITE).unwrap();
    writer.write_all(0, &other).unwrap();
    for chunk in 2..CHUNKS {
        let place = chunk * CHUNK;
        let found = file.read(place as u64, CHUNK).unwrap();
        assert!(found == other[place..place + CHUNK], "chunk {chunk}");
    }
    writer.close().unwrap();
    file.close().unwrap();
}

/// Workers that decode in advance must not wait for workers that encode for the holder of the
/// file's lock, and vice versa.
#[test]
fn sequential_reader_and_writer_do_not_deadlock() {
    const ROUNDS: u64 = 2000;
    const HUNG: Duration = Duration::from_secs(120);
    let fs = mounted(&Arc::default(), &text(CHUNK * CHUNKS));
    let (told, ended) = mpsc::channel();
    let places = |round: u64| (round * 7 % (CHUNKS as u64 - 4)) * CHUNK as u64;
    for writes in [false, true] {
        let (fs, told) = (Arc::clone(&fs), told.clone());
        std::thread::spawn(move || {
            let client = Client::new(&*fs);
            let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
            let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
            let data = text(CHUNK * 4);
            for round in 0..ROUNDS {
                let place = places(round);
                if writes {
                    file.write_all(place, &data).unwrap();
                    continue;
                }
                for chunk in 0..3 {
                    file.read(place + chunk * CHUNK as u64, CHUNK).unwrap();
                }
            }
            file.close().unwrap();
            told.send(()).unwrap();
        });
    }
    for _ in 0..2 {
        ended.recv_timeout(HUNG).expect("both wait forever");
    }
}
