//! Reads the true values of a file system's attributes from superblocks, sysfs and statx, without
//! the prober's methods. The prober's answers are compared with them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use fslab_sys::mounts;
use rustix::fs::{AtFlags, CWD, StatxFlags};

use super::finding::{Finding, Value};
use super::ground::mount_of;

/// The true value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Truth {
    /// Exactly this value.
    Is(Value),
    /// A number of bytes in this range. The exact number can't be read anywhere.
    Within {
        /// Inclusive lower bound.
        low: u64,
        /// Inclusive upper bound.
        high: u64,
    },
    /// The file system has no such property.
    NotApplicable,
}

/// The comparison of an answer with the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The answer is right, whether a value or "not applicable".
    Right,
    /// The attribute has a value, but the prober found none.
    NotFound,
    /// The value is wrong.
    Wrong,
}

impl Truth {
    /// Judges a finding.
    #[must_use]
    pub fn judge(&self, finding: &Finding) -> Verdict {
        match (self, finding.value()) {
            (Self::Is(value), Some(found)) if value == found => Verdict::Right,
            (Self::Within { low, high }, Some(found)) if is_within(found, *low, *high) => {
                Verdict::Right
            }
            (Self::NotApplicable, None) => Verdict::Right,
            (Self::Is(_) | Self::Within { .. }, None) => Verdict::NotFound,
            _ => Verdict::Wrong,
        }
    }
}

/// Whether a value that was found is, or may be, in a range.
fn is_within(found: &Value, least: u64, most: u64) -> bool {
    match *found {
        Value::Bytes(bytes) => (least..=most).contains(&bytes),
        Value::Between { low, high } => least <= low && high <= most,
        Value::BytesAtLeast(bytes) => bytes <= most,
        _ => false,
    }
}

/// The known true values by attribute name.
pub type Truths = BTreeMap<&'static str, Truth>;

/// Reads the known values of a directory's file system. Root can read more of them.
///
/// # Errors
/// Fails if the directory or the mount table can't be read.
pub fn read(directory: &Path) -> io::Result<Truths> {
    let mut truths = of_any(directory)?;
    let statfs = rustix::fs::statvfs(directory)?;
    let Some(entry) = mount_of(directory)? else { return Ok(truths) };
    let source = PathBuf::from(&entry.source);
    match entry.file_system.as_str() {
        "ext2" | "ext3" | "ext4" => ext(&mut truths, &source, &entry),
        "xfs" => xfs(&mut truths, statfs.f_bsize),
        "btrfs" => btrfs(&mut truths, statfs.f_bsize),
        "tmpfs" => tmpfs(&mut truths, statfs.f_bsize),
        _ => {}
    }
    read_ahead(&mut truths, directory, &entry)?;
    direct_input_output(&mut truths, directory)?;
    Ok(truths)
}

/// Returns the values that the kernel determines for any file system.
fn of_any(directory: &Path) -> io::Result<Truths> {
    let mut truths = Truths::new();
    bytes(&mut truths, "name-length-max", rustix::fs::statvfs(directory)?.f_namemax);
    // PATH_MAX without the terminating NUL byte.
    bytes(&mut truths, "path-length-max", 4096 - 1);
    Ok(truths)
}

/// Attributes that remain visible through a mount over the file system, if the mount does not
/// change files.
const THROUGH: [&str; 10] = [
    "block-size",
    "sparse-granularity",
    "allocation-unit",
    "direct-pointers",
    "pointer-fan-out",
    "pointer-depth",
    "inline-data",
    "preallocation",
    "links-max",
    "timestamp-granularity",
];

/// Attributes that only the device or FIEMAP can show. They are not visible through a FUSE mount.
const NOT_THROUGH: [&str; 5] =
    ["extents-in-inode", "extents-a-block", "delayed-allocation", "sync-flushes", "journal"];

