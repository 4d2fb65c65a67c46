//! The conformance suite and the model test over the layer, with and without releases between
//! operations.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fslab_vfs::{
    Attr, Entry, FileSystem, Handle, HostFs, HostOptions, Ino, MemFs, Name, OpenMode, Opened,
    Request, Result, SetAttr,
};
use fslab_vfs_testing::conformance::{Allowed, cases, run_all, run_one};
use fslab_vfs_testing::model::{ModelConfig, check_against_model};

use crate::support::Bench;

#[test]
fn the_layer_conforms_over_memory() {
    let mut failures = Vec::new();
    for case in cases() {
        let memory = Arc::new(MemFs::default());
        let bench = Bench::over(Arc::clone(&memory) as Arc<dyn FileSystem>);
        if let Err(stop) = run_one(case, &*bench.fs) {
            failures.push(format!("{}: {stop}", case.name));
        } else if (memory.remembered(), memory.open_handles(), memory.inodes()) != (0, 0, 1) {
            failures.push(format!("{}: left something behind", case.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_layer_conforms_over_a_host_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let make = || {
        let lower = HostFs::open(scratch.path(), &HostOptions::default()).unwrap();
        let bench = Bench::over(Arc::new(lower));
        Box::new(bench.fs as Arc<dyn FileSystem>) as Box<dyn FileSystem>
    };
    let report = run_all(&make, &[]);
    eprintln!("{report}");
    assert!(report.is_success());
}

/// Archives and releases every file when it is closed for the last time, and sometimes before an
/// operation.
struct Restless {
    bench: Bench,
    open: Mutex<HashMap<Handle, Ino>>,
    count: AtomicU64,
}

impl Restless {
    fn new(lower: Arc<dyn FileSystem>) -> Self {
        let bench = Bench::over(lower);
        Self { bench, open: Mutex::default(), count: AtomicU64::new(0) }
    }

    /// Releases a file. A file that can't be released now remains resident.
    fn send_away(&self, ino: Ino) {
        if self.bench.archive(ino, "somewhere").is_ok() {
            self.bench.release(ino, "somewhere").ok();
        }
    }

    fn opened(&self, ino: Ino, opened: Opened) -> Opened {
        self.open.lock().unwrap().insert(opened.handle, ino);
        opened
    }
}

impl FileSystem for Restless {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.bench.fs)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        if self.count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
            self.send_away(ino);
        }
        Ok(self.opened(ino, self.bench.fs.open(request, ino, mode)?))
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let (entry, opened) = self.bench.fs.create(request, parent, name, mode, flags)?;
        let opened = self.opened(entry.attr.ino, opened);
        Ok((entry, opened))
    }

    fn release(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        self.bench.fs.release(request, ino, handle)?;
        self.open.lock().unwrap().remove(&handle);
        self.send_away(ino);
        Ok(())
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let changed = self.bench.fs.setattr(request, ino, handle, changes)?;
        self.send_away(ino);
        Ok(changed)
    }
}

/// The checks of the conformance suite that offline files may fail, each with the reason.
const ELSEWHERE: &[Allowed<'static>] = &[
    ("attributes/data_takes_space", "its space is in the archive"),
    ("times/read_moves_no_change_times", "recalling shows in the time of the inode's last change"),
];

#[test]
fn layer_conforms_while_files_are_released_repeatedly() {
    let make = || Box::new(Restless::new(Arc::new(MemFs::default()))) as Box<dyn FileSystem>;
    let report = run_all(&make, ELSEWHERE);
    eprintln!("{report}");
    assert!(report.is_success());
}

#[test]
fn layer_agrees_with_the_model_while_files_are_released() {
    let make = || Box::new(Restless::new(Arc::new(MemFs::default()))) as Box<dyn FileSystem>;
    check_against_model(&make, &ModelConfig::from_environment(30)).unwrap();
}
