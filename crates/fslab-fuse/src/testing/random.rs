//! Tests the server with random sequences of valid and damaged requests.
//!
//! The tests failed when any of the following checks was removed from the code: the NUL of a name;
//! the length of a request, its extensions or the data of a write; the offset of a copy; the size
//! of a read or a listing.

use fslab_vfs_testing::environment::{number, seed};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::{BY_ROOT, RAW, Record, WRONG_LENGTH, check_conversation, encode};
use crate::protocol::opcode::Opcode;

/// A piece of a request's body.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// This many words of eight bytes.
    Words(usize),
    Name,
    Data,
}
use Part::{Data, Name, Words};

fn shape(opcode: Opcode) -> &'static [Part] {
    match opcode {
        Opcode::Readlink | Opcode::Statfs | Opcode::Destroy => &[],
        Opcode::Lookup | Opcode::Unlink | Opcode::Rmdir | Opcode::Removexattr => &[Name],
        Opcode::Symlink => &[Name, Name],
        Opcode::Mknod | Opcode::Create | Opcode::Tmpfile => &[Words(2), Name],
        Opcode::Mkdir | Opcode::Link | Opcode::Getxattr => &[Words(1), Name],
        Opcode::Rename => &[Words(1), Name, Name],
        Opcode::Rename2 => &[Words(2), Name, Name],
        Opcode::Setxattr => &[Words(2), Name, Data],
        Opcode::Write => &[Words(5), Data],
        Opcode::Read | Opcode::Readdir | Opcode::Readdirplus | Opcode::BatchForget => &[Words(5)],
        Opcode::Setattr => &[Words(11)],
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => &[Words(7)],
        Opcode::Fallocate | Opcode::Ioctl => &[Words(4)],
        Opcode::Init => &[Words(8)],
        Opcode::Flush | Opcode::Release | Opcode::Releasedir | Opcode::Lseek | Opcode::Statx => {
            &[Words(3)]
        }
        Opcode::Getattr | Opcode::Fsync | Opcode::Fsyncdir => &[Words(2)],
        Opcode::Forget
        | Opcode::Open
        | Opcode::Opendir
        | Opcode::Syncfs
        | Opcode::Listxattr
        | Opcode::Interrupt => &[Words(1)],
    }
}

/// A word of eight bytes: two numbers of four bytes, a small number, an offset near a limit, or a
/// random value.
fn word() -> impl Strategy<Value = [u8; 8]> {
    let half = prop_oneof![
        6 => 0..8_u32,
        2 => select(vec![16, 100, 4096, 1 << 20, 0o100_644, 0o40_755, 0o2, u32::MAX, 1 << 31]),
        1 => any::<u32>(),
    ];
    let pair = (half.clone(), half).prop_map(|(low, high)| u64::from(low) | u64::from(high) << 32);
    let edges = vec![4096, 1 << 20, 1 << 40, (1 << 63) - 4096, (1 << 63) - 1, 1 << 63, u64::MAX];
    prop_oneof![4 => pair, 4 => 0..8_u64, 2 => select(edges), 1 => any::<u64>()]
        .prop_map(u64::to_ne_bytes)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        "a",
        "b",
        "d",
        "l",
        "",
        ".",
        "..",
        "a/b",
        "user.x",
        "security.x",
        "trusted.x",
        "system.posix_acl_access",
        "system.posix_acl_default",
    ];
    let known = select(known.map(|name| name.as_bytes().to_vec()).to_vec());
    let lengths = select(vec![254_usize, 255, 256, 4095, 4096]);
    let long = lengths.prop_map(|length| vec![b'n'; length]);
    let text = prop_oneof![8 => known, 1 => long, 1 => vec(any::<u8>(), 0..20)];
    (text, prop::bool::weighted(0.95)).prop_map(|(mut bytes, ends)| {
        bytes.extend(ends.then_some(0));
        bytes
    })
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![3 => vec(any::<u8>(), 0..64), 1 => Just(vec![7; 5000])]
}

fn part(part: Part) -> BoxedStrategy<Vec<u8>> {
    match part {
        Words(count) => vec(word(), count).prop_map(|words| words.concat()).boxed(),
        Name => name().boxed(),
        Data => data().boxed(),
    }
}

/// A valid body. If it has data, the length field is usually right.
fn body(opcode: Opcode) -> impl Strategy<Value = Vec<u8>> {
    let parts: Vec<_> = shape(opcode).iter().map(|one| part(*one)).collect();
    let size_at = match opcode {
        Opcode::Write => Some(16),
        Opcode::Setxattr => Some(0),
        _ => None,
    };
    (parts, prop::bool::weighted(0.8)).prop_map(move |(parts, is_right)| {
        let length = parts.last().map_or(0, Vec::len) as u32;
        let mut body = parts.concat();
        if let Some(at) = size_at.filter(|_| is_right) {
            body[at..at + 4].copy_from_slice(&length.to_ne_bytes());
        }
        body
    })
}

/// Damage to a valid body.
#[derive(Clone, Debug)]
enum Damage {
    None,
    Cut(prop::sample::Index),
    Append(Vec<u8>),
    Replace(Vec<u8>),
    Flip(prop::sample::Index, u8),
}

