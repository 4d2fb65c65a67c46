//! Tests that only root can enter a tree's closed root directory without the mount.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use fslab_tier::closed_root::Treatment;
use fslab_tier::stored::{Marks, TreeMark};
use fslab_tier::{Settings, own_request};
use fslab_vfs::{Attr, Errno, FileSystem, Handle, Ino, MemFs, Request, Result, SetAttr, XattrMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::{CrashFs, Order, Plan, State};
use parking_lot::Mutex;

use crate::support::{Bench, MIB, TIER, noise};

const ACCESS: &str = "system.posix_acl_access";

/// The successive modes of the root, as programs see them.
const MODES: [u32; 2] = [0o2755, 0o1770];

/// Bugs that tests must find.
#[derive(Clone, Copy, PartialEq)]
enum Bug {
    None,
    /// The root is never synced.
    NeverSyncs,
    /// The mode is recorded after the root is closed, instead of before.
    KeepsLate,
    /// The root does not accept ACLs.
    RefusesLists,
}

/// The tree that an engine uses, with a bug.
struct Buggy {
    inner: Arc<dyn FileSystem>,
    bug: Bug,
    late: Mutex<Option<(OsString, Vec<u8>)>>,
}

impl FileSystem for Buggy {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn fsyncdir(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        match self.bug {
            Bug::NeverSyncs => Ok(()),
            _ => self.inner.fsyncdir(request, ino, handle, data_only),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if self.bug == Bug::KeepsLate && name.as_encoded_bytes().ends_with(b"tier.mode") {
            *self.late.lock() = Some((name.to_owned(), value.to_vec()));
            return Ok(());
        }
        if self.bug == Bug::RefusesLists && name == ACCESS {
            return Err(Errno::NOSPC.into());
        }
        self.inner.setxattr(request, ino, name, value, mode)
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let attr = self.inner.setattr(request, ino, handle, changes)?;
        if let Some((name, value)) = self.late.lock().take() {
            self.inner.setxattr(request, Ino::ROOT, &name, &value, XattrMode::empty())?;
        }
        Ok(attr)
    }
}

fn life(lower: Arc<dyn FileSystem>, marks: Marks, bug: Bug) -> Bench {
    let lower = Arc::new(Buggy { inner: lower, bug, late: Mutex::default() });
    Bench::of(lower, Settings::of(TIER), marks)
}

fn mode(attr: &Attr) -> u32 {
    attr.permissions.bits()
}

/// Releases a file, sets the mode of the root through the mount, and shuts down. Checks each state
/// that a crash may leave.
fn explore(marks: Marks, bug: Bug, order: Order) -> std::result::Result<usize, String> {
    let crash = Arc::new(CrashFs::default());
    let (below, data) = (Client::new(&*crash), noise(1, MIB));
    let ino = below.file(Ino::ROOT, "file", &data).unwrap();
    below.chmod(Ino::ROOT, MODES[0]).unwrap();
    marks.write_tree(&*crash, &TreeMark::of(TIER)).unwrap();
    crash.settle().unwrap();
    let start = crash.position();
    let bench = life(crash.clone(), marks, bug);
    bench.archive(ino, "file").unwrap();
    bench.release(ino, "file").unwrap();
    bench.client().chmod(Ino::ROOT, MODES[1]).unwrap();
    bench.tier.shutdown().unwrap();
    let end = crash.position();
    let mut visit = |state: &State| {
        let fs: Arc<dyn FileSystem> = Arc::new(state.open().unwrap());
        let point = state.point;
        check(&fs, marks, &data).map_err(|problem| format!("at event {point}: {problem}"))
    };
    let plan = Plan { seed: 1, subsets: 8, prefixes: 4 };
    let wanted = |point| (start..=end).contains(&point);
    crash.log().for_each_state(order, &plan, &wanted, &mut visit)
}

fn check(fs: &Arc<dyn FileSystem>, marks: Marks, data: &[u8]) -> std::result::Result<(), String> {
    let below = Client::new(&**fs);
    let found = mode(&below.attr(Ino::ROOT).unwrap());
    let is_closed = match marks {
        Marks::Trusted => found & 0o777 == 0o400,
        Marks::Own(_) => found & 0o077 == 0,
    };
    let file = below.lookup(Ino::ROOT, "file").unwrap().ino;
    if !is_closed && below.contents(file).unwrap() != data {
        return Err(format!("the root has mode {found:o}, and its file reads as zeros"));
    }
    let bench = Bench::of(Arc::clone(fs), Settings::of(TIER), marks);
    let shown = mode(&bench.client().attr(Ino::ROOT).unwrap());
    bench.tier.shutdown().unwrap();
    let left = mode(&below.attr(Ino::ROOT).unwrap()) & 0o777;
    match (MODES.contains(&shown), left) {
        (true, 0o400) => Ok(()),
        _ => Err(format!("the mount shows mode {shown:o}, and leaves {left:o}")),
    }
}

#[test]
fn closed_root_survives_a_crash_at_every_event() {
    for marks in [Marks::Trusted, Marks::Own(0)] {
        for order in [Order::Independent, Order::Journal] {
            let states = explore(marks, Bug::None, order).unwrap();
            assert!(states > 10, "{states} states with {marks:?}");
        }
    }
}

#[test]
fn planted_bugs_in_closing_a_root_are_caught() {
    for bug in [Bug::NeverSyncs, Bug::KeepsLate] {
        let problem = explore(Marks::Trusted, bug, Order::Independent).unwrap_err();
        eprintln!("{problem}");
    }
}

/// Returns an ACL in the kernel's format, with the permissions of the owner, another user,
/// the group, the mask and others.
fn list([owner, user, group, mask, other]: [u16; 5]) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    let entries = [
        (1, owner, NOBODY),
        (2, user, 1000),
        (4, group, NOBODY),
        (16, mask, NOBODY),
        (32, other, NOBODY),
    ];
    for (tag, permissions, id) in entries {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(u16::to_le_bytes(permissions));
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

#[test]
fn mount_shows_mode_and_access_list_of_a_closed_root() {
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Client::new(&*lower).chmod(Ino::ROOT, 0o2755).unwrap();
    let bench = Bench::over(Arc::clone(&lower));
    let (client, below) = (bench.client(), bench.below());
    let modes = || [client.attr(Ino::ROOT), below.attr(Ino::ROOT)].map(|attr| mode(&attr.unwrap()));
    assert_eq!(modes(), [0o2755, 0o2400]);
    assert_eq!(mode(&client.chmod(Ino::ROOT, 0o1711).unwrap()), 0o1711);
    assert_eq!(modes(), [0o1711, 0o1400]);
    client.setxattr(Ino::ROOT, ACCESS, &list([7, 6, 5, 4, 0])).unwrap();
    assert_eq!(modes(), [0o1740, 0o1400]);
    assert_eq!(client.getxattr(Ino::ROOT, ACCESS).unwrap(), list([7, 6, 5, 4, 0]));
    assert_eq!(below.getxattr(Ino::ROOT, ACCESS).unwrap(), list([4, 6, 5, 0, 0]));
    client.chmod(Ino::ROOT, 0o751).unwrap();
    assert_eq!(client.getxattr(Ino::ROOT, ACCESS).unwrap(), list([7, 6, 5, 5, 1]));
    // An ACL of three entries is equivalent to a mode.
    client.setxattr(Ino::ROOT, ACCESS, &plain_list()).unwrap();
    assert_eq!(modes(), [0o666, 0o400]);
    assert!(client.getxattr(Ino::ROOT, ACCESS).is_err());
    assert!(!client.listxattr(Ino::ROOT).unwrap().iter().any(|name| name.contains("fslab")));
}

/// Returns an ACL that is equivalent to mode 0666.
fn plain_list() -> Vec<u8> {
    [&list([6; 5])[..12], &list([6; 5])[20..28], &list([6; 5])[36..]].concat()
}

/// When an ACL is set, the kernel requests that the set-group-ID bit is cleared if the caller is
/// not in the group of the root directory.
#[test]
fn access_list_clears_the_set_group_id_bit_of_a_closed_root() {
    for value in [list([7, 6, 5, 4, 0]), plain_list()] {
        let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let below = Client::new(&*lower);
        below.chmod(Ino::ROOT, 0o2755).unwrap();
        let bench = Bench::over(Arc::clone(&lower));
        let (name, how) = (OsStr::new(ACCESS), XattrMode::KILL_SET_GROUP_ID);
        bench.fs.setxattr(&own_request(), Ino::ROOT, name, &value, how).unwrap();
        assert_eq!(mode(&below.attr(Ino::ROOT).unwrap()) & 0o2000, 0);
        assert_eq!(mode(&bench.client().attr(Ino::ROOT).unwrap()) & 0o2000, 0);
        bench.tier.shutdown().unwrap();
        let open = Settings { root: Treatment::Open, ..Settings::of(TIER) };
        Bench::with(Arc::clone(&lower), open, 1).tier.shutdown().unwrap();
        assert_eq!(mode(&below.attr(Ino::ROOT).unwrap()) & 0o2000, 0);
    }
}

#[test]
fn refused_access_list_leaves_the_mode_of_a_closed_root() {
    let lower = Arc::new(MemFs::default());
    Client::new(&*lower).chmod(Ino::ROOT, 0o755).unwrap();
    let bench = life(lower, Marks::Trusted, Bug::RefusesLists);
    let client = bench.client();
    client.setxattr(Ino::ROOT, ACCESS, &list([7, 6, 5, 4, 0])).unwrap_err();
    assert_eq!(mode(&client.attr(Ino::ROOT).unwrap()), 0o755);
    let kept = Marks::Trusted.read_mode(&*bench.lower).unwrap();
    assert_eq!(kept.unwrap().bits(), 0o755);
}

#[test]
fn archived_tree_has_the_mode_of_the_mount() {
    let bench = Bench::new();
    bench.client().chmod(Ino::ROOT, 0o1751).unwrap();
    bench.tier.archive_tree(&own_request()).unwrap();
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    let archives: Vec<_> = bench.archives.iter().map(|one| Arc::clone(one) as _).collect();
    let catalogue = fslab_tier::catalogue::Catalogue::in_memory().unwrap();
    // Closes the root directory before released files are made in it, as the command does.
    let closed = Bench::over(Arc::clone(&lower));
    closed.tier.shutdown().unwrap();
    let around = &bench.around;
    fslab_tier::rebuild::rebuild(
        fslab_tier::rebuild::Options::default(),
        &lower,
        &archives,
        &catalogue,
        (around, TIER),
        &own_request(),
    )
    .unwrap();
    let below = Client::new(&*lower);
    assert_eq!(mode(&below.attr(Ino::ROOT).unwrap()), 0o1400);
    let kept = Marks::Trusted.read_mode(&*lower).unwrap();
    assert_eq!(kept.unwrap().bits(), 0o1751);
}

#[test]
fn root_mode_set_below_the_mount_is_adopted() {
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    let below = Client::new(&*lower);
    below.chmod(Ino::ROOT, 0o755).unwrap();
    Bench::over(Arc::clone(&lower)).tier.shutdown().unwrap();
    below.chmod(Ino::ROOT, 0o750).unwrap();
    let bench = Bench::over(Arc::clone(&lower));
    assert_eq!(mode(&bench.client().attr(Ino::ROOT).unwrap()), 0o750);
    assert_eq!(mode(&below.attr(Ino::ROOT).unwrap()), 0o400);
    bench.tier.shutdown().unwrap();
    let open = Settings { root: Treatment::Open, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::clone(&lower), open, 1);
    assert_eq!(mode(&below.attr(Ino::ROOT).unwrap()), 0o750);
    assert_eq!(Marks::Trusted.read_mode(&*lower).unwrap(), None);
    bench.client().chmod(Ino::ROOT, 0o700).unwrap();
    assert_eq!(mode(&below.attr(Ino::ROOT).unwrap()), 0o700);
}

#[test]
fn queries_leave_the_root_mode_unchanged() {
    for (marks, closed) in [(Marks::Trusted, 0o400), (Marks::Own(0), 0o700)] {
        let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let below = Client::new(&*lower);
        below.chmod(Ino::ROOT, 0o755).unwrap();
        let found = || mode(&below.attr(Ino::ROOT).unwrap());
        let query = || {
            let settings = Settings { root: Treatment::Leave, ..Settings::of(TIER) };
            Bench::of(Arc::clone(&lower), settings, marks)
        };
        query().tier.shutdown().unwrap();
        assert_eq!(found(), 0o755, "a new tree");
        let bench = Bench::of(Arc::clone(&lower), Settings::of(TIER), marks);
        assert_eq!(found(), closed);
        bench.tier.shutdown().unwrap();
        query().tier.shutdown().unwrap();
        assert_eq!(found(), 0o400, "a closed tree");
        below.chmod(Ino::ROOT, 0o750).unwrap();
        query().tier.shutdown().unwrap();
        assert_eq!(found(), 0o750, "a tree that its owner opened");
    }
}
