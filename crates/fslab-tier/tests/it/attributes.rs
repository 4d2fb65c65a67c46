//! Attributes that programs see while the engine writes a recalled block.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use fslab_tier::own_request;
use fslab_vfs::{Attr, FileSystem, Handle, Ino, MemFs, Request, Result, WriteOptions};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

use crate::support::{Bench, MIB, noise};

type Deed = Box<dyn FnOnce() + Send>;

/// A tree that calls a function after the next write, before the engine restores the time.
#[derive(Default)]
struct Written {
    memory: MemFs,
    behind: Mutex<Option<Deed>>,
}

impl FileSystem for Written {
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
        let count = self.memory.write(request, ino, handle, offset, data, options)?;
        let deed = self.behind.lock().take();
        deed.into_iter().for_each(|deed| deed());
        Ok(count)
    }
}

type Looking = fn(&Client<'_>, Ino) -> Result<Attr>;

/// A caller that requests attributes waits until the block is recalled, and gets the file's own
/// time.
#[test]
fn temporary_modification_time_of_a_recall_is_never_shown() {
    let looks: [(&str, Looking); 3] = [
        ("looks it up", |client, _| client.lookup(Ino::ROOT, "file")),
        ("gives it a name", |client, ino| client.link(ino, Ino::ROOT, "link")),
        ("asks for attributes", |client, ino| client.attr(ino)),
    ];
    for (what, look) in looks {
        let lower = Arc::new(Written::default());
        let bench = Bench::over(lower.clone());
        let (client, data) = (bench.client(), noise(99, MIB));
        let ino = bench.offline(&client, "file", &data);
        let before = client.attr(ino).unwrap();
        // After this scan, the catalogue is no longer in doubt, so the mount shows the time of the
        // lower file.
        bench.tier.scan(&own_request()).unwrap();
        let (fs, looking) = (Arc::clone(&bench.fs), Arc::new(Mutex::new(None)));
        let thread = Arc::clone(&looking);
        *lower.behind.lock() = Some(Box::new(move || {
            let (done, is_done) = mpsc::channel();
            *thread.lock() = Some(std::thread::spawn(move || {
                let found = look(&Client::new(&*fs), ino).unwrap();
                // The send fails only if the test no longer waits for the message.
                done.send(()).unwrap_or_default();
                found
            }));
            // A caller that does not wait for the block finishes before the time is restored.
            is_done.recv_timeout(Duration::from_millis(200)).unwrap_or_default();
        }));
        client.tick();
        assert!(client.contents(ino).unwrap() == data);
        let found = looking.lock().take().unwrap().join().unwrap();
        assert_eq!(found.modified, before.modified, "{what}");
    }
}
