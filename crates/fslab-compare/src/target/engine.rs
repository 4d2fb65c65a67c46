//! An image on a loop device, served by the file system of the host's own programme: the policy
//! that the plan names places what workloads write, where the kernel's driver would place it by
//! its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use fslab_sys::block_counters::DeviceNumber;

use super::fill::sync_file_system;
use super::foreign::{Commands, ForeignMount, line};
use super::image_file::Made;
use super::requests::Requests;
use super::storage::Storage;
use super::{Remounted, Target, Workshop};
use crate::error::{Error, Result};
use crate::plan::ImagePlan;
use crate::tree::{HostTree, Tree};
use fslab_report::sample::TargetRecord;

pub(super) fn make(
    name: &str,
    base: &ImagePlan,
    options: &str,
    shop: Workshop<'_>,
) -> Result<(Box<dyn Target>, TargetRecord)> {
    let kind = base.kind.name();
    let mountpoint = shop.work_directory.join("mountpoint");
    fs::create_dir_all(&mountpoint).map_err(Error::file(&mountpoint))?;
    let Some((storage, made)) = Storage::make(base, shop)? else {
        return Err(Error::file(Path::new(kind))(std::io::ErrorKind::Unsupported.into()));
    };
    check_policy(base, options, &made)?;
    let source = PathBuf::from(format!("{kind}:{}?{options}", storage.device_path().display()));
    let commands =
        Commands { mount: shop.host.mount_command(&[], &source, &mountpoint), unmount: None };
    let record = TargetRecord {
        name: name.to_owned(),
        description: format!("{kind} by the engine, {options}"),
        mkfs: Some(made.how),
        aged_workload: made.workload,
        mount: Some(line(&commands.mount)),
        loop_direct_io: storage.direct_io(),
        ..TargetRecord::default()
    };
    let mut target = Engine {
        tree: None,
        requests: None,
        mount: None,
        storage,
        commands,
        messages: shop.work_directory.join("messages"),
        work_directory: shop.work_directory.to_owned(),
        mountpoint,
        notes: Vec::new(),
    };
    target.mount()?;
    let record = TargetRecord {
        daemon_found: Some(target.daemon().is_some()),
        requests_counted: Some(target.requests.is_some()),
        ..record
    };
    Ok((Box::new(target), record))
}

/// An image that one policy has filled says nothing about another one.
fn check_policy(base: &ImagePlan, options: &str, made: &Made) -> Result<()> {
    let (Some(path), Some(found)) = (&base.recorded, &made.policy) else { return Ok(()) };
    let wanted = options.split('&').find_map(|pair| pair.strip_prefix("policy="));
    let is_other = |wanted: &str| found.split_whitespace().next() != Some(wanted);
    match wanted.filter(|wanted| is_other(wanted)) {
        None => Ok(()),
        Some(wanted) => Err(Error::OtherPolicy {
            path: path.clone(),
            wanted: wanted.to_owned(),
            found: found.clone(),
        }),
    }
}

/// Fields are dropped in this order: users before what they use.
struct Engine {
    tree: Option<HostTree>,
    requests: Option<Requests>,
    mount: Option<ForeignMount>,
    storage: Storage,
    commands: Commands,
    messages: PathBuf,
    work_directory: PathBuf,
    mountpoint: PathBuf,
    notes: Vec<String>,
}

impl Engine {
    fn mount(&mut self) -> Result<()> {
        self.mount = Some(ForeignMount::new(&self.commands, &self.mountpoint, &self.messages)?);
        self.requests = Requests::of(&self.mountpoint, &self.work_directory);
        self.tree = Some(HostTree::open(&self.mountpoint)?);
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        self.tree = None;
        self.requests = None;
        if let Some(mount) = self.mount.take() {
            self.notes.extend(mount.unmount(&self.messages)?);
        }
        Ok(())
    }
}

impl Target for Engine {
    fn tree(&self) -> Result<&dyn Tree> {
        match &self.tree {
            Some(tree) => Ok(tree),
            None => Err(Error::file(&self.mountpoint)(std::io::ErrorKind::NotConnected.into())),
        }
    }

    fn remount(&mut self) -> Result<Option<Remounted>> {
        self.unmount()?;
        let device_pages = self.storage.drop_caches()?;
        self.mount()?;
        Ok(Some(Remounted { device_pages }))
    }

    fn device(&self) -> Option<DeviceNumber> {
        Some(self.storage.device_number())
    }

    fn daemon(&self) -> Option<u32> {
        self.mount.as_ref()?.daemon()
    }

    /// The kernel sends no syncfs to a file system in user space: an fsync of its root makes the
    /// engine write back what it holds, and then the device does.
    fn sync_below(&self) -> Result<()> {
        sync_file_system(&self.mountpoint)?;
        for path in [self.mountpoint.as_path(), self.storage.device_path()] {
            File::open(path).and_then(|file| file.sync_all()).map_err(Error::file(path))?;
        }
        Ok(())
    }

    fn fuse_requests(&self) -> Result<Option<u64>> {
        self.requests.as_ref().map(Requests::count).transpose()
    }

    fn used_bytes(&self) -> Result<Option<u64>> {
        let path = &self.mountpoint;
        let stat = rustix::fs::statvfs(path).map_err(|errno| Error::file(path)(errno.into()))?;
        Ok(Some(stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize))
    }

    fn tear_down(mut self: Box<Self>) -> Result<Vec<String>> {
        self.unmount()?;
        Ok(std::mem::take(&mut self.notes))
    }
}
