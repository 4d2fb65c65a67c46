//! Tests the effect of each feature that the kernel grants; see the list in `features.rs`.
//!
//! Each test failed when its feature was removed from that list.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fslab_fuse::MountOptions;
use fslab_sys::credentials::{ActingAs, Groups};
use fslab_sys::mounts::{Mount, mounted_on};
use fslab_vfs::{FileSystem, Ino, MemFs};
use rustix::fs::{Advice, OFlags};

use crate::support::{Mounted, believing, find, make, rewrite, soon};
use crate::watched::{Meeting, Watched};

/// A watched file system and its mount, or `None` if mounting is not possible.
fn mounted(
    test: &str,
    watched: Watched,
    options: &MountOptions,
) -> Option<(Arc<Watched>, Mounted)> {
    let watched = Arc::new(watched);
    let shared: Arc<dyn FileSystem> = Arc::<Watched>::clone(&watched);
    Mounted::new(test, shared, options).map(|mounted| (watched, mounted))
}

fn with_meeting_reads() -> Watched {
    Watched { reads_meet: Some(Meeting::default()), ..Watched::default() }
}

/// A file of 4 MiB without cached pages.
fn large_file(watched: &Watched, mounted: &Mounted) -> PathBuf {
    make(&watched.inner, Ino::ROOT, "large", &[1; 4 << 20]).unwrap();
    mounted.path().join("large")
}

#[test]
fn readahead_requests_run_in_parallel() {
    let options = MountOptions::default();
    let test = "features::readahead_requests_run_in_parallel";
    let Some((watched, mounted)) = mounted(test, with_meeting_reads(), &options) else { return };
    let file = File::open(large_file(&watched, &mounted)).unwrap();
    for offset in [0, 2 << 20] {
        let length = std::num::NonZero::new(1 << 20);
        rustix::fs::fadvise(&file, offset, length, Advice::WillNeed).unwrap();
    }
    let mut buffer = vec![0; 4 << 20];
    file.read_exact_at(&mut buffer, 0).unwrap();
    drop(file);
    assert!(watched.reads_meet.as_ref().unwrap().has_met());
    mounted.end();
}

#[test]
fn large_writes_arrive_in_requests_of_1_mib() {
    let test = "features::large_writes_arrive_in_requests_of_1_mib";
    let options = MountOptions::default();
    let Some((watched, mounted)) = mounted(test, Watched::default(), &options) else { return };
    fs::write(mounted.path().join("file"), vec![1; 3 << 20]).unwrap();
    assert_eq!(*watched.writes.lock(), [1 << 20; 3]);
    mounted.end();
}

#[test]
fn pieces_of_a_direct_read_run_in_parallel() {
    let options = MountOptions::default();
    let test = "features::pieces_of_a_direct_read_run_in_parallel";
    let Some((watched, mounted)) = mounted(test, with_meeting_reads(), &options) else { return };
    let path = large_file(&watched, &mounted);
    let flags = OFlags::DIRECT.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).unwrap();
    let mut buffer = vec![0; 4 << 20];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 1));
    drop(file);
    assert!(watched.reads_meet.as_ref().unwrap().has_met());
    mounted.end();
}

