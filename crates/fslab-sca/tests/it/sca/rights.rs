//! Tests of set-id bits and file capabilities, which the kernel clears at every write to a lower
//! file.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fslab_vfs::{FileSystem, Handle, Ino, MemFs, OpenMode, Request, Result};
use fslab_vfs_testing::client::Client;

use super::below::{Below, CODECS, random, text};

const CAPABILITY: &str = "security.capability";

/// The layer's own writes at fsync and at close must not clear set-id bits and capabilities.
/// Without a layer, these calls do not clear them. `cp -a` and `tar --xattrs` set a file's
/// capabilities after writing its content and before closing it.
#[test]
fn capabilities_and_setuid_survive_fsync_and_close() {
    for codec in CODECS {
        for is_synced in [false, true] {
            rights_outlive(codec, is_synced);
        }
    }
}

fn rights_outlive(codec: &str, is_synced: bool) {
    let below = Below::new();
    // The garbage is too little to be collected after a write, but enough to be freed at close.
    let fs = below.mount(&format!("{codec}:chunk=4KiB,garbage=16KiB"));
    let client = Client::new(&*fs);
    let (attr, file) = client.create(Ino::ROOT, "file", 0o755, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, &random(1, 40_000)).unwrap();
    file.write_all(0, &random(2, 20_000)).unwrap();
    client.setxattr(attr.ino, CAPABILITY, b"value").unwrap();
    client.chmod(attr.ino, 0o4755).unwrap();
    if is_synced {
        file.fsync(false).unwrap();
    }
    client.subject().flush(&client.request(), file.ino, file.handle).unwrap();
    file.close().unwrap();
    let has = format!("{codec}, synced {is_synced}");
    assert_eq!(client.getxattr(attr.ino, CAPABILITY).ok(), Some(b"value".to_vec()), "{has}");
    assert_eq!(client.attr(attr.ino).unwrap().permissions.bits(), 0o4755, "{has}");
    // A write removes the capability, as on any file system.
    let file = client.open(attr.ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"x").unwrap();
    assert!(client.getxattr(attr.ino, CAPABILITY).is_err(), "{has}");
    file.close().unwrap();
    assert!(client.getxattr(attr.ino, CAPABILITY).is_err(), "{has}");
}

/// At close, only a seek table is appended to a file that was written in order.
#[test]
fn capabilities_survive_writing_the_seek_table() {
    let below = Below::new();
    let fs = below.mount("zstd:chunk=4KiB");
    let client = Client::new(&*fs);
    let (attr, file) = client.create(Ino::ROOT, "file", 0o755, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, &text(20_000)).unwrap();
    client.setxattr(attr.ino, CAPABILITY, b"value").unwrap();
    file.close().unwrap();
    assert_eq!(client.getxattr(attr.ino, CAPABILITY).ok(), Some(b"value".to_vec()));
}

/// A lower file system that removes a capability through the layer during a sync.
#[derive(Default)]
struct Meanwhile {
    inner: MemFs,
    layer: Mutex<Option<(Arc<dyn FileSystem>, Ino)>>,
    taking: Mutex<Option<JoinHandle<()>>>,
}

impl FileSystem for Meanwhile {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        if let Some((layer, ino)) = self.layer.lock().unwrap().take() {
            let taking = std::thread::spawn(move || {
                Client::new(&*layer).removexattr(ino, CAPABILITY).unwrap();
            });
            // The removal may be blocked until this sync returns, so the time of waiting for it is
            // limited.
            let start = Instant::now();
            while !taking.is_finished() && start.elapsed() < Duration::from_millis(300) {
                std::thread::yield_now();
            }
            *self.taking.lock().unwrap() = Some(taking);
        }
        self.inner.fsync(request, ino, handle, data_only)
    }
}

/// Simulates `setcap -r` during a step of packing. That step must not restore the removed value.
#[test]
fn capability_removed_during_packing_stays_removed() {
    let below = Arc::new(Meanwhile::default());
    let layer = crate::layer("copy:chunk=4KiB,pack=close,garbage=4KiB");
    let fs = layer.build(below.clone()).unwrap();
    let client = Client::new(&*fs);
    let (attr, file) = client.create(Ino::ROOT, "file", 0o755, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, &random(1, 40_000)).unwrap();
    file.write_all(0, &random(2, 20_000)).unwrap();
    client.setxattr(attr.ino, CAPABILITY, b"value").unwrap();
    *below.layer.lock().unwrap() = Some((Arc::clone(&fs), attr.ino));
    client.subject().flush(&client.request(), file.ino, file.handle).unwrap();
    below.taking.lock().unwrap().take().expect("nothing was made durable").join().unwrap();
    assert!(client.getxattr(attr.ino, CAPABILITY).is_err(), "the capability was restored");
    file.close().unwrap();
    assert!(client.getxattr(attr.ino, CAPABILITY).is_err(), "the capability was restored");
}
