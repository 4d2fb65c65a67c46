//! SplitMix64, a generator of pseudo-random 64-bit numbers.

/// Amount added to the generator's state with each number drawn.
pub const SPLIT_MIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the number that the generator draws in this state.
#[must_use]
pub fn split_mix(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(SPLIT_MIX_STEP);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
