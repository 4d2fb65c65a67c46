//! The daemon's answer to `fslab status`: the stack that it serves, its modes, and its start time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::leaves;
use fslab_fuse::{Granted, MountOptions};
use fslab_layers::{LayerChoice, Leaf, Service, Stack};
use fslab_tier::stored::Marks;
use serde::{Deserialize, Serialize};

/// The layer that recalls released files when they are read.
const TIER: &str = "tier";

/// The name of the daemon's service that answers `fslab status`.
pub const SERVICE: &str = "status";

/// A mount as its daemon describes it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Description {
    /// The version of fslab that serves the mount.
    pub version: String,
    /// The number of the process that serves the mount.
    pub pid: u32,
    /// When this daemon began to serve the mount, in seconds since 1970.
    pub since: u64,
    /// The layers, top first, each in the form that `fslab mount -l` accepts.
    pub layers: Vec<String>,
    /// The lower file system.
    pub lower: String,
    /// Modes, such as `read-only`, `writeback`, `keep` and `io_uring`.
    pub modes: Vec<String>,
    /// The cautions that `fslab mount` printed.
    pub cautions: Vec<String>,
}

impl Description {
    /// Describes a mount that this process serves from now on. Call this before mounting: it reads
    /// the lower directory, which the mount may cover.
    pub fn new(stack: &Stack) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            since: now.as_secs(),
            layers: stack.layers.iter().map(ToString::to_string).collect(),
            lower: absolute(&stack.leaf),
            modes: Vec::new(),
            cautions: cautions(stack),
        }
    }

    /// Returns this description with the modes that were requested or granted.
    pub fn served(self, options: &MountOptions, granted: &Granted) -> Self {
        let modes = [
            ("read-only", options.read_only),
            ("writeback", granted.writeback()),
            ("keep", options.keep),
            ("io_uring", granted.uring()),
        ];
        let modes = modes.into_iter().filter(|(_, is_on)| *is_on);
        Self { modes: modes.map(|(name, _)| name.to_owned()).collect(), ..self }
    }
}

/// Returns the lower file system as text. The path of a directory or an image becomes absolute.
fn absolute(leaf: &Leaf) -> String {
    let leaf = match leaf {
        Leaf::Directory(path) => path.canonicalize().ok().map(Leaf::Directory),
        Leaf::Foreign(spec, argument) => {
            let (image, _) = leaves::image_and_options(argument);
            let options = &argument[image.as_os_str().len()..];
            // A file system in memory, or a part of an image, is returned as the user gave it.
            let image = image.canonicalize().ok();
            image.map(|image| Leaf::Foreign(spec, format!("{}{options}", image.display())))
        }
        Leaf::Memory => None,
    }
    .unwrap_or_else(|| leaf.clone());
    leaf.to_string()
}

fn cautions(stack: &Stack) -> Vec<String> {
    let layers = stack.layers.iter().map(LayerChoice::spec);
    let layers = layers.filter_map(|spec| {
        let caution = spec.stability.caution()?;
        Some(format!("layer {}: {caution}", spec.name))
    });
    let leaf = stack.leaf.caution().map(|caution| format!("{}: {caution}", stack.leaf));
    layers.chain(leaf).chain(tier_without_its_layer(stack)).collect()
}

/// Returns a caution if the lower directory belongs to a tier but the stack has no tier layer.
fn tier_without_its_layer(stack: &Stack) -> Option<String> {
    let root = stack.leaf.directory()?;
    let name = Marks::of_this_process().tree_name();
    let is_tree = rustix::fs::getxattr(root, name, &mut [0_u8; 4096][..]).is_ok();
    let has_layer = stack.layers.iter().any(|layer| layer.spec().name == TIER);
    (is_tree && !has_layer).then(|| {
        format!(
            "{} belongs to a tier; without `-l tier`, programs can't read the content of released \
             files",
            stack.leaf
        )
    })
}

impl Service for Description {
    fn name(&self) -> &'static str {
        SERVICE
    }

    fn serve(
        &self,
        _question: &str,
        _is_gone: &Arc<AtomicBool>,
        tell: &mut dyn FnMut(&str) -> bool,
    ) {
        match serde_json::to_string(self) {
            Ok(line) => {
                tell(&line);
            }
            Err(error) => tracing::error!(%error, "can't describe the mount"),
        }
    }
}
