//! Options of the layers, and the settings made from them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fslab_vfs::{Errno, FileSystem, LockMode, MonotonicClock, Request};
use quick_cache::sync::Cache;

use super::codec::CodecSpec;
use super::context::{Settings, WhenToPack};
use super::decoded_cache::{BytesOfContent, DecodedCache};
use super::failed_searches::FailedSearches;
use super::size_xattr;
use super::workers::Workers;
use fslab_layers::{CountingNumbers, Error, OptionSpec, Options, Result, StackContext, ValueKind};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

pub const CHUNK: OptionSpec = OptionSpec {
    name: "chunk",
    help: "chunk size of new files, the unit of encoding; a power of two",
    default: "128KiB",
    value: ValueKind::Bytes { least: 4 * KIB, most: MIB },
};

pub const TAILS: OptionSpec = OptionSpec {
    name: "tails",
    help: "store small appended pieces unencoded until their chunk is full",
    default: "on",
    value: ValueKind::Switch,
};

pub const STAGE: OptionSpec = OptionSpec {
    name: "stage",
    help: "let other threads encode appended data after the write has returned",
    default: "on",
    value: ValueKind::Switch,
};

pub const THREADS: OptionSpec = OptionSpec {
    name: "threads",
    help: "threads that encode and decode; 0 for one per processor",
    default: "0",
    value: ValueKind::Count { least: 0, most: 256 },
};

pub const CACHE: OptionSpec = OptionSpec {
    name: "cache",
    help: "memory for decoded chunks",
    default: "32MiB",
    value: ValueKind::Bytes { least: 0, most: 1 << 40 },
};

pub const MIN_RATIO: OptionSpec = OptionSpec {
    name: "min-ratio",
    help: "minimum share of a chunk's size that encoding must save; otherwise the chunk is stored \
           raw",
    default: "0.03",
    value: ValueKind::Share,
};

pub const VERIFY: OptionSpec = OptionSpec {
    name: "verify",
    help: "verify checksums when reading; with off, reads may return damaged content without an \
           error (only for measurements)",
    default: "on",
    value: ValueKind::Switch,
};

pub const SIZE_XATTR: OptionSpec = OptionSpec {
    name: "size-xattr",
    help: "keep sizes in an xattr, so that listings need not open files",
    default: "on",
    value: ValueKind::Switch,
};

pub const GARBAGE: OptionSpec = OptionSpec {
    name: "garbage",
    help: "dead bytes at which garbage is collected, if a file has fewer live bytes than that",
    default: "1MiB",
    value: ValueKind::Bytes { least: 4 * KIB, most: 1 << 40 },
};

pub const PACK: OptionSpec = OptionSpec {
    name: "pack",
    help: "when to pack files: idle (while the mount is idle, and at unmount), close, or off",
    default: "idle",
    value: ValueKind::Choice(&["idle", "close", "off"]),
};

pub const PACK_AFTER: OptionSpec = OptionSpec {
    name: "pack-after",
    help: "how long the mount must be idle before files are packed",
    default: "5s",
    value: ValueKind::Duration,
};

pub const PACK_RATE: OptionSpec = OptionSpec {
    name: "pack-rate",
    help: "bytes per second that packing may write while the mount is idle",
    default: "64MiB",
    value: ValueKind::Bytes { least: 64 * KIB, most: 1 << 40 },
};

