//! Tests the fault layer as programs see it, through a mount.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use fslab_vfs::{HostFs, HostOptions, Ino, OpenMode};
use fslab_vfs_testing::client::Client;
use rustix::io::Errno;

use crate::support::{Place, fslab, require_mounting};

/// Mounts an empty directory with the fault layer and these rules.
fn faulty(rules: &str) -> Place {
    Place::mounted(&["-l", &format!("fault:seed=1,rules={rules}")])
}

#[track_caller]
fn fails<T>(answer: std::io::Result<T>, errno: Errno) {
    assert_eq!(answer.err().and_then(|error| error.raw_os_error()), Some(errno.raw_os_error()));
}

#[test]
fn programs_see_errors_injected_by_path_and_call_number() {
    require_mounting!();
    let place =
        faulty("mkdir on b error EDQUOT; fsync on *.wal nth 2 error EIO; rename late EXDEV");
    fs::create_dir(place.point.join("a")).unwrap();
    fails(fs::create_dir(place.point.join("b")), Errno::DQUOT);
    assert!(!place.lower.join("b").exists());
    let log = File::create(place.point.join("x.wal")).unwrap();
    log.sync_all().unwrap();
    fails(log.sync_all(), Errno::IO);
    log.sync_all().unwrap();
    fails(fs::rename(place.point.join("a"), place.point.join("c")), Errno::XDEV);
    assert!(
        place.lower.join("c").exists(),
        "a late error is returned after the operation was done"
    );
    drop(log);
    place.umount();
}

#[test]
fn flipped_bytes_are_seen_by_programs() {
    require_mounting!();
    let place = faulty("write on stored flip at 1000; read on seen flip at 5000");
    let data = vec![7; 20_000];
    for name in ["stored", "seen", "whole"] {
        fs::write(place.point.join(name), &data).unwrap();
    }
    for (name, damaged) in [("stored", 1000), ("seen", 5000)] {
        let read = fs::read(place.point.join(name)).unwrap();
        let places: Vec<_> = (0..data.len()).filter(|place| read[*place] != data[*place]).collect();
        assert_eq!(places, [damaged], "{name}");
    }
    assert_eq!(fs::read(place.point.join("whole")).unwrap(), data);
    assert_eq!(fs::read(place.lower.join("seen")).unwrap(), data);
    assert_ne!(fs::read(place.lower.join("stored")).unwrap(), data);
    place.umount();
}

#[test]
fn programs_see_an_injected_full_disk_and_short_writes() {
    require_mounting!();
    let place = faulty("write on filling full 10000; write on short short 100");
    let mut file = File::create(place.point.join("filling")).unwrap();
    fails(file.write_all(&[1; 20_000]), Errno::NOSPC);
    assert_eq!(fs::metadata(place.lower.join("filling")).unwrap().len(), 10_000);
    let short = File::create(place.point.join("short")).unwrap();
    // The data is on the heap. The pages of a constant may not be in memory yet, so the kernel
    // might send the first page in a separate request.
    let data = vec![1; 4096];
    assert_eq!(short.write_at(&data, 0).unwrap(), 100);
    drop((file, short));
    place.umount();
}

#[test]
fn skipped_fsync_and_write_return_success() {
    require_mounting!();
    let place = faulty("write nth 2 skip; sync skip");
    let mut file = File::create(place.point.join("f")).unwrap();
    for word in ["one", "two", "three"] {
        file.write_all(word.as_bytes()).unwrap();
    }
    file.sync_all().unwrap();
    assert_eq!(fs::read(place.lower.join("f")).unwrap(), b"one\0\0\0three");
    drop(file);
    place.umount();
}

#[test]
fn delay_lasts_as_configured_and_ends_with_its_caller() {
    require_mounting!();
    let place = faulty("mkdir on slow delay 200ms; mkdir on never delay 1h");
    let start = Instant::now();
    fs::create_dir(place.point.join("slow")).unwrap();
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(200), "{took:?}");
    let mut waiting =
        std::process::Command::new("mkdir").arg(place.point.join("never")).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(waiting.try_wait().unwrap().is_none());
    let pid = rustix::process::Pid::from_child(&waiting);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let start = Instant::now();
    assert!(!waiting.wait().unwrap().success());
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(!place.lower.join("never").exists());
    place.umount();
}

#[test]
fn invalid_fault_script_prevents_the_mount() {
    require_mounting!();
    let place = Place::new();
    let script = place.lower.join("script");
    fs::write(&script, "read error EIO\nwrite eror EIO\n").unwrap();
    let layer = format!("fault:script={}", script.display());
    let output =
        fslab(&["mount", "-l", &layer]).arg(&place.lower).arg(&place.point).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(message.contains("script, line 2: unknown condition or action 'eror'"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(!crate::support::is_mounted(&place.point));
}

/// A read that fails partway must return only the error. The kernel would treat a shorter reply as
/// the end of the file, and fill the rest of its pages with zeros.
#[test]
fn read_that_fails_partway_returns_only_the_error() {
    require_mounting!();
    let place = faulty("read on file nth 2.. error EIO");
    fs::write(place.lower.join("file"), vec![7; 8 << 20]).unwrap();
    let host = HostFs::open(&place.point, &HostOptions::default()).unwrap();
    let client = Client::new(&host);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::empty()).unwrap();
    // The kernel splits this read into several requests.
    let answer = file.read(0, 8 << 20).map(|data| data.len()).map_err(|error| error.errno());
    assert_eq!(answer, Err(fslab_vfs::Errno::IO));
    file.close().unwrap();
    drop(client);
    drop(host);
    place.umount();
}

/// With writeback, the kernel caches file sizes, here for an hour. It must not cache the size of a
/// file whose size could not be determined.
#[test]
fn kernel_does_not_cache_an_unknown_file_size() {
    require_mounting!();
    let place = Place::new();
    let content = vec![b'x'; 300_000];
    place.mount(&["-l", "zstd"]);
    fs::write(place.point.join("file"), &content).unwrap();
    place.umount();
    let unreadable_at_first = "fault:rules=open on file times 1 error EACCES";
    let hour = "writeback,entry_timeout=1h,attr_timeout=1h";
    place.mount(&["-o", hour, "-l", "zstd:size-xattr=off", "-l", unreadable_at_first]);
    let file = place.point.join("file");
    assert!(fs::symlink_metadata(&file).is_ok());
    assert!(fs::read(&file).unwrap() == content);
    assert_eq!(fs::metadata(&file).unwrap().len(), content.len() as u64);
    place.umount();
}
