//! `fslab ext2 mkfs`: makes a file system.

use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result};
use clap::ValueEnum;
use fslab_ext2::{BlockSize, Ext2, HashVersion, MkfsOptions, VolumeOptions, mkfs};
use fslab_vfs::{
    BlockDevice, MemoryDevice, Signature, Size, Timestamp, signatures_of, wipe_signatures,
};

use crate::leaves::{LockedImage, Part, open_device};

/// Arguments of `fslab ext2 mkfs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Block size in bytes: 1024, 2048 or 4096; up to 65536 with --simulation
    #[arg(long, short, default_value_t = 4096)]
    block_size: u32,
    /// Allow block sizes that most kernels can't mount
    #[arg(long)]
    simulation: bool,
    /// Inode size in bytes; inodes of 128 bytes have timestamps without nanoseconds
    #[arg(long, short = 'I', default_value_t = 256)]
    inode_size: u32,
    /// Blocks in a block group [default: as many as a bitmap block has bits]
    #[arg(long, short = 'g')]
    blocks_per_group: Option<u32>,
    /// Bytes of space for each inode
    #[arg(long, short = 'i', default_value_t = 16_384)]
    bytes_per_inode: u32,
    /// Percentage of blocks that only root may use
    #[arg(long, short = 'm', default_value_t = 5)]
    reserved_percent: u8,
    /// Label, at most 16 bytes
    #[arg(long, short = 'L', default_value = "")]
    label: String,
    /// UUID, as 8-4-4-4-12 hexadecimal digits; random if not given
    #[arg(long, short = 'U')]
    uuid: Option<String>,
    /// Hash function of the directory index
    #[arg(long, value_enum, default_value_t = Index::HalfMd4)]
    index: Index,
    /// Hash names as unsigned characters
    #[arg(long)]
    unsigned_hash: bool,
    /// Seed of the hash, written like a UUID; random if not given
    #[arg(long)]
    hash_seed: Option<String>,
    /// Allow indexes of three levels
    #[arg(long)]
    large_dir: bool,
    /// Creation time, in seconds since 1970; now if not given
    #[arg(long, env = "SOURCE_DATE_EPOCH")]
    time: Option<i64>,
    /// Overwrite an existing file system
    #[arg(long)]
    force: bool,
    /// Show the planned file system, without writing it
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// The file (created if missing) or device
    image: PathBuf,
    /// Size of the file, such as 64MiB [default: that of the file or device]
    size: Option<Size>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Index {
    /// No index.
    Linear,
    /// The original hash function of the HTree (Phillips).
    Legacy,
    /// A reduced MD4.
    HalfMd4,
    /// The Tiny Encryption Algorithm.
    Tea,
}

impl Args {
    /// Makes the file system.
    pub fn run(self) -> Result<()> {
        let options = self.options()?;
        if self.dry_run {
            return self.rehearse(&options);
        }
        self.make(&options)
    }

    fn rehearse(&self, options: &MkfsOptions) -> Result<()> {
        self.refuse_to_overwrite()?;
        let size = match self.new_size()? {
            Some(size) => size.bytes(),
            None => open_device(&self.image, true)?.size(),
        };
        let device = MemoryDevice::new(size);
        let shown = || format!("{}, {}", self.image.display(), Size::of(size));
        mkfs(&device, options).with_context(shown)?;
        let read_only = VolumeOptions { read_only: true, ..VolumeOptions::default() };
        super::info::show(&Ext2::open(Arc::new(device), read_only)?);
        say!("nothing was written");
        Ok(())
    }

    fn make(&self, options: &MkfsOptions) -> Result<()> {
        let shown = self.image.display();
        let size = self.new_size()?;
        // The image is locked before its length changes, so that no other process uses it
        // meanwhile.
        let image = match size {
            Some(_) => LockedImage::open_or_create(&self.image)?,
            None => LockedImage::open(&self.image, false)?,
        };
        let made = self.make_in(&image, size, options);
        if made.is_ok() || !image.is_new() {
            return made;
        }
        // The lock is still held, so this path still refers to the file that was created above.
        match std::fs::remove_file(&self.image) {
            Ok(()) => made,
            Err(removal) => made.with_context(|| format!("can't remove {shown}: {removal}")),
        }
    }

    fn make_in(
        &self,
        image: &LockedImage<'_>,
        size: Option<Size>,
        options: &MkfsOptions,
    ) -> Result<()> {
        if !self.force {
            refuse_to_overwrite(&self.image, &image.device()?)?;
        }
        if let Some(size) = size {
            let shown = || format!("{}, {size}", self.image.display());
            options.check_for(size.bytes()).with_context(shown)?;
            image.set_length(size.bytes())?;
        }
        let device = image.device()?;
        let shown = || format!("{}, {}", self.image.display(), Size::of(device.size()));
        let old = signatures_of(&device).with_context(shown)?;
        mkfs(&device, options).with_context(shown)?;
        // Old signatures are wiped, or tools would detect the old format in addition to ext2.
        wipe_signatures(&device, &old).with_context(shown)
    }

