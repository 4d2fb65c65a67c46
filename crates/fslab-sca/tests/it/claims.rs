//! Tests that only one program at a time can use a directory of stored files, and that tools report
//! and repair damage.

use fslab_vfs_testing::scratch;
use std::path::Path;
use std::sync::Arc;

use fslab_layers::Error;
use fslab_sca::{Depth, Tool};
use fslab_vfs::{Errno, FileSystem, Ino, OpenMode};
use fslab_vfs_testing::client::Client;
use tempfile::TempDir;

fn directory() -> TempDir {
    TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

fn mount(layer: &str, path: &Path) -> Result<Arc<dyn FileSystem>, Error> {
    crate::stack(&format!("{layer} / {}", path.display())).build()
}

#[track_caller]
fn refused(path: &Path) {
    match mount("zstd", path).map(drop) {
        Err(Error::InUse { layer: "zstd" }) => {}
        other => panic!("{}: {other:?}", path.display()),
    }
}

#[test]
fn second_mount_of_a_directory_or_its_subdirectory_is_refused() {
    let top = directory();
    let inner = top.path().join("middle/inner");
    let beside = top.path().join("beside");
    std::fs::create_dir_all(&inner).unwrap();
    std::fs::create_dir(&beside).unwrap();
    let middle = mount("gzip", &top.path().join("middle")).unwrap();
    refused(&top.path().join("middle"));
    refused(&inner);
    drop(mount("copy", &beside).unwrap());
    // A mount of the parent directory still shows the other files.
    let around = mount("copy", top.path()).unwrap();
    {
        let client = Client::new(&*around);
        let met = client.lookup(Ino::ROOT, "middle").map(drop).unwrap_err();
        assert_eq!(met.errno(), Errno::BUSY);
        client.lookup(Ino::ROOT, "beside").unwrap();
    }
    drop((middle, around));
    drop(mount("copy", top.path()).unwrap());
    drop(mount("copy", &inner).unwrap());
}

#[test]
fn tools_are_refused_during_a_mount_and_share_files_otherwise() {
    let top = directory();
    let fs = mount("gzip", top.path()).unwrap();
    {
        let client = Client::new(&*fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
        file.write_all(0, &[7; 300_000]).unwrap();
        file.close().unwrap();
    }
    let path = top.path().join("file");
    let error = Tool::open(&path).map(drop).unwrap_err().to_string();
    assert!(error.contains("file: an fslab mount or tool is using it"), "{error}");
    fs.shutdown().unwrap();
    drop(fs);
    let (one, two) = (Tool::open(&path).unwrap(), Tool::open(&path).unwrap());
    refused(top.path());
    assert_eq!(one.check(Depth::Everything).unwrap(), []);
    let mut content = Vec::new();
    two.cat(&mut content).unwrap();
    assert!(content == [7; 300_000]);
    let figures = two.figures().unwrap();
    assert_eq!((figures.codec, figures.form, figures.size), ("gzip", "packed", 300_000));
    assert_eq!((figures.chunks, figures.raw_chunks), (3, 0));
}

#[test]
fn tool_error_names_a_path_that_is_not_a_stored_file() {
    let top = directory();
    let path = top.path().join("plain");
    std::fs::write(&path, "nothing of ours").unwrap();
    let error = Tool::open(&path).map(drop).unwrap_err().to_string();
    assert!(error.ends_with("plain is not a stored file of an fslab layer"), "{error}");
    let error = Tool::open(&top.path().join("missing")).map(drop).unwrap_err().to_string();
    assert!(error.contains("missing: "), "{error}");
}

/// Damage anywhere is found, and the other content is saved.
#[test]
fn checks_find_damage_and_repair_saves_the_rest() {
    let top = directory();
    let fs = mount("zstd:chunk=4KiB", top.path()).unwrap();
    let data: Vec<u8> = (0..100_000_u32).map(|number| (number / 7) as u8).collect();
    {
        let client = Client::new(&*fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
        file.write_all(0, &data).unwrap();
        file.fsync(false).unwrap();
        file.close().unwrap();
    }
    fs.shutdown().unwrap();
    drop(fs);
    let path = top.path().join("file");
    let whole = std::fs::read(&path).unwrap();
    for index in (0..whole.len()).step_by(13) {
        let mut damaged = whole.clone();
        damaged[index] ^= 0x10;
        std::fs::write(&path, &damaged).unwrap();
        check_damaged(&path, index, &data);
    }
}

fn check_damaged(path: &Path, index: usize, data: &[u8]) {
    let tool = Tool::open(path).unwrap();
    let findings = tool.check(Depth::Everything).unwrap();
    // In the head, only the records have a meaning.
    let has_meaning = index >= 1024 || (64..112).contains(&index);
    assert!(!findings.is_empty() || !has_meaning, "byte {index} was not found");
    let mut saved = vec![0; data.len()];
    let mut save = |offset: u64, content: &[u8]| {
        saved[offset as usize..offset as usize + content.len()].copy_from_slice(content);
        Ok(())
    };
    let answer = tool.salvage(&mut save).unwrap();
    assert_eq!(answer.size as usize, data.len(), "byte {index}");
    assert!(answer.lost.len() <= 1, "byte {index}: {} chunks lost", answer.lost.len());
    for lost in &answer.lost {
        let end = (lost.offset as usize + 4096).min(data.len());
        saved[lost.offset as usize..end].copy_from_slice(&data[lost.offset as usize..end]);
    }
    assert!(saved == data, "byte {index}");
}

/// A file that was copied in has no checkpoint, so the mount walks from header to header. An
/// earlier version silently lost the frames after a damaged header.
#[test]
fn damaged_header_loses_only_its_chunk_and_is_reported() {
    for chunk in [1, 5, 24] {
        let top = directory();
        let data: Vec<u8> = (0..100_000_u32).map(|number| (number / 7) as u8).collect();
        let path = stored("zstd:chunk=4KiB", top.path(), &data);
        damage_header(&path, chunk);
        let tool = Tool::open(&path).unwrap();
        assert!(!tool.check(Depth::Everything).unwrap().is_empty(), "chunk {chunk}");
        let mut shown = Vec::new();
        let error = tool.cat(&mut shown).unwrap_err().to_string();
        assert!(error.contains("file: offset "), "{error}");
        assert!(data.starts_with(&shown), "chunk {chunk}");
        let mut saved = vec![0; data.len()];
        let mut save = |offset: u64, content: &[u8]| {
            saved[offset as usize..offset as usize + content.len()].copy_from_slice(content);
            Ok(())
        };
        let answer = tool.salvage(&mut save).unwrap();
        drop(tool);
        assert!(fslab_sca::pack(&path, &|_| ()).is_err(), "chunk {chunk}: packed without");
        assert_eq!(answer.size as usize, data.len(), "chunk {chunk}");
        assert!(!answer.missing.is_empty(), "chunk {chunk}");
        let lost = chunk * 4096..data.len().min((chunk + 1) * 4096);
        saved[lost.clone()].copy_from_slice(&data[lost]);
        assert!(saved == data, "chunk {chunk}: more than that chunk is lost");
    }
}

/// Writes and closes a file through a mount, unmounts it, and returns the path of the stored file.
fn stored(layer: &str, directory: &Path, data: &[u8]) -> std::path::PathBuf {
    let fs = mount(layer, directory).unwrap();
    let client = Client::new(&*fs);
    let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
    file.write_all(0, data).unwrap();
    file.close().unwrap();
    fs.shutdown().unwrap();
    directory.join("file")
}

/// Damages two bytes in the header of a chunk's frame; a single byte would be repaired.
fn damage_header(path: &Path, chunk: usize) {
    let mut lines = Vec::new();
    Tool::open(path).unwrap().dump(&mut lines).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    let line = lines.lines().find(|line| line.contains(&format!("data      chunk {chunk} ")));
    let offset: usize = line.unwrap().split_whitespace().next().unwrap().parse().unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset + 30] ^= 1;
    bytes[offset + 31] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// In a file that was closed cleanly, a damaged body must not be mistaken for a torn write. An
/// earlier version silently saved the chunk's old content instead.
#[test]
fn salvage_does_not_replace_a_damaged_chunk_with_old_content() {
    let top = directory();
    let path = stored("copy:chunk=4KiB", top.path(), &[1; 20_000]);
    let fs = mount("copy:chunk=4KiB", top.path()).unwrap();
    {
        let client = Client::new(&*fs);
        let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(4096, &[2; 4096]).unwrap();
        file.write_all(8192, &[3; 4096]).unwrap();
        file.close().unwrap();
    }
    fs.shutdown().unwrap();
    drop(fs);
    let mut bytes = std::fs::read(&path).unwrap();
    let place = (0..bytes.len()).find(|at| bytes[*at..].starts_with(&[2; 100])).unwrap();
    bytes[place] = 9;
    std::fs::write(&path, bytes).unwrap();
    let tool = Tool::open(&path).unwrap();
    assert_eq!(tool.check(Depth::Everything).unwrap().len(), 1);
    assert!(tool.cat(&mut Vec::new()).is_err());
    let answer = tool.salvage(&mut |_, _| Ok(())).unwrap();
    assert_eq!(answer.lost.iter().map(|lost| lost.chunk).collect::<Vec<_>>(), [Some(1)]);
}

/// Checkpoints of long tails contain whole blocks, which are freed once no slot refers to them.
#[test]
fn obsolete_checkpoints_are_not_reported_as_damage() {
    let top = directory();
    let fs = mount("copy:pack=off", top.path()).unwrap();
    {
        let client = Client::new(&*fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
        for round in 0..400 {
            file.write_all(round * 100, &[7; 100]).unwrap();
            file.fsync(false).unwrap();
        }
        file.close().unwrap();
    }
    fs.shutdown().unwrap();
    drop(fs);
    let tool = Tool::open(&top.path().join("file")).unwrap();
    assert_eq!(tool.check(Depth::Everything).unwrap(), []);
}

/// Messages contain the path in the lower directory, so that a user can find the damaged file.
#[test]
fn path_below_returns_the_path_in_the_lower_directory() {
    let directory = directory();
    std::fs::create_dir(directory.path().join("in")).unwrap();
    std::fs::write(directory.path().join("in/file"), b"foreign").unwrap();
    let fs = mount("zstd", directory.path()).unwrap();
    let client = Client::new(&*fs);
    let parent = client.lookup(Ino::ROOT, "in").unwrap().ino;
    let ino = client.lookup(parent, "file").unwrap().ino;
    let expected = directory.path().canonicalize().unwrap().join("in/file");
    assert_eq!(fs.path_below(ino), Some(expected));
}
