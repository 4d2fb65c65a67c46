//! A directory of stored files belongs to one program at a time.

use std::path::Path;
use std::sync::Arc;

use fslab_layers::sca::Tool;
use fslab_layers::{Error, Stack};
use fslab_vfs::testing::client::Client;
use fslab_vfs::{FileSystem, Ino, OpenMode};
use tempfile::TempDir;

fn directory() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn mount(layer: &str, path: &Path) -> Result<Arc<dyn FileSystem>, Error> {
    format!("{layer} / {}", path.display()).parse::<Stack>().unwrap().build()
}

#[track_caller]
fn refused(path: &Path) {
    match mount("zstd", path).map(drop) {
        Err(Error::InUse { layer: "zstd" }) => {}
        other => panic!("{}: {other:?}", path.display()),
    }
}

#[test]
fn a_second_mount_is_refused_and_so_are_those_inside_and_around() {
    let top = directory();
    let inner = top.path().join("middle/inner");
    let beside = top.path().join("beside");
    std::fs::create_dir_all(&inner).unwrap();
    std::fs::create_dir(&beside).unwrap();
    let middle = mount("gzip", &top.path().join("middle")).unwrap();
    refused(&top.path().join("middle"));
    refused(&inner);
    refused(top.path());
    drop(mount("copy", &beside).unwrap());
    drop(middle);
    drop(mount("copy", top.path()).unwrap());
    drop(mount("copy", &inner).unwrap());
}

#[test]
fn tools_are_refused_while_a_mount_lives_and_share_otherwise() {
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
    assert_eq!(one.check(&|_, _| {}).unwrap(), []);
    let mut content = Vec::new();
    two.cat(&mut content).unwrap();
    assert!(content == [7; 300_000]);
    let figures = two.figures().unwrap();
    assert_eq!((figures.codec, figures.form, figures.size), ("gzip", "packed", 300_000));
    assert_eq!((figures.chunks, figures.raw_chunks), (3, 0));
}

#[test]
fn what_is_no_stored_file_is_named() {
    let top = directory();
    let path = top.path().join("plain");
    std::fs::write(&path, "nothing of ours").unwrap();
    let error = Tool::open(&path).map(drop).unwrap_err().to_string();
    assert!(error.ends_with("plain is not a stored file of an fslab layer"), "{error}");
    let error = Tool::open(&top.path().join("missing")).map(drop).unwrap_err().to_string();
    assert!(error.contains("missing: "), "{error}");
}

/// Damage anywhere is found, and the rest is saved.
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
    let findings = tool.check(&|_, _| {}).unwrap();
    // Of the head, only the records mean something.
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

/// For messages: whoever reads of damage must find the file.
#[test]
fn a_file_is_called_by_its_path_below() {
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
