//! `fslab ext2 info`: shows the parameters of a file system, and its free space.

use std::path::PathBuf;

use anyhow::Result;
use fslab_ext2::{Ext2, Geometry, Group, Superblock};
use serde_json::{Value, json};

use super::walk::Image;

/// Arguments of `fslab ext2 info`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show every block group too
    #[arg(long, short)]
    groups: bool,
    /// The image or device
    image: PathBuf,
}

impl Args {
    /// Prints the parameters.
    pub fn run(self) -> Result<()> {
        let image = Image::read(&self.image)?;
        let (superblock, groups) = (image.ext2.superblock(), image.ext2.groups());
        let mut facts = facts(&superblock, &groups);
        if self.groups {
            let geometry = superblock.geometry();
            let each = geometry.all_groups().zip(&groups);
            let each: Vec<Value> =
                each.map(|(no, group)| group_facts(geometry, no.0, group)).collect();
            facts.push(("groups", each.into()));
        }
        if self.json {
            let map: serde_json::Map<_, _> =
                facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            say!("{:#}", Value::Object(map));
        } else {
            facts.iter().for_each(|(key, value)| print_fact(key, value));
        }
        Ok(())
    }
}

/// Prints the parameters of a file system.
pub(super) fn show(ext2: &Ext2) {
    facts(&ext2.superblock(), &ext2.groups())
        .iter()
        .for_each(|(key, value)| print_fact(key, value));
}

fn print_fact(key: &str, value: &Value) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| say!("{key}: {item}")),
        Value::String(text) => say!("{key}: {text}"),
        other => say!("{key}: {other}"),
    }
}

fn facts(superblock: &Superblock, groups: &[Group]) -> Vec<(&'static str, Value)> {
    let geometry = superblock.geometry();
    let raw = superblock.raw();
    let free_blocks: u64 = groups.iter().map(|group| u64::from(group.free_blocks)).sum();
    let free_inodes: u64 = groups.iter().map(|group| u64::from(group.free_inodes)).sum();
    let directories: u64 = groups.iter().map(|group| u64::from(group.directories)).sum();
    vec![
        ("label", String::from_utf8_lossy(superblock.label()).into()),
        ("uuid", uuid(raw.s_uuid).into()),
        ("state", if superblock.is_clean() { "clean" } else { "not clean" }.into()),
        ("block_size", geometry.block_size.bytes().into()),
        ("blocks", geometry.blocks.into()),
        ("free_blocks", free_blocks.into()),
        ("reserved_blocks", superblock.reserved_blocks().into()),
        ("inode_size", geometry.inode_size.into()),
        ("inodes", geometry.inodes().into()),
        ("free_inodes", free_inodes.into()),
        ("directories", directories.into()),
        ("group_count", geometry.groups.into()),
        ("blocks_per_group", geometry.blocks_per_group.into()),
        ("inodes_per_group", geometry.inodes_per_group.into()),
        ("features_compat", format!("{:#x}", raw.s_feature_compat.get()).into()),
        ("features_incompat", format!("{:#x}", raw.s_feature_incompat.get()).into()),
        ("features_ro_compat", format!("{:#x}", raw.s_feature_ro_compat.get()).into()),
        ("directory_hash", superblock.hash_version().name().into()),
        ("hash_characters", if superblock.hash_is_signed() { "signed" } else { "unsigned" }.into()),
        ("largest_file", geometry.size_max().into()),
    ]
}

fn group_facts(geometry: &Geometry, no: u32, group: &Group) -> Value {
    json!({
        "group": no,
        "first_block": geometry.first_block(fslab_ext2::GroupNo(no)).0,
        "block_bitmap": group.block_bitmap.0,
        "inode_bitmap": group.inode_bitmap.0,
        "inode_table": group.inode_table.0,
        "free_blocks": group.free_blocks,
        "free_inodes": group.free_inodes,
        "directories": group.directories,
    })
}

fn uuid(bytes: [u8; 16]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| digits[range].to_owned());
    parts.join("-")
}
