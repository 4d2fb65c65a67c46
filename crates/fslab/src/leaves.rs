//! The leaves that are not fslab-layers' own: what joins the ext2 engine to stacks.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, Result};
use fslab_ext2::alloc::{self, Clustering};
use fslab_ext2::{Ext2, Form, VolumeOptions};
use fslab_layers::{ForeignError, ForeignLeaf, LeafSpec};
use fslab_vfs::{FileDevice, FileSystem};
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::exit::{Code, Coded};

/// How often changed metadata of a mounted image is written, at least.
const WRITE_BACK_EVERY: Duration = Duration::from_secs(5);

/// Until its proofs are complete (see docs/STATUS.md).
const CAUTION: &str = "experimental: keep other copies of what is in the image";

/// All of them.
pub const FOREIGN: &[ForeignLeaf] = &[ForeignLeaf {
    spec: LeafSpec {
        name: "ext2:IMAGE[?key=value&..]",
        help: "an ext2 file system in an image or device; keys: policy=NAME, clustering=smart or \
               dumb, seed=NUMBER, index=htree or linear, shrink=on or off",
        caution: Some(CAUTION),
    },
    scheme: "ext2:",
    open: open_for_mount,
}];

fn open_for_mount(argument: &str) -> Result<Arc<dyn FileSystem>, ForeignError> {
    let (image, options) = parse(argument)?;
    let ext2 = Arc::new(open(image, &options)?);
    write_back_from_time_to_time(&ext2)?;
    Ok(ext2)
}

/// The image and how it is to be used. A file whose name only looks like this is taken as it is.
fn parse(argument: &str) -> Result<(&Path, VolumeOptions)> {
    let mut options = VolumeOptions::default();
    let Some((image, pairs)) = argument.split_once('?').filter(|_| !Path::new(argument).exists())
    else {
        return Ok((Path::new(argument), options));
    };
    for pair in pairs.split('&') {
        set(&mut options, pair)?;
    }
    Ok((Path::new(image), options))
}

fn set(options: &mut VolumeOptions, pair: &str) -> Result<()> {
    let number = |text: &str| text.parse::<u64>().ok();
    match pair.split_once('=') {
        Some(("policy", name)) if alloc::policy(name).is_some() => {
            options.policy = alloc::policy(name).unwrap_or(options.policy);
        }
        Some(("clustering", name)) if Clustering::from_name(name).is_some() => {
            options.clustering = Clustering::from_name(name).unwrap_or(options.clustering);
        }
        Some(("seed", text)) if number(text).is_some() => {
            options.seed = number(text).unwrap_or_default();
        }
        Some(("index", "htree")) => options.form = Some(Form::Indexed),
        Some(("index", "linear")) => options.form = Some(Form::Linear),
        Some(("shrink", "on")) => options.shrink_directories = true,
        Some(("shrink", "off")) => options.shrink_directories = false,
        _ => {
            let policies: Vec<_> = alloc::POLICIES.iter().map(|policy| policy.name).collect();
            let message = format!(
                "'{pair}' is none of policy={}, clustering=smart|dumb, seed=NUMBER, \
                 index=htree|linear, shrink=on|off",
                policies.join("|")
            );
            return Err(Coded { code: Code::BadInput, message }.into());
        }
    }
    Ok(())
}

/// Opens an image, which nobody else of this house has open.
pub fn open(image: &Path, options: &VolumeOptions) -> Result<Ext2> {
    let device = open_device(image, options.read_only)?;
    let ext2 = Ext2::open(Arc::new(device), options.clone());
    let ext2 = ext2.with_context(|| image.display().to_string())?;
    if !ext2.superblock().is_clean() {
        tracing::warn!(
            "{} was not unmounted in order or has errors; run e2fsck on it",
            image.display()
        );
    }
    Ok(ext2)
}

/// Opens the file or device and locks it: two engines on one image would ruin it.
pub fn open_device(image: &Path, read_only: bool) -> Result<FileDevice> {
    let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let shown = image.display();
    let file = rustix::fs::open(image, flags, Mode::empty())
        .with_context(|| format!("can't open the image {shown}"))?;
    let lock = match read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(&file, lock) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let message = format!("the image {shown} is in use by another fslab");
            return Err(Coded { code: Code::BadInput, message }.into());
        }
        answer => answer.with_context(|| format!("can't lock the image {shown}"))?,
    }
    FileDevice::from_file(file.into())
        .with_context(|| format!("{shown} is neither a regular file nor a block device"))
}

/// What nobody syncs must not wait for ever. The thread ends with the file system.
fn write_back_from_time_to_time(ext2: &Arc<Ext2>) -> Result<()> {
    let ext2: Weak<Ext2> = Arc::downgrade(ext2);
    let work = move || loop {
        std::thread::sleep(WRITE_BACK_EVERY);
        let Some(ext2) = ext2.upgrade() else { return };
        if let Err(error) = ext2.sync() {
            tracing::error!("writing back: {error}");
        }
    };
    let thread = std::thread::Builder::new().name("fslab-ext2-sync".to_owned());
    thread.spawn(work).context("can't start a thread")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_follow_a_question_mark() {
        let (image, options) =
            parse("/no/image?policy=ffs&clustering=smart&seed=7&index=linear").unwrap();
        assert_eq!((image, options.policy.name), (Path::new("/no/image"), "ffs"));
        assert_eq!((options.seed, options.form), (7, Some(Form::Linear)));
        assert_eq!(options.clustering, Clustering::Smart);
        let message = parse("/no/image?policy=best").unwrap_err().to_string();
        assert!(message.contains("'policy=best'") && message.contains("ffs-noswitch"), "{message}");
    }
}
