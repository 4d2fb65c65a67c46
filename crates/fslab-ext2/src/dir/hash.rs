//! The hash of a name, by which an indexed directory is sorted.
//!
//! There are three functions, each with variants for signed and unsigned characters. The variants
//! exist because characters were signed on some of the machines that wrote the first images and
//! unsigned on others. Half-MD4 and TEA are seeded per file system. The results equal those of the
//! kernel; libext2fs differs in only one value (see [`NameHash::LAST`]).

/// The hash function of a directory, as stored in its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashVersion {
    /// The first function of Phillips: multiply and subtract, without a seed.
    Legacy,
    /// The three rounds of MD4, with half of the steps in each; hashes 32 bytes at a time. The
    /// default of mke2fs.
    HalfMd4,
    /// The Tiny Encryption Algorithm used as a hash, 16 bytes per step.
    Tea,
}

impl HashVersion {
    /// All functions.
    pub const ALL: [Self; 3] = [Self::Legacy, Self::HalfMd4, Self::Tea];

    /// Decodes the byte that the superblock or a directory's root stores.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns the byte to store in the superblock and in a directory's root.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the name used by e2fsprogs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::HalfMd4 => "half_md4",
            Self::Tea => "tea",
        }
    }
}

/// The hash of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameHash {
    /// The sort key of the index. The lowest bit is 0 in the hash of a name. In an index entry, it
    /// is 1 if the previous leaf also contains names with this hash.
    pub major: u32,
    /// Distinguishes most names with the same major hash; 0 for the legacy function.
    pub minor: u32,
}

impl NameHash {
    /// The highest possible major hash. The kernel uses the next value to mark the end of a
    /// directory, so a name that would have that hash gets this one instead. libext2fs does not do
    /// this.
    pub const LAST: u32 = 0xffff_fffc;
}

/// The seed that is used if the superblock's seed is all zeros.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Hashes the names of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hasher {
    version: HashVersion,
    signed: bool,
    seed: [u32; 4],
}

impl Hasher {
    /// Makes a hasher. `signed` states whether names are hashed as signed characters. `seed` is the
    /// superblock's `s_hash_seed` as four little-endian words.
    #[must_use]
    pub fn new(version: HashVersion, signed: bool, seed: [u32; 4]) -> Self {
        let seed = if seed == [0; 4] { DEFAULT_SEED } else { seed };
        Self { version, signed, seed }
    }

    /// Returns the hash function.
    #[must_use]
    pub fn version(self) -> HashVersion {
        self.version
    }

    /// Returns a hasher for a directory of this file system that uses another hash function.
    #[must_use]
    pub fn with_version(self, version: HashVersion) -> Self {
        Self { version, ..self }
    }

    /// Returns the hash of a name of up to 255 bytes.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let (major, minor) = match self.version {
            HashVersion::Legacy => (legacy(name, self.signed), 0),
            HashVersion::HalfMd4 => half_md4(name, self.signed, self.seed),
            HashVersion::Tea => tea(name, self.signed, self.seed),
        };
        NameHash { major: (major & !1).min(NameHash::LAST), minor }
    }
}

/// Extends a character to 32 bits, treating it as signed or unsigned.
fn widen(byte: u8, signed: bool) -> u32 {
    if signed { byte as i8 as u32 } else { u32::from(byte) }
}

/// Packs the first `4 * N` bytes of a name into words, padded with its length.
fn pack<const N: usize>(name: &[u8], signed: bool) -> [u32; N] {
    // Each byte of the padding is the length, which is at most 255.
    let pad = (name.len() as u32 & 0xff) * 0x0101_0101;
    let mut words = [pad; N];
    for (word, bytes) in words.iter_mut().zip(name.chunks(4)) {
        *word = bytes
            .iter()
            .fold(pad, |word, &byte| widen(byte, signed).wrapping_add(word.wrapping_shl(8)));
    }
    words
}

fn legacy(name: &[u8], signed: bool) -> u32 {
    let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for &byte in name {
        let scattered = widen(byte, signed).wrapping_mul(7_152_373);
        let mut next = before.wrapping_add(last ^ scattered);
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7fff_ffff);
        }
        (before, last) = (last, next);
    }
    last << 1
}