/// Returns the settings of a layer over a file system.
///
/// # Errors
/// The chunk size is not a power of two, the tree is in use, or the session can't be begun.
pub fn settings(
    codec: &'static CodecSpec,
    fs: &Arc<dyn FileSystem>,
    request: &Request,
    options: &Options,
    context: &StackContext,
) -> Result<Settings> {
    let chunk = options.number("chunk");
    if !chunk.is_power_of_two() {
        return Err(Error::BadValue {
            layer: codec.name,
            option: "chunk",
            value: chunk.to_string(),
            expected: "a power of two from 4 KiB to 1 MiB".to_owned(),
        });
    }
    let lower = |source: fslab_vfs::Error| Error::Layer { layer: codec.name, source };
    lock_tree(codec, &**fs, LockMode::Exclusive)?;
    let (session, has_xattrs) = {
        let is_conversion = context.conversion().is_some();
        size_xattr::begin_session(fs, request, is_conversion).map_err(lower)?
    };
    let size_xattr = options.is_on("size-xattr");
    if size_xattr && !has_xattrs {
        tracing::warn!(
            "can't keep sizes in xattrs of the lower file system, so listings will open every file"
        );
    }
    if !options.is_on("verify") {
        tracing::warn!(
            "verify=off is only for measurements: damaged content may be returned without an error"
        );
    }
    Ok(Settings {
        codec,
        level: if codec.levels.is_none() { 0 } else { options.number("level") as i32 },
        chunk_log2: chunk.trailing_zeros() as u8,
        tails: options.is_on("tails"),
        stages: codec.compresses && options.is_on("stage"),
        staged: Arc::default(),
        least_gain: options.share("min-ratio"),
        verify: options.is_on("verify"),
        size_xattr: size_xattr && has_xattrs,
        workers: workers(codec, options.number("threads") as usize)?,
        cache: cache(options.number("cache")),
        clock: context.clock(),
        draws: context.draws(),
        files_made: AtomicU64::new(0),
        failed_searches: FailedSearches::default(),
        garbage_bytes_max: options.number("garbage"),
        packing: when_to_pack(options, context),
        session,
        may_leave_out: true,
        run_key: context.conversion().flatten(),
    })
}

/// Locks a tree for one layer.
///
/// # Errors
/// `InUse` if another process has locked the tree.
pub fn lock_tree(codec: &'static CodecSpec, fs: &dyn FileSystem, mode: LockMode) -> Result<()> {
    fs.lock_tree(mode).map_err(|source| match source.errno() {
        Errno::BUSY => Error::InUse { layer: codec.name },
        _ => Error::Layer { layer: codec.name, source },
    })
}

fn when_to_pack(options: &Options, context: &StackContext) -> WhenToPack {
    match options.choice("pack") {
        _ if context.leaf_options().read_only => WhenToPack::Never,
        "idle" => WhenToPack::Idle {
            after: options.duration("pack-after"),
            rate: options.number("pack-rate"),
        },
        "close" => WhenToPack::Close,
        _ => WhenToPack::Never,
    }
}

fn workers(codec: &'static CodecSpec, threads: usize) -> Result<Workers> {
    let name = |index| format!("{}-{index}", codec.name);
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(name)
        .build()
        .map(Workers::new)
        .map_err(|error| Error::Threads { layer: codec.name, source: std::io::Error::other(error) })
}

fn cache(bytes: u64) -> DecodedCache {
    let chunks = (bytes / (128 * KIB)).clamp(16, 1 << 20) as usize;
    Cache::with_weighter(chunks, bytes, BytesOfContent)
}

/// Returns settings for inspecting stored files, without writing or caching.
///
/// # Errors
/// No thread can be started.
pub fn of_tools() -> fslab_vfs::Result<Settings> {
    let codec = &super::codec::copy::SPEC;
    let workers = rayon::ThreadPoolBuilder::new().num_threads(1).build().or(Err(Errno::AGAIN))?;
    Ok(Settings {
        codec,
        level: 0,
        chunk_log2: 17,
        tails: true,
        stages: false,
        staged: Arc::default(),
        least_gain: 0.0,
        verify: true,
        size_xattr: false,
        workers: Workers::new(workers),
        cache: cache(0),
        clock: Arc::new(MonotonicClock),
        draws: Arc::new(CountingNumbers::default()),
        files_made: AtomicU64::new(0),
        failed_searches: FailedSearches::default(),
        garbage_bytes_max: u64::MAX,
        packing: WhenToPack::Never,
        session: super::context::Session::default(),
        may_leave_out: false,
        run_key: None,
    })
}

/// Returns settings for packing stored files of a codec while nothing is mounted over them.
///
/// # Errors
/// No thread can be started.
pub fn of_packing(codec: &'static CodecSpec, size_xattr: bool) -> fslab_vfs::Result<Settings> {
    let level = codec.levels.usual.parse().or(Err(Errno::INVAL))?;
    Ok(Settings { codec, level, least_gain: 0.03, size_xattr, ..of_tools()? })
}

/// Returns settings for encoding samples as a layer with these options would.
///
/// # Errors
/// No thread can be started.
pub fn of_estimate(codec: &'static CodecSpec, options: &Options) -> fslab_vfs::Result<Settings> {
    Ok(Settings {
        codec,
        level: if codec.levels.is_none() { 0 } else { options.number("level") as i32 },
        chunk_log2: options.number("chunk").trailing_zeros() as u8,
        least_gain: options.share("min-ratio"),
        ..of_tools()?
    })
}
