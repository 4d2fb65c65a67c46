//! Set-id bits and file capabilities, which file systems clear when a file is written. A release or
//! a recall does not change the content, so the engine must keep them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use fslab_vfs::rules::CAPABILITY;
use fslab_vfs::{
    Errno, FallocateMode, FileSystem, Handle, Ino, MemFs, OpenMode, Permissions, Request, Result,
    SetAttr, WriteOptions, XattrMode,
};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

use crate::support::{Bench, MIB, noise};

const SET_ID: u32 = 0o6755;

type Deed = Box<dyn FnOnce() + Send>;

/// A file system as an ordinary user sees it. Each write also clears set-id bits. It may refuse to
/// set capabilities. It calls a function at the next write.
#[derive(Default)]
struct Strict {
    memory: MemFs,
    refuses: AtomicBool,
    at_write: Mutex<Option<Deed>>,
}

impl Strict {
    fn bench() -> (Arc<Self>, Bench) {
        let lower = Arc::new(Self::default());
        let bench = Bench::over(lower.clone());
        (lower, bench)
    }

    fn strip(&self, request: &Request, ino: Ino) -> Result<()> {
        let before = self.memory.getattr(request, ino, None)?.permissions;
        let permissions = Some(Permissions::new(before.bits() & 0o1777));
        let changes = SetAttr { permissions, ..SetAttr::default() };
        self.memory.setattr(request, ino, None, &changes).map(drop)
    }
}

impl FileSystem for Strict {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        let deed = self.at_write.lock().take();
        deed.into_iter().for_each(|deed| deed());
        let count = self.memory.write(request, ino, handle, offset, data, options)?;
        self.strip(request, ino).map(|()| count)
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        self.memory.fallocate(request, ino, handle, offset, length, mode)?;
        self.strip(request, ino)
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &std::ffi::OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if name == CAPABILITY && self.refuses.load(Ordering::SeqCst) {
            return Err(Errno::PERM.into());
        }
        self.memory.setxattr(request, ino, name, value, mode)
    }
}

/// Makes an archived file with set-id bits and a file capability.
fn privileged(bench: &Bench, data: &[u8]) -> Ino {
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", data).unwrap();
    client.chmod(ino, SET_ID).unwrap();
    client.setxattr(ino, CAPABILITY, b"may").unwrap();
    bench.archive(ino, "file").unwrap();
    ino
}

fn rights(client: &Client<'_>, ino: Ino) -> (u32, Option<Vec<u8>>) {
    (client.attr(ino).unwrap().permissions.bits(), client.getxattr(ino, CAPABILITY).ok())
}

#[test]
fn set_id_bits_and_capabilities_survive_release_and_recall() {
    let (_, bench) = Strict::bench();
    let (client, data) = (bench.client(), noise(90, 2 * MIB));
    let ino = privileged(&bench, &data);
    let before = (SET_ID, Some(b"may".to_vec()));
    assert!(bench.release(ino, "file").unwrap().bytes > 0);
    assert_eq!(rights(&client, ino), before, "away");
    assert!(client.contents(ino).unwrap() == data);
    assert_eq!(rights(&client, ino), before, "here again");
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"new").unwrap();
    file.close().unwrap();
    assert_eq!(rights(&client, ino), (0o755, None), "a write clears them");
}

#[test]
fn file_is_not_released_if_its_capabilities_would_be_lost() {
    let (lower, bench) = Strict::bench();
    let data = noise(91, 2 * MIB);
    let ino = privileged(&bench, &data);
    lower.refuses.store(true, Ordering::SeqCst);
    bench.release(ino, "file").unwrap_err();
    assert_eq!(rights(&bench.client(), ino), (SET_ID, Some(b"may".to_vec())));
    assert_eq!(bench.offline_blocks(ino), [0_u64; 0]);
    assert!(bench.client().contents(ino).unwrap() == data);
}

/// A function that removes privileges from a file.
type Taking = fn(&Client<'_>, Ino) -> Result<()>;

/// The removal waits until the running recall has written its block and restored the privileges.
#[test]
fn privileges_removed_during_a_recall_stay_removed() {
    let (lower, bench) = Strict::bench();
    let data = noise(92, MIB);
    let ino = privileged(&bench, &data);
    assert!(bench.release(ino, "file").unwrap().bytes > 0);
    let (fs, taking) = (Arc::clone(&bench.fs), Arc::new(Mutex::new(Vec::new())));
    let threads = Arc::clone(&taking);
    *lower.at_write.lock() = Some(Box::new(move || {
        let takings: [Taking; 2] = [
            |client, ino| client.chmod(ino, 0o755).map(drop),
            |client, ino| client.removexattr(ino, CAPABILITY),
        ];
        for take in takings {
            let (fs, (done, is_done)) = (Arc::clone(&fs), mpsc::channel());
            threads.lock().push(std::thread::spawn(move || {
                take(&Client::new(&*fs), ino).unwrap();
                // The send fails only if the test no longer waits for the message.
                done.send(()).unwrap_or_default();
            }));
            // If the caller does not wait for the block, it finishes here, before the recall.
            is_done.recv_timeout(Duration::from_millis(200)).unwrap_or_default();
        }
    }));
    assert!(bench.client().contents(ino).unwrap() == data);
    taking.lock().drain(..).for_each(|thread| thread.join().unwrap());
    assert_eq!(rights(&bench.client(), ino), (0o755, None));
}