/// Returns the known values of an overlay whose upper directory is on `below`.
///
/// # Errors
/// Returns the same errors as [`read`].
pub fn of_overlay(directory: &Path, below: &Path) -> io::Result<Truths> {
    let mut truths = of_any(directory)?;
    let seen = ["extents-in-inode", "extents-a-block", "delayed-allocation"];
    truths.extend(
        read(below)?.into_iter().filter(|(name, _)| THROUGH.contains(name) || seen.contains(name)),
    );
    none(&mut truths, &["sync-flushes", "journal"]);
    Ok(truths)
}

/// Returns the known values of layers over `below`. If `transparent`, the layers pass requests on;
/// otherwise they store files in another format.
///
/// # Errors
/// Returns the same errors as [`read`].
pub fn of_layers(directory: &Path, below: &Path, transparent: bool) -> io::Result<Truths> {
    let mut truths = of_any(directory)?;
    if transparent {
        truths.extend(read(below)?.into_iter().filter(|(name, _)| THROUGH.contains(name)));
    } else {
        none(&mut truths, &POINTERS);
    }
    none(&mut truths, &NOT_THROUGH);
    no_ranges(&mut truths);
    Ok(truths)
}

/// Sets the truth for range operations that FUSE never supports, whatever the lower file system
/// supports.
fn no_ranges(truths: &mut Truths) {
    for name in ["supports-collapse", "supports-insert"] {
        word(truths, name, "no");
    }
}

/// Returns the known values of an ext2 image that is served by a program.
///
/// # Errors
/// Returns the same errors as [`read`].
pub fn of_image(directory: &Path, image: &Path) -> io::Result<Truths> {
    let mut ext2 = Truths::new();
    ext_superblock(&mut ext2, image, false, "");
    let mut truths = of_any(directory)?;
    truths.extend(ext2.into_iter().filter(|(name, _)| THROUGH.contains(name)));
    // Whether space is preallocated depends on the program, not on the image.
    truths.remove("preallocation");
    none(&mut truths, &NOT_THROUGH);
    no_ranges(&mut truths);
    Ok(truths)
}

/// Returns the known values under a memory limit. The cache size is known only as a range, because
/// the limit includes an unknown amount of other memory.
#[must_use]
pub fn of_memory(limit: u64) -> Truths {
    let mut truths = Truths::new();
    truths.insert("cache-size", Truth::Within { low: limit / 10 * 6, high: limit });
    word(&mut truths, "cache-bound", "control-group");
    truths
}

/// Returns the replacement policy of the page cache if the kernel uses two LRU lists. The policy of
/// the multi-generational LRU (CONFIG_LRU_GEN) is not known.
#[must_use]
pub fn of_replacement() -> Option<Truth> {
    let generations = fs::read_to_string("/sys/kernel/mm/lru_gen/enabled");
    let off = |text: &str| matches!(text.trim(), "0x0000" | "n" | "N" | "0");
    match generations {
        Ok(text) if !off(&text) => None,
        _ => Some(Truth::Is(Value::Word("twice-read"))),
    }
}

const POINTERS: [&str; 3] = ["direct-pointers", "pointer-fan-out", "pointer-depth"];
const EXTENTS: [&str; 2] = ["extents-in-inode", "extents-a-block"];

