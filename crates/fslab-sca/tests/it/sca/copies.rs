//! Tests that a mount of a lower directory which was copied without xattrs shows the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use fslab_sca::convert::Direction;
use fslab_sca::{Depth, Tool};
use fslab_vfs::{Errno, FileSystem, HostFs, HostOptions, Ino, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::scratch;
use fslab_vfs_testing::skip::skip;
use tempfile::TempDir;

use super::below::{CODECS, mixed, text};
use super::identity::convert_all;

fn mount(codec: &str, root: &Path) -> Arc<dyn FileSystem> {
    let stack = format!("{codec}:chunk=4KiB,threads=1,pack=off / {}", root.display());
    let built = crate::stack(&stack).build();
    built.unwrap_or_else(|error| panic!("{}: {error}", root.display()))
}

/// Makes a stored file in each state; returns their contents. The layer is not shut down.
fn make_stored_files(codec: &str, root: &Path) -> BTreeMap<String, Vec<u8>> {
    let fs = mount(codec, root);
    let client = Client::new(&*fs);
    for (name, content) in [("packed", mixed(50_000)), ("emptied", text(100)), ("log", text(9))] {
        client.file(Ino::ROOT, name, &content).unwrap();
    }
    client.file(Ino::ROOT, "empty", b"").unwrap();
    let open = |name: &str| client.create(Ino::ROOT, name, 0o644, OpenMode::READ_WRITE).unwrap().1;
    let emptied = open("emptied");
    emptied.truncate(0).unwrap();
    emptied.close().unwrap();
    let log = open("log");
    for round in 0..6 {
        for chunk in (0..10).rev() {
            let start = chunk as usize * 7 + round;
            log.write_all(chunk * 4096, &mixed(60_000)[start..start + 5000]).unwrap();
        }
    }
    log.close().unwrap();
    let tail = open("tail");
    for piece in text(1000).chunks(100).chain(text(5000).chunks(77)) {
        let end = tail.attr().unwrap().size;
        tail.write_all(end, piece).unwrap();
    }
    tail.close().unwrap();
    let sparse = open("sparse");
    sparse.write_all(3 << 20, &text(3000)).unwrap();
    sparse.truncate(5 << 20).unwrap();
    sparse.close().unwrap();
    open("only a size").truncate(12_345).unwrap();
    // This file is written and never closed.
    let unclosed = open("unclosed");
    unclosed.write_all(0, &mixed(20_000)).unwrap();
    unclosed.fsync(false).unwrap();
    unclosed.write_all(10_000, &text(20_000)).unwrap();
    let contents = client.names(Ino::ROOT).unwrap().into_iter().map(|name| {
        let ino = client.lookup(Ino::ROOT, &name).unwrap().ino;
        (name, client.contents(ino).unwrap())
    });
    let contents = contents.collect();
    std::mem::forget(unclosed);
    contents
}

/// Returns the contents as a mount of a copy shows them.
fn shown(codec: &str, root: &Path) -> BTreeMap<String, Vec<u8>> {
    let fs = mount(codec, root);
    let client = Client::new(&*fs);
    let names = client.names(Ino::ROOT).unwrap().into_iter().filter(|name| name != ".git");
    let contents = names.map(|name| {
        let attr = client.lookup(Ino::ROOT, &name).unwrap();
        let content = client.contents(attr.ino).unwrap();
        assert_eq!(attr.size, content.len() as u64, "{name}");
        (name, content)
    });
    let contents = contents.collect();
    fs.shutdown().unwrap();
    contents
}

/// Commands that copy `$1` to `$2` without xattrs. git does not preserve the mode of the lock file,
/// and a mount would refuse a lock file with another mode. So git leaves the lock file out.
const COPIES: [(&str, &str); 3] = [
    ("rsync", "rsync -a \"$1/\" \"$2/\""),
    ("tar", "mkdir \"$2\" && tar -C \"$1\" -c . | tar -C \"$2\" -x"),
    (
        "git",
        "cd \"$1\" && git init -q . && echo .fslab-lock > .git/info/exclude && git add -A \
         && git -c user.name=a -c user.email=a@b commit -qm all && git clone -q . \"$2\"",
    ),
];

#[test]
fn trees_that_were_copied_without_xattrs_show_the_same_bytes() {
    for (program, script) in COPIES {
        if Command::new(program).arg("--version").output().is_err() {
            skip("trees that were copied without xattrs show the same bytes", program);
            continue;
        }
        for codec in CODECS {
            let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
            let [tree, copy] = ["tree", "copy"].map(|name| scratch.path().join(name));
            fs::create_dir(&tree).unwrap();
            let expected = make_stored_files(codec, &tree);
            assert_eq!(expected.len(), 8, "{:?}", expected.keys());
            let output = Command::new("sh")
                .args(["-e", "-c", script, "sh"])
                .args([&tree, &copy])
                .env("HOME", scratch.path())
                .output()
                .unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program}, {codec}: {message}");
            let has_mark = |root: &Path| {
                let mut value = [0; 64];
                rustix::fs::getxattr(root.join("packed"), "user.fslab.sca", &mut value[..]).is_ok()
            };
            assert_eq!((has_mark(&tree), has_mark(&copy)), (true, false), "{program}, {codec}");
            let found = shown(codec, &copy);
            for (name, content) in &expected {
                assert!(found.get(name) == Some(content), "{program}, {codec}: {name}");
            }
            is_decoded(&copy, &expected, &format!("{program}, {codec}"));
        }
    }
}

