//! Tests that no user can read another user's file by forging a residency.

use std::sync::Arc;

use fslab_tier::archive::DirectoryArchive;
use fslab_tier::catalogue::Catalogue;
use fslab_tier::stored::{Marks, TreeMark};
use fslab_tier::{Settings, own_request, rebuild};
use fslab_vfs::{Errno, FileSystem, Ino, MemFs, OpenMode, SetAttr};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::{CrashFs, Order, Plan, State};

use crate::support::{Bench, MIB, TIER, noise};

/// The ordinary user who owns the tier.
pub const OWNER: u32 = 1000;

pub fn give(fs: &dyn FileSystem, ino: Ino, uid: u32) {
    let changes = SetAttr { uid: Some(uid), ..SetAttr::default() };
    fs.setattr(&own_request(), ino, None, &changes).unwrap();
}

/// Makes a tier of an ordinary user.
fn own_bench() -> Bench {
    let lower = Arc::new(MemFs::default());
    give(&*lower, Ino::ROOT, OWNER);
    Bench::of(lower, Settings::of(TIER), Marks::Own(OWNER))
}

/// Copies the residency of `from` to the xattr `name` of `to`, with the inode of `to`.
fn forge(bench: &Bench, from: Ino, to: Ino, name: &str) {
    let mut known = bench.residency(from).unwrap();
    let attr = bench.lower.getattr(&own_request(), to, None).unwrap();
    known.inode = (bench.around.inode_identity)(&attr);
    bench.below().setxattr(to, name, &known.encode().unwrap()).unwrap();
}

#[test]
fn roots_tier_ignores_xattrs_that_a_user_can_write() {
    let bench = Bench::new();
    let client = bench.client();
    let secret = bench.offline(&client, "secret", &noise(1, MIB));
    let mine = bench.below().file(Ino::ROOT, "mine", &vec![0; MIB as usize]).unwrap();
    forge(&bench, secret, mine, "user.fslab.tier");
    let read = bench.bytes_recalled();
    let mine = client.lookup(Ino::ROOT, "mine").unwrap().ino;
    assert_eq!(client.contents(mine).unwrap(), vec![0; MIB as usize]);
    assert_eq!(bench.bytes_recalled(), read);
}

#[test]
fn users_tier_trusts_xattrs_only_on_the_users_own_files() {
    let bench = own_bench();
    let client = bench.client();
    let secret = client.file(Ino::ROOT, "secret", &noise(2, MIB)).unwrap();
    give(&*bench.lower, secret, OWNER);
    bench.archive(secret, "secret").unwrap();
    bench.release(secret, "secret").unwrap();
    let theirs = bench.below().file(Ino::ROOT, "theirs", &vec![0; MIB as usize]).unwrap();
    forge(&bench, secret, theirs, "user.fslab.tier");
    let read = bench.bytes_recalled();
    let found = client.lookup(Ino::ROOT, "theirs").unwrap().ino;
    let refused = client.open(found, OpenMode::empty()).map(drop).unwrap_err();
    assert_eq!(refused.errno(), Errno::IO);
    assert_eq!(bench.bytes_recalled(), read);
    assert_eq!(client.contents(secret).unwrap(), noise(2, MIB));
}

#[test]
fn users_tier_does_not_archive_files_of_other_users() {
    let bench = own_bench();
    let theirs = bench.client().file(Ino::ROOT, "theirs", &noise(3, MIB)).unwrap();
    let refused = bench.archive(theirs, "theirs").unwrap_err().to_string();
    assert!(refused.contains("belongs to another user"), "{refused}");
    assert_eq!(bench.archives[0].containers(), 0);
}