fn none(truths: &mut Truths, names: &[&'static str]) {
    truths.extend(names.iter().map(|name| (*name, Truth::NotApplicable)));
}

fn count(truths: &mut Truths, name: &'static str, count: u64) {
    truths.insert(name, Truth::Is(Value::Count(count)));
}

fn bytes(truths: &mut Truths, name: &'static str, bytes: u64) {
    truths.insert(name, Truth::Is(Value::Bytes(bytes)));
}

fn word(truths: &mut Truths, name: &'static str, word: &'static str) {
    truths.insert(name, Truth::Is(Value::Word(word)));
}

fn ext(truths: &mut Truths, device: &Path, entry: &mounts::MountEntry) {
    ext_superblock(truths, device, entry.file_system == "ext4", &entry.options);
}

/// Sets the values that follow from the superblock, which dumpe2fs prints.
fn ext_superblock(truths: &mut Truths, device: &Path, delays: bool, options: &str) {
    let Some(text) = output(Command::new("dumpe2fs").arg("-h").arg(device)) else { return };
    let field = |key: &str| {
        text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned())
    };
    let number = |key: &str| field(key).and_then(|value| value.parse::<u64>().ok());
    let features = field("Filesystem features:").unwrap_or_default();
    let has = |feature: &str| features.split_whitespace().any(|one| one == feature);
    let Some(block) = number("Block size:") else { return };
    let Some(inode) = number("Inode size:") else { return };
    bytes(truths, "block-size", block);
    bytes(truths, "sparse-granularity", block);
    bytes(truths, "allocation-unit", number("Cluster size:").unwrap_or(block));
    if has("extent") {
        none(truths, &POINTERS);
        // Both the inode (with 60 bytes) and a tree block contain a header and entries of 12 bytes
        // each.
        count(truths, "extents-in-inode", 60 / 12 - 1);
        count(truths, "extents-a-block", (block - 12) / 12);
    } else {
        none(truths, &EXTENTS);
        count(truths, "direct-pointers", 12);
        count(truths, "pointer-fan-out", block / 4);
        count(truths, "pointer-depth", 3);
    }
    bytes(truths, "inline-data", if has("inline_data") { inline_data(inode) } else { 0 });
    // With `data=journal`, ext4 does not use delayed allocation.
    let data_journal = options.split(',').any(|option| option == "data=journal");
    word(truths, "delayed-allocation", if delays && !data_journal { "yes" } else { "no" });
    word(
        truths,
        "journal",
        match (has("has_journal"), data_journal) {
            (false, _) => "none",
            (true, false) => "metadata",
            (true, true) => "data",
        },
    );
    word(truths, "directory-index", if has("dir_index") { "yes" } else { "no" });
    word(truths, "supports-exchange-range", "no");
    if !has("verity") {
        word(truths, "supports-verity", "no");
    }
    count(truths, "links-max", 65_000);
    bytes(truths, "preallocation", 0);
    let step_ns = if inode > 128 { 1 } else { 1_000_000_000 };
    truths.insert("timestamp-granularity", Truth::Is(Value::Nanoseconds(step_ns)));
    for name in ["supports-collapse", "supports-insert", "supports-zero-range"] {
        word(truths, name, if has("extent") { "yes" } else { "no" });
    }
    word(truths, "supports-reflink", "no");
}

/// Returns the maximum size of inline data. It is stored in the 60 bytes of the block pointers, and
/// in an extended attribute within the inode after byte 160. The magic number, the end mark and the
/// attribute's entry use a part of that space.
fn inline_data(inode_size: u64) -> u64 {
    const POINTERS: u64 = 60;
    const BEFORE_ATTRIBUTES: u64 = 160;
    const FRAME: u64 = 4 + 4 + 20;
    POINTERS + inode_size.saturating_sub(BEFORE_ATTRIBUTES + FRAME)
}

/// Sets the values of file systems that allocate single blocks.
fn of_blocks(truths: &mut Truths, block: u64) {
    for name in ["block-size", "allocation-unit", "sparse-granularity"] {
        bytes(truths, name, block);
    }
}

fn xfs(truths: &mut Truths, block: u64) {
    of_blocks(truths, block);
    none(truths, &POINTERS);
    // An extent has 16 bytes. An inode with space for attributes has 192 bytes for extents. A tree
    // block has a header of 72 bytes.
    count(truths, "extents-in-inode", 192 / 16);
    count(truths, "extents-a-block", (block - 72) / 16);
    bytes(truths, "inline-data", 0);
    word(truths, "delayed-allocation", "yes");
    word(truths, "journal", "metadata");
    word(truths, "directory-index", "yes");
    word(truths, "supports-collapse", "yes");
    word(truths, "supports-verity", "no");
}

fn btrfs(truths: &mut Truths, block: u64) {
    of_blocks(truths, block);
    none(truths, &POINTERS);
    none(truths, &EXTENTS);
    // The default of the mount option max_inline.
    bytes(truths, "inline-data", 2048);
    word(truths, "delayed-allocation", "yes");
    word(truths, "journal", "copy-on-write");
    word(truths, "directory-index", "yes");
    word(truths, "supports-exchange-range", "no");
    word(truths, "supports-reflink", "yes");
    word(truths, "supports-collapse", "no");
}

