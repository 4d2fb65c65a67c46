//! Random bytes for writes whose data is not in the trace.

use fslab_vfs::{SPLIT_MIX_STEP, split_mix};

/// Fills a buffer with incompressible bytes; the same seed gives the same bytes. The generator is
/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
pub fn noise(seed: u64, buffer: &mut [u8]) {
    let mut state = seed.wrapping_mul(SPLIT_MIX_STEP);
    for piece in buffer.chunks_mut(8) {
        piece.copy_from_slice(&split_mix(state).to_le_bytes()[..piece.len()]);
        state = state.wrapping_add(SPLIT_MIX_STEP);
    }
}