    fn options(&self) -> Result<MkfsOptions> {
        let Some(block_size) = BlockSize::new(self.block_size) else {
            bail_as!(
                BadInput,
                "block size {}: use 1024, 2048 or 4096, or up to 65536 with --simulation",
                self.block_size
            );
        };
        let hash_seed = parse_uuid(self.hash_seed.as_deref(), "hash seed")?;
        let word = |index: usize| {
            let bytes = hash_seed.iter().skip(index * 4).take(4);
            bytes.rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
        };
        let now = Timestamp::from(SystemTime::now());
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(MkfsOptions {
            block_size,
            simulation: self.simulation,
            inode_size: self.inode_size,
            blocks_per_group: self.blocks_per_group,
            bytes_per_inode: self.bytes_per_inode,
            reserved_percent: self.reserved_percent,
            label: self.label.clone().into_bytes(),
            uuid: parse_uuid(self.uuid.as_deref(), "UUID")?,
            index: self.index.hash(),
            signed_hash: !self.unsigned_hash,
            hash_seed: std::array::from_fn(word),
            large_directories: self.large_dir,
            now: self.time.map_or(now, |seconds| Timestamp { seconds, nanoseconds: 0 }),
            root_owner: owner,
        })
    }

    /// Refuses an image that contains an ext2, ext3 or ext4 file system, unless `--force` is given.
    fn refuse_to_overwrite(&self) -> Result<()> {
        if self.force || !Part::parse(&self.image).file.exists() {
            return Ok(());
        }
        refuse_to_overwrite(&self.image, &open_device(&self.image, true)?)
    }

    /// Returns the new size of the file; `None` if the size stays the same.
    fn new_size(&self) -> Result<Option<Size>> {
        let shown = self.image.display();
        let part = Part::parse(&self.image);
        let existing = self.image.metadata().ok();
        let is_device = |metadata: &Metadata| metadata.file_type().is_block_device();
        let has_size = match &existing {
            _ if part.file != self.image => Some("is a part of an image: its size can't be set"),
            Some(metadata) if is_device(metadata) => Some("is a device: its size can't be set"),
            _ => None,
        };
        match (self.size, has_size) {
            (Some(_), Some(why)) => bail_as!(BadInput, "{shown} {why}"),
            (None, None) if existing.is_none() => {
                bail_as!(BadInput, "{shown} does not exist; give the size of the new image");
            }
            (size, _) => Ok(size),
        }
    }
}

impl Index {
    fn hash(self) -> Option<HashVersion> {
        match self {
            Self::Linear => None,
            Self::Legacy => Some(HashVersion::Legacy),
            Self::HalfMd4 => Some(HashVersion::HalfMd4),
            Self::Tea => Some(HashVersion::Tea),
        }
    }
}

fn refuse_to_overwrite(image: &Path, device: &dyn BlockDevice) -> Result<()> {
    match fslab_ext2::Superblock::read(device) {
        Err(fslab_ext2::Error::NotExt2(_)) => refuse_other_formats(image, device),
        Err(error @ fslab_ext2::Error::Vfs(_)) => {
            Err(error).with_context(|| image.display().to_string())
        }
        _ => bail_as!(
            BadInput,
            "{} contains an ext2, ext3 or ext4 file system; use --force to overwrite it",
            image.display()
        ),
    }
}

/// Refuses an image that contains the signature of another format, as wipefs(8) would find it.
fn refuse_other_formats(image: &Path, device: &dyn BlockDevice) -> Result<()> {
    let shown = image.display();
    let found = signatures_of(device).with_context(|| shown.to_string())?;
    let Some(Signature { name, .. }) = found.first() else { return Ok(()) };
    bail_as!(BadInput, "{shown} contains {name}; use --force to overwrite it")
}

/// Parses a UUID, with or without hyphens. Returns a random one if no text is given.
pub(super) fn parse_uuid(text: Option<&str>, what: &str) -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let Some(text) = text else {
        let source = std::fs::File::open("/dev/urandom");
        source
            .and_then(|mut source| source.read_exact(&mut bytes))
            .context("can't get random numbers")?;
        // Version 4, variant 1: a random UUID.
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        return Ok(bytes);
    };
    let digits: String = text.chars().filter(|character| *character != '-').collect();
    let is_hexadecimal =
        digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_hexadecimal);
    let Some(number) = number else {
        bail_as!(BadInput, "'{text}' is not a {what} of 32 hexadecimal digits")
    };
    Ok(number.to_be_bytes())
}