impl Damage {
    fn apply(self, mut body: Vec<u8>) -> Vec<u8> {
        match self {
            Self::None => {}
            Self::Cut(at) => body.truncate(at.index(body.len() + 1)),
            Self::Append(more) => body.extend(more),
            Self::Replace(other) => body = other,
            Self::Flip(..) if body.is_empty() => {}
            Self::Flip(at, bits) => {
                let at = at.index(body.len());
                body[at] ^= bits;
            }
        }
        body
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<prop::sample::Index>;
    prop_oneof![
        12 => Just(Damage::None),
        2 => place().prop_map(Damage::Cut),
        2 => vec(any::<u8>(), 1..100).prop_map(Damage::Append),
        1 => vec(any::<u8>(), 0..100).prop_map(Damage::Replace),
        2 => (place(), any::<u8>()).prop_map(|(at, bits)| Damage::Flip(at, bits)),
    ]
}

/// Extension records, with numbers that are valid or almost valid lengths and kinds.
fn extensions() -> impl Strategy<Value = Vec<u8>> {
    let number = select(vec![0_u32, 1, 2, 4, 8, 16, 24, 31, 32, 33, u32::MAX]);
    let record = vec(number, 2..8)
        .prop_map(|numbers| numbers.into_iter().flat_map(u32::to_ne_bytes).collect::<Vec<u8>>());
    let padded = record.prop_map(|mut bytes| {
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    });
    prop_oneof![8 => Just(Vec::new()), 2 => padded]
}

fn record() -> impl Strategy<Value = Record> {
    let opcode = select(Opcode::ALL.to_vec());
    let shaped = opcode.prop_flat_map(|opcode| (Just(opcode as u8), body(opcode))).boxed();
    let unknown = (any::<u8>(), vec(any::<u8>(), 0..100)).boxed();
    let flags = prop_oneof![
        8 => Just(0), 8 => Just(BY_ROOT), 1 => Just(WRONG_LENGTH), 1 => Just(RAW), 1 => any::<u8>()
    ];
    let asked = prop_oneof![30 => shaped, 1 => unknown];
    let told = prop_oneof![15 => Just(None), 1 => any::<u8>().prop_map(Some)];
    let node = prop_oneof![20 => 1..7_u8, 1 => any::<u8>()];
    (asked, damage(), flags, extensions(), told, node).prop_map(
        |((opcode, body), damage, flags, extensions, told, node)| {
            let rest = [damage.apply(body), extensions.clone()].concat();
            let extensions = told.unwrap_or((extensions.len() / 8) as u8);
            Record { flags, opcode, node, extensions, rest }
        },
    )
}

/// Default number of random conversations; set `FSLAB_REQUEST_CASES` to change it.
const CASES: u32 = 500;

/// Whatever bytes arrive, each reply is an error or has the right size, and little memory is used.
/// Set `FSLAB_SEED` to a printed seed to repeat a failed run.
#[test]
fn any_bytes_are_answered() {
    let seed = seed();
    let cases = number("FSLAB_REQUEST_CASES").map_or(CASES, |cases| cases as u32);
    let bytes: Vec<u8> = (0..4_u64).flat_map(|part| (seed ^ part).to_le_bytes()).collect();
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let conversations = (0..2_u8, vec(record(), 1..40));
    let tried =
        TestRunner::new_with_rng(config, random).run(&conversations, |(options, records)| {
            check_conversation(&encode(options, &records));
            Ok(())
        });
    tried.unwrap_or_else(|failure| panic!("FSLAB_SEED={seed}: {failure}"));
}

/// The corpus contains the inputs that a fuzzer found.
#[test]
fn every_fuzz_corpus_input_is_answered() {
    let corpus = "../../fuzz/corpus/requests";
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().collect();
    assert!(files.len() > 100, "{}", files.len());
    for file in files {
        check_conversation(&std::fs::read(file.unwrap().path()).unwrap());
    }
}

/// Set `FSLAB_FUZZ_SEEDS` to a folder to write the conversations there, as initial inputs for a
/// fuzzer: one for each kind of request, and one with all kinds.
#[test]
fn each_kind_of_request_is_answered() {
    let mut runner = TestRunner::deterministic();
    let mut sample = |opcode: Opcode| {
        let rest = body(opcode).new_tree(&mut runner).unwrap().current();
        Record { flags: BY_ROOT, opcode: opcode as u8, node: 1, extensions: 0, rest }
    };
    let records: Vec<_> = Opcode::ALL.iter().map(|opcode| (*opcode, sample(*opcode))).collect();
    let folder = std::env::var_os("FSLAB_FUZZ_SEEDS").map(std::path::PathBuf::from);
    let write = |name: &str, bytes: &[u8]| {
        check_conversation(bytes);
        folder.iter().for_each(|folder| std::fs::write(folder.join(name), bytes).unwrap());
    };
    for (opcode, record) in &records {
        write(&format!("{opcode:?}").to_lowercase(), &encode(0, std::slice::from_ref(record)));
    }
    let all: Vec<_> = records.into_iter().map(|(_, record)| record).collect();
    write("all", &encode(1, &all));
}