#[test]
fn files_for_direct_reading_can_be_mapped() {
    let direct = Watched { direct: true, ..Watched::default() };
    let test = "features::files_for_direct_reading_can_be_mapped";
    let Some((_, mounted)) = mounted(test, direct, &MountOptions::default()) else { return };
    let path = mounted.path().join("file");
    fs::write(&path, vec![1; 8192]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    assert_eq!(fslab_sys::page_cache::mincore(&file, 8192), Ok(0), "mapped shared, nothing cached");
    drop(file);
    mounted.end();
}

#[test]
fn cached_pages_are_dropped_when_the_file_changes_below() {
    let options = MountOptions { attr_timeout: Duration::ZERO, ..MountOptions::default() };
    let test = "features::cached_pages_are_dropped_when_the_file_changes_below";
    let Some((watched, mounted)) = mounted(test, Watched::default(), &options) else { return };
    let path = mounted.path().join("file");
    fs::write(&path, "before").unwrap();
    let file = File::open(&path).unwrap();
    let read = || {
        let mut buffer = [0; 6];
        file.read_exact_at(&mut buffer, 0).unwrap();
        buffer
    };
    assert_eq!(&read(), b"before");
    rewrite(&watched.inner, find(&watched.inner, "file"), b"behind").unwrap();
    assert_eq!(&read(), b"behind");
    drop(file);
    mounted.end();
}

#[test]
fn listings_include_attributes_while_callers_use_them() {
    const FILES: usize = 300;
    let test = "features::listings_include_attributes_while_callers_use_them";
    let Some((watched, mounted)) = mounted(test, Watched::default(), &believing()) else { return };
    for directory in ["plain", "long"] {
        fs::create_dir(mounted.path().join(directory)).unwrap();
        let directory = find(&watched.inner, directory);
        for number in 0..FILES {
            make(&watched.inner, directory, &format!("a-longer-name-{number}"), b"").unwrap();
        }
    }
    assert_eq!(fs::read_dir(mounted.path().join("plain")).unwrap().count(), FILES);
    let listed = watched.count(|watched| &watched.listed);
    assert!((1..FILES).contains(&listed), "{listed}: for the first entries only");
    let asked = watched.count(|watched| &watched.lookups);
    for entry in fs::read_dir(mounted.path().join("long")).unwrap() {
        entry.unwrap().metadata().unwrap();
    }
    let listed = watched.count(|watched| &watched.listed) - listed;
    let asked = watched.count(|watched| &watched.lookups) - asked;
    assert!(listed >= FILES && asked < FILES / 10, "{listed} listed, {asked} asked for");
    mounted.end();
}

#[test]
fn lookups_in_one_directory_run_in_parallel() {
    let test = "features::lookups_in_one_directory_run_in_parallel";
    let meeting = Watched { lookups_meet: Some(Meeting::default()), ..Watched::default() };
    let options = MountOptions::default();
    let Some((watched, mounted)) = mounted(test, meeting, &options) else { return };
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let path = mounted.path().join(name);
            scope.spawn(move || assert!(!path.exists()));
        }
    });
    assert!(watched.lookups_meet.as_ref().unwrap().has_met());
    mounted.end();
}

#[test]
fn a_symbolic_link_is_read_once() {
    let test = "features::a_symbolic_link_is_read_once";
    let Some((watched, mounted)) = mounted(test, Watched::default(), &believing()) else { return };
    let link = mounted.path().join("link");
    std::os::unix::fs::symlink("target", &link).unwrap();
    for _ in 0..5 {
        assert_eq!(fs::read_link(&link).unwrap(), PathBuf::from("target"));
    }
    assert_eq!(watched.count(|watched| &watched.links_read), 1);
    mounted.end();
}

#[test]
fn writeback_merges_small_writes() {
    for writeback in [false, true] {
        let options = MountOptions { writeback, ..MountOptions::default() };
        let test = "features::writeback_merges_small_writes";
        let Some((watched, mounted)) = mounted(test, Watched::default(), &options) else { return };
        let mut file = File::create(mounted.path().join("file")).unwrap();
        for _ in 0..1000 {
            file.write_all(b"ten bytes\n").unwrap();
        }
        file.sync_all().unwrap();
        drop(file);
        let writes = watched.writes.lock().clone();
        let sum: usize = writes.iter().sum();
        // If a system-wide sync happens during the test, the kernel may write delayed data twice.
        assert!(if writeback { sum >= 10_000 } else { sum == 10_000 }, "{sum} bytes");
        assert_eq!(writes.len() < 100, writeback, "{} writes", writes.len());
        mounted.end();
    }
}

