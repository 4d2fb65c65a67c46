//! Stores for tests: real servers, one in memory, and a proxy that injects faults.

use std::path::PathBuf;

mod double;
mod http;
mod place;
mod proxy;
mod server;

pub use double::{Hashing, MemoryStore};
pub use place::{Keeping, Place};
pub use proxy::{Fault, Proxy, Rule};
pub use server::{ACCESS_KEY, BUCKET, SECRET_KEY, Server};

/// Finds a program among the tools of `cargo xtask setup` or in `PATH`.
#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("FSLAB_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("fslab")))
        .or_else(|| Some(set("HOME")?.join(".cache/fslab")));
    let own = cache
        .into_iter()
        .flat_map(|cache| ["tools/bin", "tools/python/bin"].map(|folder| cache.join(folder)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}