fn is_decoded(copy: &Path, expected: &BTreeMap<String, Vec<u8>>, when: &str) {
    fs::remove_dir_all(copy.join(".git")).ok();
    let host = HostFs::open(copy, &HostOptions::default()).unwrap();
    convert_all(&(Arc::new(host) as Arc<dyn FileSystem>), Direction::Decode, when);
    for (name, content) in expected {
        assert!(&fs::read(copy.join(name)).unwrap() == content, "{when}, decoded: {name}");
    }
}

/// Names and sizes in bytes of three files; the longest ends with a checkpoint.
const FILES: [(&str, usize); 3] = [("short", 3000), ("long", 30_000), ("longest", 2_000_000)];

/// Returns the offset and length of the last frame of a kind.
fn last_frame(path: &Path, kind: &str) -> (usize, usize) {
    let mut lines = Vec::new();
    Tool::open(path).unwrap().dump(&mut lines).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    let line = lines.lines().rfind(|line| line.contains(&format!(" {kind} "))).unwrap();
    let mut numbers = line.split_whitespace().map_while(|word| word.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Copies stored files without their xattrs, and flips one bit of the last frame.
fn copy_damaged(original: &Path, copy: &Path) {
    for (name, _) in FILES {
        let mut stored = fs::read(original.join(name)).unwrap();
        let kind = if name == "longest" { "checkpoint" } else { "data" };
        let (last, frame_bytes) = last_frame(&original.join(name), kind);
        stored[last + frame_bytes - 20] ^= 1;
        fs::write(copy.join(name), &stored).unwrap();
    }
}

/// Returns the lengths of the files of `copy_damaged`, as a mount shows them.
fn lengths(codec: &str, copy: &Path) -> [Result<usize, Errno>; 3] {
    let fs = mount(codec, copy);
    let client = Client::new(&*fs);
    let length = |(name, _): (&str, usize)| {
        let read = client.lookup(Ino::ROOT, name).and_then(|attr| client.contents(attr.ino));
        read.map(|content| content.len()).map_err(|error| error.errno())
    };
    let lengths = FILES.map(length);
    fs.shutdown().unwrap();
    lengths
}

/// Damage at the end looks like the result of a crash. If there was no crash, the file is refused.
/// `fslab sca verify` always finds the damage.
#[test]
fn damage_at_the_end_of_a_copy_is_not_mistaken_for_a_crash() {
    for codec in CODECS {
        let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        let [original, copy, crashed] = ["original", "copy", "crashed"].map(|name| {
            fs::create_dir(scratch.path().join(name)).unwrap();
            scratch.path().join(name)
        });
        {
            let fs = mount(codec, &original);
            let client = Client::new(&*fs);
            for (name, bytes) in FILES {
                client.file(Ino::ROOT, name, &text(bytes)).unwrap();
            }
            fs.shutdown().unwrap();
        }
        copy_damaged(&original, &copy);
        for (name, _) in FILES.iter().take(2) {
            let path = copy.join(name);
            let before = fs::read(&path).unwrap();
            assert!(has_findings(&path), "{codec}, {name}");
            // Packing must not remove the damaged content with the garbage.
            fslab_sca::pack(&path, &|_| {}).expect_err(name);
            assert!(fs::read(&path).unwrap() == before, "{codec}, {name}");
        }
        // The frames before a damaged checkpoint contain the same information.
        let found = [Err(Errno::IO), Err(Errno::IO), Ok(FILES[2].1)];
        assert_eq!(lengths(codec, &copy), found, "{codec}");

        // This mount is never unmounted, as after a crash, so the damaged bytes may not have been
        // synced.
        let fs = mount(codec, &crashed);
        Client::new(&*fs).file(Ino::ROOT, "file", &text(3000)).unwrap();
        drop(fs);
        copy_damaged(&original, &crashed);
        let [short, long, longest] = lengths(codec, &crashed);
        assert!(short == Ok(0) && long.is_ok_and(|bytes| bytes < 30_000), "{codec}: {long:?}");
        assert_eq!(longest, Ok(FILES[2].1), "{codec}");
        assert!(has_findings(&crashed.join("short")), "{codec}");
    }
}

fn has_findings(path: &Path) -> bool {
    !Tool::open(path).unwrap().check(Depth::Everything).unwrap().is_empty()
}
