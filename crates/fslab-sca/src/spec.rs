//! The layers of the registry: one for each codec.

use std::sync::Arc;

use fslab_vfs::FileSystem;

use super::codec::{CodecSpec, copy, gzip, lz4, uuencode, zstd};
use super::context::own_request;
use super::layer::Sca;
use super::options::{
    CACHE, CHUNK, GARBAGE, MIN_RATIO, PACK, PACK_AFTER, PACK_RATE, SIZE_XATTR, STAGE, TAILS,
    THREADS, VERIFY, settings,
};
use fslab_layers::{
    BuildLayer, LayerKind, LayerSpec, OptionSpec, Options, Result, Stability, StackContext,
    ValueKind,
};

const COMMON: &[OptionSpec] = &[
    CHUNK, TAILS, THREADS, CACHE, MIN_RATIO, VERIFY, SIZE_XATTR, GARBAGE, PACK, PACK_AFTER,
    PACK_RATE,
];

const fn level(codec: &'static CodecSpec, help: &'static str) -> OptionSpec {
    let (least, most) = (*codec.levels.range.start() as u64, *codec.levels.range.end() as u64);
    let value = ValueKind::Count { least, most };
    OptionSpec { name: "level", help, default: codec.levels.usual, value }
}

const GZIP_OPTIONS: &[OptionSpec] = &[
    level(&gzip::SPEC, "from 1 (fast) to 12 (small)"),
    CHUNK,
    TAILS,
    STAGE,
    THREADS,
    CACHE,
    MIN_RATIO,
    VERIFY,
    SIZE_XATTR,
    GARBAGE,
    PACK,
    PACK_AFTER,
    PACK_RATE,
];

const ZSTD_OPTIONS: &[OptionSpec] = &[
    level(&zstd::SPEC, "from 1 (fast) to 19 (small)"),
    CHUNK,
    TAILS,
    STAGE,
    THREADS,
    CACHE,
    MIN_RATIO,
    VERIFY,
    SIZE_XATTR,
    GARBAGE,
    PACK,
    PACK_AFTER,
    PACK_RATE,
];

const LZ4_OPTIONS: &[OptionSpec] = &[
    CHUNK, TAILS, STAGE, THREADS, CACHE, MIN_RATIO, VERIFY, SIZE_XATTR, GARBAGE, PACK, PACK_AFTER,
    PACK_RATE,
];

/// The layers of this crate, in the order in which they are listed.
pub const LAYERS: &[LayerSpec] = &[COPY, UUENCODE, GZIP, ZSTD, LZ4];

/// The layer `gzip`: gzip members, compressed by libdeflate.
pub const GZIP: LayerSpec = layer(&gzip::SPEC, GZIP_OPTIONS, |inner, options, around| {
    build(&gzip::SPEC, inner, options, around)
});

/// The layer `zstd`: zstd frames.
pub const ZSTD: LayerSpec = layer(&zstd::SPEC, ZSTD_OPTIONS, |inner, options, around| {
    build(&zstd::SPEC, inner, options, around)
});

/// The layer `lz4`: lz4 frames.
pub const LZ4: LayerSpec = layer(&lz4::SPEC, LZ4_OPTIONS, |inner, options, around| {
    build(&lz4::SPEC, inner, options, around)
});

/// The layer `uuencode`: printable text.
pub const UUENCODE: LayerSpec = layer(&uuencode::SPEC, COMMON, |inner, options, around| {
    build(&uuencode::SPEC, inner, options, around)
});

/// The layer `copy`: unencoded chunks.
pub const COPY: LayerSpec =
    layer(&copy::SPEC, COMMON, |inner, options, around| build(&copy::SPEC, inner, options, around));

const fn layer(codec: &CodecSpec, options: &'static [OptionSpec], build: BuildLayer) -> LayerSpec {
    LayerSpec {
        name: codec.name,
        help: codec.help,
        kind: LayerKind::Transformer,
        stability: Stability::Beta,
        options,
        build,
    }
}

fn build(
    codec: &'static CodecSpec,
    inner: Arc<dyn FileSystem>,
    options: &Options,
    context: &StackContext,
) -> Result<Arc<dyn FileSystem>> {
    let settings = settings(codec, &inner, &own_request(), options, context)?;
    Ok(Arc::new(Sca::new(inner, settings)))
}