fn tea(name: &[u8], signed: bool, seed: [u32; 4]) -> (u32, u32) {
    const DELTA: u32 = 0x9e37_79b9;
    let [mut first, mut second, ..] = seed;
    for part in parts(name, 16) {
        let words: [u32; 4] = pack(part, signed);
        let (mut x, mut y, mut sum) = (first, second, 0_u32);
        for _ in 0..16 {
            sum = sum.wrapping_add(DELTA);
            x = x.wrapping_add(tea_mix(y, sum, words[0], words[1]));
            y = y.wrapping_add(tea_mix(x, sum, words[2], words[3]));
        }
        first = first.wrapping_add(x);
        second = second.wrapping_add(y);
    }
    (first, second)
}

fn tea_mix(other: u32, sum: u32, left: u32, right: u32) -> u32 {
    (other << 4).wrapping_add(left) ^ other.wrapping_add(sum) ^ (other >> 5).wrapping_add(right)
}

/// Yields the rest of the name from each multiple of `step`. A hash step reads only the first
/// `step` bytes of its part, but pads them with the length of the whole part.
fn parts(name: &[u8], step: usize) -> impl Iterator<Item = &[u8]> {
    (0..name.len()).step_by(step).map(|start| &name[start..])
}

/// The steps of one round of half-MD4; each step computes a new `a` from the state and one word.
macro_rules! steps {
    ($function:expr, $constant:expr, $state:ident, $words:ident,
     [$($index:expr),*], [$s0:expr, $s1:expr, $s2:expr, $s3:expr]) => {{
        let shifts = [$s0, $s1, $s2, $s3];
        for (step, index) in [$($index),*].into_iter().enumerate() {
            let [a, b, c, d] = $state;
            let sum = a
                .wrapping_add($function(b, c, d))
                .wrapping_add($words[index])
                .wrapping_add($constant);
            // The next step updates the value that is now `d`.
            $state = [d, sum.rotate_left(shifts[step % 4]), b, c];
        }
    }};
}

fn half_md4(name: &[u8], signed: bool, seed: [u32; 4]) -> (u32, u32) {
    let choose = |x: u32, y: u32, z: u32| z ^ (x & (y ^ z));
    let majority = |x: u32, y: u32, z: u32| (x & y).wrapping_add((x ^ y) & z);
    let parity = |x: u32, y: u32, z: u32| x ^ y ^ z;
    let mut buffer = seed;
    for part in parts(name, 32) {
        let words: [u32; 8] = pack(part, signed);
        let mut state = buffer;
        steps!(choose, 0, state, words, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]);
        steps!(majority, 0x5a82_7999, state, words, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]);
        steps!(parity, 0x6ed9_eba1, state, words, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]);
        for (total, part) in buffer.iter_mut().zip(state) {
            *total = total.wrapping_add(part);
        }
    }
    (buffer[1], buffer[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: [u32; 4] = [0x0403_0201, 0x0807_0605, 0x0c0b_0a09, 0x100f_0e0d];

    #[test]
    fn hash_version_codes_match_the_format() {
        let codes: Vec<_> = HashVersion::ALL.map(HashVersion::code).into();
        assert_eq!(codes, [0, 1, 2]);
        assert_eq!(HashVersion::from_code(3), None);
    }

    #[test]
    fn a_seed_of_zeros_is_the_default_seed() {
        let zero = Hasher::new(HashVersion::HalfMd4, true, [0; 4]);
        let default = Hasher::new(HashVersion::HalfMd4, true, DEFAULT_SEED);
        assert_eq!(zero.hash(b"name"), default.hash(b"name"));
        let other = Hasher::new(HashVersion::HalfMd4, true, SEED);
        assert_ne!(zero.hash(b"name"), other.hash(b"name"));
    }

    #[test]
    fn signed_and_unsigned_hashes_differ_only_beyond_ascii() {
        for version in HashVersion::ALL {
            let signed = Hasher::new(version, true, SEED);
            let unsigned = Hasher::new(version, false, SEED);
            assert_eq!(signed.hash(b"plain"), unsigned.hash(b"plain"), "{version:?}");
            assert_ne!(signed.hash(b"caf\xe9"), unsigned.hash(b"caf\xe9"), "{version:?}");
        }
    }

    #[test]
    fn hashes_clear_the_lowest_bit_and_avoid_the_end_mark() {
        let hasher = Hasher::new(HashVersion::Tea, true, SEED);
        for number in 0..20_000_u32 {
            let hash = hasher.hash(&number.to_le_bytes());
            assert_eq!(hash.major & 1, 0);
            assert!(hash.major <= NameHash::LAST);
        }
    }
}
