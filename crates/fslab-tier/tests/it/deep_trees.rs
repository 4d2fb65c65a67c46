//! Trees so deep that a recursive walk would overflow the stack. Any user may make such a tree.

use std::sync::Arc;

use fslab_tier::archive::Archive;
use fslab_tier::catalogue::Catalogue;
use fslab_tier::stored::{Marks, TreeMark};
use fslab_tier::{Found, Visit, own_request, rebuild};
use fslab_vfs::{FileKind, FileSystem, Ino, MemFs};
use fslab_vfs_testing::client::Client;

use crate::support::{Bench, TIER, noise};

const LEVELS: usize = 10_000;

/// The stack size of the tests. Recursion would need more, even with little stack for each level.
const STACK_BYTES: usize = 512 << 10;

/// Calls a function in a thread with a small stack.
fn with_little_stack(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, work).unwrap().join().unwrap();
    });
}

/// Makes nested directories with a file in the innermost one; returns its path.
fn dig(client: &Client<'_>, data: &[u8]) -> String {
    let mut inner = Ino::ROOT;
    for _ in 0..LEVELS {
        let outer = inner;
        inner = client.mkdir(outer, "d").unwrap();
        client.forget(outer);
    }
    client.file(inner, "file", data).unwrap();
    "d/".repeat(LEVELS) + "file"
}

#[test]
fn a_tree_deeper_than_the_stack_is_walked() {
    let bench = Bench::new();
    let path = dig(&bench.below(), &[]);
    let (mut directories, mut files) = (0, Vec::new());
    with_little_stack(|| {
        let walked = bench.tier.walk(b"", &own_request(), &mut |place| {
            match place.found.attr.kind {
                FileKind::Directory => directories += 1,
                _ => files.push(place.path.to_vec()),
            }
            Ok(Visit::Descend)
        });
        walked.unwrap();
    });
    assert!(directories == LEVELS + 1 && files == [path.as_bytes()], "{directories} directories");
}

/// No tree was archived, so each directory is made for the file in it.
#[test]
fn path_deeper_than_the_stack_is_rebuilt() {
    let (bench, data) = (Bench::new(), noise(80, 100));
    let path = dig(&bench.below(), &data);
    let file = Found::at(&bench.lower, path.as_bytes()).unwrap();
    bench.archive(file.ino(), &path).unwrap();
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let archives = [Arc::clone(&bench.archives[0]) as Arc<dyn Archive>];
    let catalogue = Catalogue::in_memory().unwrap();
    with_little_stack(|| {
        let (around, request) = (&bench.around, own_request());
        let made = rebuild::rebuild(
            rebuild::Options::default(),
            &lower,
            &archives,
            &catalogue,
            (around, TIER),
            &request,
        );
        let made = made.unwrap();
        assert_eq!((made.younger, made.problems), (1, vec![]));
    });
    assert_eq!(Found::at(&lower, path.as_bytes()).unwrap().attr.size, data.len() as u64);
}