#[test]
fn writes_read_capabilities_at_most_once_per_file() {
    for writeback in [false, true] {
        let options = MountOptions { writeback, ..MountOptions::default() };
        let test = "features::writes_read_capabilities_at_most_once_per_file";
        let Some((watched, mounted)) = mounted(test, Watched::default(), &options) else { return };
        let mut file = File::create(mounted.path().join("file")).unwrap();
        for _ in 0..100 {
            file.write_all(b"x").unwrap();
        }
        drop(file);
        assert!(watched.count(|watched| &watched.capabilities_read) <= 1);
        mounted.end();
    }
}

#[test]
fn creation_requests_carry_the_matching_group() {
    let test = "features::creation_requests_carry_the_matching_group";
    let options = MountOptions::default();
    let Some((watched, mounted)) = mounted(test, Watched::default(), &options) else { return };
    let directory = mounted.path().join("shared");
    fs::create_dir(&directory).unwrap();
    chown(&directory, None, Some(4321)).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o2777)).unwrap();
    for (name, groups) in [("member", vec![77, 4321]), ("stranger", vec![77])] {
        let acting = ActingAs::caller(1234, 1234, Groups::These(&groups)).unwrap();
        File::create(directory.join(name)).unwrap();
        drop(acting);
    }
    assert_eq!(*watched.groups.lock(), [Some(vec![4321]), Some(vec![])]);
    mounted.end();
}

#[test]
fn expired_name_keeps_the_mount_on_it() {
    let test = "features::expired_name_keeps_the_mount_on_it";
    let Some((watched, mounted)) = mounted(test, Watched::default(), &believing()) else { return };
    let directory = mounted.path().join("directory");
    fs::create_dir(&directory).unwrap();
    let above = Mount::new("none".as_ref(), &directory, "tmpfs", "size=1m").unwrap();
    let cache = watched.cache.lock().clone().unwrap();
    let asked = || watched.count(|watched| &watched.lookups);
    let before = asked();
    cache.invalidate_entry(Ino::ROOT, "directory".as_ref());
    soon("the name is asked for again", || directory.exists() && asked() > before);
    assert_eq!(mounted_on(&directory).unwrap().unwrap().file_system, "tmpfs");
    above.unmount().unwrap();
    mounted.end();
}

/// A close sends no request if the file system has nothing to report.
#[test]
fn close_sends_no_flush_request() {
    struct Flushed(MemFs, std::sync::atomic::AtomicUsize);
    impl FileSystem for Flushed {
        fn fallback(&self) -> Option<&dyn FileSystem> {
            Some(&self.0)
        }
        fn flush(
            &self,
            request: &fslab_vfs::Request,
            ino: Ino,
            handle: fslab_vfs::Handle,
        ) -> fslab_vfs::Result<()> {
            self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            self.0.flush(request, ino, handle)
        }
    }
    let flushed = Arc::new(Flushed(MemFs::default(), 0.into()));
    let shared: Arc<dyn FileSystem> = Arc::<Flushed>::clone(&flushed);
    let test = "features::close_sends_no_flush_request";
    let Some(mounted) = Mounted::new(test, shared, &MountOptions::default()) else { return };
    fs::write(mounted.path().join("file"), "x").unwrap();
    assert_eq!(fs::read(mounted.path().join("file")).unwrap(), b"x");
    mounted.end();
    assert_eq!(flushed.1.load(std::sync::atomic::Ordering::SeqCst), 0);
}

/// The kernel caches the listing of a directory while the directory's times are unchanged.
#[test]
fn unchanged_directory_listing_is_cached() {
    let test = "features::unchanged_directory_listing_is_cached";
    let Some((watched, mounted)) = mounted(test, Watched::default(), &believing()) else { return };
    for number in 0..10 {
        fs::write(mounted.path().join(number.to_string()), "").unwrap();
    }
    let names = || fs::read_dir(mounted.path()).unwrap().count();
    assert_eq!((names(), names()), (10, 10));
    let listings = watched.count(|watched| &watched.listings);
    assert_eq!(names(), 10);
    assert_eq!(watched.count(|watched| &watched.listings), listings);
    fs::write(mounted.path().join("new"), "").unwrap();
    assert_eq!(names(), 11);
    mounted.end();
}