#[test]
fn tree_xattr_is_accepted_only_from_the_trees_owner() {
    let (lower, mark) = (MemFs::default(), TreeMark::of(TIER));
    let read = |marks: Marks| marks.read_tree(&lower);
    let write = |marks: Marks| marks.write_tree(&lower, &mark);
    assert_eq!(write(Marks::Own(OWNER)).unwrap_err().errno(), Errno::PERM);
    give(&lower, Ino::ROOT, OWNER);
    write(Marks::Own(OWNER)).unwrap();
    assert_eq!(read(Marks::Own(OWNER)).unwrap(), Some(mark.clone()));
    let refused = read(Marks::Trusted).unwrap_err().to_string();
    assert!(refused.contains("root does not trust this xattr"), "{refused}");
    give(&lower, Ino::ROOT, OWNER + 1);
    let refused = read(Marks::Own(OWNER)).unwrap_err().to_string();
    assert!(refused.contains("another user"), "{refused}");
    write(Marks::Trusted).unwrap();
    assert_eq!(read(Marks::Trusted).unwrap(), Some(mark));
}

#[test]
fn symlinks_in_an_archive_do_not_lead_outside() {
    let directory = tempfile::tempdir().unwrap();
    let (archive, outside) = (directory.path().join("archive"), directory.path().join("outside"));
    std::fs::create_dir(&archive).unwrap();
    std::fs::create_dir(&outside).unwrap();
    DirectoryArchive::init(&archive, fslab_tier::Id([1; 16]), TIER, None).unwrap();
    let stray = archive.join("incoming/notes");
    std::fs::write(&stray, "no container").unwrap();
    drop(DirectoryArchive::open(&archive, TIER).unwrap());
    assert!(stray.exists());
    std::fs::remove_file(&stray).unwrap();

    std::fs::remove_file(archive.join("lease")).unwrap();
    std::os::unix::fs::symlink(outside.join("made"), archive.join("lease")).unwrap();
    assert!(DirectoryArchive::open(&archive, TIER).is_err());
    assert!(!outside.join("made").exists());
    std::fs::remove_file(archive.join("lease")).unwrap();

    let victim = outside.join(TIER.to_string());
    std::fs::write(&victim, "not the archive's").unwrap();
    std::fs::remove_dir(archive.join("incoming")).unwrap();
    std::os::unix::fs::symlink(&outside, archive.join("incoming")).unwrap();
    let refused = DirectoryArchive::open(&archive, TIER).map(drop).unwrap_err().to_string();
    assert!(refused.contains("`incoming` is not a directory"), "{refused}");
    assert!(victim.exists());
}

#[test]
fn rebuild_reports_a_stub_with_an_untrusted_xattr() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = bench.offline(&client, "file", &noise(4, MIB));
    bench.tier.archive_tree(&own_request()).unwrap();
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let below = Client::new(&*lower);
    let stub = below.file(Ino::ROOT, "file", b"").unwrap();
    let known = bench.residency(ino).unwrap();
    below.setxattr(stub, "user.fslab.tier", &known.encode().unwrap()).unwrap();
    let (archives, catalogue) = (bench.tier.archives(), Catalogue::in_memory().unwrap());
    let request = own_request();
    let made = rebuild::rebuild(
        rebuild::Options::default(),
        &lower,
        &archives,
        &catalogue,
        (&bench.around, TIER),
        &request,
    );
    let problems = made.unwrap().problems;
    assert!(problems.iter().any(|problem| problem.contains("does not trust")), "{problems:?}");
}

/// A tree without its mark would appear to belong to no tier.
#[test]
fn mark_of_a_tree_is_durable_once_it_is_written() {
    let crash = CrashFs::default();
    crash.settle().unwrap();
    Marks::Trusted.write_tree(&crash, &TreeMark::of(TIER)).unwrap();
    let end = crash.position();
    let mut visit = |state: &State| {
        let found = Marks::Trusted.read_tree(&state.open().unwrap()).unwrap();
        found.map(drop).ok_or_else(|| "the tree has no mark".to_owned())
    };
    let plan = Plan { seed: 1, subsets: 8, prefixes: 4 };
    let states = crash.log().for_each_state(Order::Journal, &plan, &|at| at == end, &mut visit);
    assert!(states.unwrap() > 0);
}
