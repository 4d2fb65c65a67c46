//! `fslab ext2 capacity`: counts the names that fit into the index of a directory.
//!
//! The engine makes only the directory, in memory, and no file system. An index with one level
//! corresponds to the first prototype of Phillips (2001).

use anyhow::{Result, bail, ensure};
use fslab_ext2::dir::{
    DirectoryBlocks, EntryKind, Form, HashVersion, Hasher, Rules, Search, VectorBlocks, find,
    insert, outline,
};
use fslab_ext2::{BlockSize, InodeNo};
use fslab_vfs::Errno;
use serde_json::json;

/// Arguments of `fslab ext2 capacity`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Levels of index blocks, including the root. With blocks of 4096 bytes, two levels need a
    /// gigabyte of memory
    #[arg(long, value_name = "N", default_value_t = Rules::LEVELS,
          value_parser = clap::value_parser!(u8).range(1..=2))]
    levels: u8,
    /// The hash function of the index
    #[arg(long, value_name = "HASH", default_value = HashVersion::HalfMd4.name(),
          value_parser = hash)]
    hash: HashVersion,
    /// Block size in bytes: 1024, 2048 or 4096
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = block_size)]
    block_size: BlockSize,
    /// Prefix of the generated names; a number follows it
    #[arg(long, value_name = "TEXT", default_value = "file", value_parser = prefix)]
    prefix: String,
    /// Print JSON instead of a sentence
    #[arg(long)]
    json: bool,
}

/// Maximum length of the prefix in bytes. The number follows it in the name.
const PREFIX_MOST: usize = 200;

fn prefix(text: &str) -> Result<String, String> {
    if text.len() > PREFIX_MOST || text.contains('/') {
        return Err(format!("must have at most {PREFIX_MOST} bytes and no slash"));
    }
    Ok(text.to_owned())
}

fn hash(name: &str) -> Result<HashVersion, String> {
    let known = HashVersion::ALL.into_iter().find(|version| version.name() == name);
    let names = || HashVersion::ALL.map(HashVersion::name).join(", ");
    known.ok_or_else(|| format!("must be one of {}", names()))
}

fn block_size(text: &str) -> Result<BlockSize, String> {
    let size = text.parse().ok().and_then(BlockSize::new);
    let size = size.filter(|size| *size <= BlockSize::KERNEL_MAX);
    size.ok_or_else(|| "must be 1024, 2048 or 4096".to_owned())
}

/// The figures of a directory whose index is full.
struct Full {
    names: u64,
    leaves: u64,
    /// Size of all leaves without their overhead, in bytes, and the part of it that names use.
    bytes: u64,
    used: u64,
}

impl Args {
    /// Fills a directory and prints the number of names.
    pub fn run(self) -> Result<()> {
        let full = self.fill()?;
        let share = full.used as f64 / full.bytes.max(1) as f64;
        let Full { names, leaves, .. } = full;
        if self.json {
            let answer = json!({ "names": names, "leaves": leaves, "used_share": share });
            say!("{}", serde_json::to_string_pretty(&answer)?);
        } else {
            say!("{names} names, in {leaves} leaves that are {:.1} % full", share * 100.0);
        }
        Ok(())
    }

    fn fill(&self) -> Result<Full> {
        let mut blocks =
            VectorBlocks::new(self.block_size, &self.rules(), InodeNo::FIRST_FREE, InodeNo::ROOT);
        let mut names = 0;
        while put(&mut blocks, &format!("{}{names}", self.prefix))? {
            names += 1;
        }
        let mut full = Full { names, leaves: 0, bytes: 0, used: 0 };
        ensure!(blocks.is_indexed(), "the directory was full before it became indexed");
        outline::outline(&blocks, &mut |branch| {
            if branch.is_leaf {
                full.leaves += 1;
                full.bytes += branch.limit as u64;
                full.used += branch.used as u64;
            }
        })?;
        Ok(full)
    }

    fn rules(&self) -> Rules {
        let hasher = Hasher::new(self.hash, true, [0; 4]);
        Rules { hasher, form: Form::Indexed, levels: self.levels, shrink: true, kinds: true }
    }
}

/// Adds a name; returns `false` if the directory is full.
fn put(blocks: &mut VectorBlocks, name: &str) -> Result<bool> {
    let Search::Absent(vacancy) = find(blocks, name.as_bytes())? else {
        bail!("{name} is already in the directory");
    };
    let (inode, kind) = (InodeNo::FIRST_FREE, EntryKind::REGULAR);
    match insert(blocks, &vacancy, name.as_bytes(), inode, kind) {
        Err(error) if error.is(Errno::NOSPC) => Ok(false),
        done => Ok(done.map(|()| true)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(levels: u8, bytes: &str) -> Args {
        let (hash, prefix) = (HashVersion::Legacy, "foo".to_owned());
        Args { levels, hash, block_size: block_size(bytes).unwrap(), prefix, json: false }
    }

    /// The root has room for 508 leaves of 4 KiB. A leaf has room for 256 names of 16 bytes; right
    /// after a split, it is half full. So the number of names is between 508 x 128 and 508 x 256.
    #[test]
    fn one_level_index_is_full_when_its_root_is_full() {
        let full = args(1, "4096").fill().unwrap();
        assert_eq!(full.leaves, 508);
        assert!((508 * 128..508 * 256).contains(&full.names), "{}", full.names);
        let share = full.used as f64 / full.bytes as f64;
        assert!((share - full.names as f64 / (508.0 * 256.0)).abs() < 0.01, "{share}");
    }

    #[test]
    fn second_index_level_holds_over_50_times_as_many_names() {
        let [one, two] = [1, 2].map(|levels| args(levels, "1024").fill().unwrap().names);
        assert!(two > 50 * one, "{one} and {two}");
    }

    #[test]
    fn wrong_values_are_refused() {
        assert!(prefix("a/b").is_err() && prefix(&"a".repeat(201)).is_err());
        assert_eq!(prefix("").as_deref(), Ok(""));
        assert!(block_size("8192").is_err() && block_size("4000").is_err());
        assert!(hash("md5").unwrap_err().contains("half_md4"));
    }
}