fn tmpfs(truths: &mut Truths, block: u64) {
    of_blocks(truths, block);
    none(truths, &POINTERS);
    none(truths, &EXTENTS);
    none(truths, &["read-ahead-initial", "read-ahead-max", "read-ahead-random", "sync-flushes"]);
    none(truths, &["delayed-allocation", "journal", "cache-size", "cache-replacement"]);
    // The kernel keeps the names of all tmpfs directories in one hash table, the dentry cache.
    word(truths, "directory-index", "yes");
}

fn read_ahead(truths: &mut Truths, directory: &Path, entry: &mounts::MountEntry) -> io::Result<()> {
    let device = fs::metadata(directory)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let own = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    let file = if entry.file_system == "btrfs" { btrfs_read_ahead(entry)? } else { Some(own) };
    let told = file.and_then(|file| fs::read_to_string(file).ok());
    if let Some(kib) = told.and_then(|text| text.trim().parse::<u64>().ok()) {
        bytes(truths, "read-ahead-max", kib << 10);
        let page = rustix::param::page_size() as u64;
        bytes(truths, "read-ahead-initial", page * first_window((kib << 10) / page));
        bytes(truths, "read-ahead-random", page);
    }
    Ok(())
}

/// Returns the first window of a reader that requests one page, in pages: get_init_ra_size() in the
/// kernel's mm/readahead.c.
fn first_window(most: u64) -> u64 {
    match most {
        0 => 1,
        _ if most >= 32 => 4,
        _ if most >= 4 => 2,
        _ => most,
    }
}

/// Returns the path of the read-ahead setting of a Btrfs file system, which does not depend on its
/// devices.
fn btrfs_read_ahead(entry: &mounts::MountEntry) -> io::Result<Option<PathBuf>> {
    let Some(device) = Path::new(&entry.source).file_name() else { return Ok(None) };
    for directory in fs::read_dir("/sys/fs/btrfs")? {
        let directory = directory?.path();
        if directory.join("devices").join(device).exists() {
            return Ok(Some(directory.join("bdi/read_ahead_kb")));
        }
    }
    Ok(None)
}

fn direct_input_output(truths: &mut Truths, directory: &Path) -> io::Result<()> {
    let file = tempfile::NamedTempFile::new_in(directory)?;
    let wanted = StatxFlags::DIOALIGN;
    let told = rustix::fs::statx(CWD, file.path(), AtFlags::empty(), wanted)?;
    if told.stx_mask & wanted.bits() != 0 && told.stx_dio_offset_align > 0 {
        bytes(truths, "direct-io-offset", told.stx_dio_offset_align.into());
        bytes(truths, "direct-io-memory", told.stx_dio_mem_align.into());
    }
    Ok(())
}

fn output(command: &mut Command) -> Option<String> {
    // The PATH of ordinary users often lacks /usr/sbin, where these tools are.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = command.env("PATH", path).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Method;

    #[test]
    fn missing_value_is_not_judged_wrong() {
        let found = |bytes| Finding::by(Method::found("", Value::Bytes(bytes), Vec::new()));
        let nothing = Finding::by(Method::failed("", "no", Vec::new()));
        let truth = Truth::Is(Value::Bytes(1));
        assert_eq!(truth.judge(&found(1)), Verdict::Right);
        assert_eq!(truth.judge(&found(2)), Verdict::Wrong);
        assert_eq!(truth.judge(&nothing), Verdict::NotFound);
        assert_eq!(Truth::NotApplicable.judge(&nothing), Verdict::Right);
        assert_eq!(Truth::NotApplicable.judge(&found(1)), Verdict::Wrong);
    }

    #[test]
    fn inline_data_limits_match_ext4() {
        assert_eq!(inline_data(128), 60);
        assert_eq!(inline_data(256), 128);
        assert_eq!(inline_data(512), 384);
    }
}
