//! Tests of changes between two steps of an operation on a file in use.

use std::sync::mpsc;

use fslab_vfs::MemFs;

use super::*;
use crate::commit::Stop;
use crate::staged_memory::BYTES_MAX;
use crate::testing::logs::file_in;
use crate::workers::Workers;
use crate::{codec, options};

/// Returns a new empty file in memory, its lower file, and the settings of a zstd layer.
fn new_file() -> (StoredFile, LowerFile, Arc<Settings>) {
    let settings = Arc::new(options::of_packing(&codec::zstd::SPEC, false).unwrap());
    let (file, lower) = file_with(&settings);
    (file, lower, settings)
}

/// Returns a new empty file in memory, and its lower file.
fn file_with(settings: &Arc<Settings>) -> (StoredFile, LowerFile) {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    let lower = file_in(Arc::clone(&fs));
    let opened =
        OpenBelow { ino: lower.ino, handle: lower.handle, is_writable: true, is_new: true };
    (StoredFile::open(&fs, settings, &Request::default(), opened).unwrap(), lower)
}

/// If no thread has time to encode, writers encode their oldest chunks themselves.
#[test]
fn staged_chunks_of_several_files_take_bounded_memory() {
    const CHUNK: usize = 1 << 20;
    const FILES: usize = 6;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let settings = Arc::new(Settings {
        stages: true,
        chunk_log2: 20,
        workers: Workers::new(pool),
        ..options::of_packing(&codec::zstd::SPEC, false).unwrap()
    });
    let (end, ended) = mpsc::channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    for _ in 0..2 {
        let ended = Arc::clone(&ended);
        settings.workers.spawn(move || assert!(ended.lock().recv().is_err(), "no message is sent"));
    }
    let files: Vec<_> = (0..FILES).map(|_| file_with(&settings).0).collect();
    let (request, mut most) = (Request::default(), 0);
    for round in 0..14 {
        for file in &files {
            let options = WriteOptions::default();
            assert_eq!(file.write(&request, Place::End, &[round; CHUNK], options).unwrap(), CHUNK);
            most = most.max(settings.staged.bytes());
        }
    }
    drop(end);
    assert!(most > BYTES_MAX / 2, "at most {most} bytes were staged");
    assert!(most <= BYTES_MAX + (FILES + 1) * CHUNK, "{most} bytes");
    for file in &files {
        file.sync(&request, true).unwrap();
        let mut found = vec![0; 14 * CHUNK];
        assert_eq!(file.read(&request, 0, &mut found, None).unwrap(), found.len());
        assert!(found.chunks(CHUNK).zip(0..).all(|(chunk, round)| *chunk == [round; CHUNK]));
    }
}

/// A seek table that is older than the last frame would direct tools to the wrong bytes.
#[test]
fn seek_table_is_not_appended_after_a_concurrent_change() {
    for is_changed in [false, true] {
        let (file, lower, settings) = new_file();
        let request = Request::default();
        let data = vec![1; settings.encoding().chunk_bytes as usize + 1];
        file.write(&request, Place::At(0), &data, WriteOptions::default()).unwrap();
        let steps = file.in_steps(&request).unwrap();
        let closing = unless_gone(closing_in_steps(&steps)).unwrap().flatten().unwrap();
        if is_changed {
            file.write(&request, Place::End, b"more", WriteOptions::default()).unwrap();
        }
        let before = lower.length(&request).unwrap();
        file.append_closing(&steps, closing).unwrap();
        let is_appended = lower.length(&request).unwrap() > before;
        assert_eq!(is_appended, !is_changed);
    }
}

/// Encoding begins before it is the writer's turn; until then, another writer may move the end of
/// the file.
#[test]
fn data_encoded_for_another_offset_is_not_written() {
    let (file, _, settings) = new_file();
    let request = Request::default();
    let chunk = settings.encoding().chunk_bytes as usize;
    let data: Vec<u8> = (0..3 * chunk).map(|at| (at / chunk) as u8 + 1).collect();
    // If the write begins at chunk 0, it fills chunk 1 with twos. If it begins at chunk 1, it fills
    // that chunk with ones.
    let mut prepared = file.pre_encode(Place::End, &data).unwrap();
    file.write(&request, Place::At(0), &vec![9; chunk], WriteOptions::default()).unwrap();
    let write = (Place::End, data.as_slice());
    file.change(&request, |state| {
        state.write(&request, &settings, write, &mut prepared, WriteOptions::default())
    })
    .unwrap();
    let mut found = vec![0; 4 * chunk];
    assert_eq!(file.read(&request, 0, &mut found, None).unwrap(), 4 * chunk);
    assert!(found == [vec![9; chunk], data].concat());
}

/// A step of an operation must not mix the state of the old content into the new content.
#[test]
fn operation_in_steps_ends_if_its_file_was_emptied_and_rewritten() {
    let (file, _, _) = new_file();
    let request = Request::default();
    file.write(&request, Place::At(0), b"old content", WriteOptions::default()).unwrap();
    let steps = file.in_steps(&request).unwrap();
    steps.step(|_, _| Ok(())).unwrap();
    file.set_size(&request, 0, false).unwrap();
    file.write(&request, Place::At(0), b"new", WriteOptions::default()).unwrap();
    assert!(matches!(steps.look(|_, _| Ok(())), Err(Stop::Gone)));
    assert!(matches!(steps.step(|_, _| Ok(())), Err(Stop::Gone)));
    assert!(matches!(steps.look_and_note(|_, _| Ok(())), Err(Stop::Gone)));
    assert!(matches!(steps.sync_below(false), Err(Stop::Gone)));
}
