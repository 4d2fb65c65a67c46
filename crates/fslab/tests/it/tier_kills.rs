//! Tests a tier whose daemon is killed while files are archived, released and recalled. At the same
//! time, programs read, map and write these files, also through shared mappings.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fslab_sys::make_file_system::Kind;
use fslab_vfs_testing::environment::{number, seed};
use fslab_vfs_testing::skip::skip;

use crate::support::{kill, open_process, require_mounting, run};
use crate::tiering::{Tiered, noise};

/// Number of kills over each file system; `FSLAB_TIER_KILLS` replaces it.
const KILLS: u64 = 2;

const MIB: usize = 1 << 20;

/// Number of reading and of writing threads.
const READERS: u64 = 2;
const WRITERS: u64 = 2;

#[test]
fn files_survive_kills_over_the_test_directory() {
    require_mounting!();
    let seed = seed();
    killed_often(&Tiered::mounted(), seed);
}

#[test]
fn files_survive_kills_over_xfs() {
    require_mounting!();
    let seed = seed();
    killed_often(&Tiered::mounted_over(Kind::Xfs), seed);
}

#[test]
fn files_survive_kills_over_btrfs() {
    require_mounting!();
    let seed = seed();
    killed_often(&Tiered::mounted_over(Kind::Btrfs), seed);
}

/// A file that no program changes.
struct Still {
    path: PathBuf,
    data: Vec<u8>,
}

/// A file that is changed, and its expected content. The file must contain all acknowledged
/// changes. It may contain any part of the last change, which was not acknowledged.
#[derive(Clone)]
struct Changing {
    path: PathBuf,
    data: Vec<u8>,
    in_doubt: Option<Vec<u8>>,
}

fn killed_often(tiered: &Tiered, seed: u64) {
    let kills = number("FSLAB_TIER_KILLS").unwrap_or(KILLS);
    let still = |number: u64| {
        let still = Still {
            path: tiered.path(&format!("still{number}")),
            data: noise(seed.wrapping_add(number), 2 * MIB + 9),
        };
        fs::write(&still.path, &still.data).unwrap();
        still
    };
    let changing = |number: u64| {
        let data = noise(seed.wrapping_sub(number), 2 * MIB + 11);
        let path = tiered.path(&format!("changing{number}"));
        fs::write(&path, &data).unwrap();
        Changing { path, data, in_doubt: None }
    };
    let still: Vec<Still> = (0..READERS + 1).map(still).collect();
    // The last changing file is written through mappings.
    let mut changing: Vec<Changing> = (0..WRITERS + 1).map(changing).collect();
    let reference = tiered.beside("reference");
    fs::write(&reference, &still[0].data).unwrap();
    for round in 0..kills {
        let seed = seed.wrapping_add(round.wrapping_mul(7919));
        killed_once(tiered, seed, &still, &mut changing, &reference);
        for still in &still {
            assert!(fs::read(&still.path).unwrap() == still.data, "{:?}, seed {seed}", still.path);
        }
        changing.iter_mut().for_each(Changing::settle);
    }
    assert!(tiered.of("scrub", "").contains("repaired 0, damaged 0"));
    assert!(!tiered.of("scan", "").contains("damaged"));
    tiered.umount();
}

fn killed_once(
    tiered: &Tiered,
    seed: u64,
    still: &[Still],
    changing: &mut [Changing],
    reference: &Path,
) {
    let is_killed = AtomicBool::new(false);
    let daemon = open_process(tiered.daemon());
    let mapper = Mapper::start(&still[0].path, reference);
    let (mapped, changing) = changing.split_last_mut().unwrap();
    let writer = MapWriter::start(mapped, &tiered.beside("before"), seed);
    std::thread::scope(|scope| {
        let is_killed = &is_killed;
        scope.spawn(move || writer.map_or((), |writer| writer.follow(mapped, is_killed)));
        for action in ["archive", "release"] {
            let point = tiered.path("");
            scope.spawn(move || while run(&["tier", action, point.to_str().unwrap()]).0 != 1 {});
        }
        for still in &still[1..] {
            scope.spawn(move || reads_right(still, is_killed));
        }
        for (number, changing) in changing.iter_mut().enumerate() {
            let seed = seed.wrapping_add(number as u64);
            scope.spawn(move || changing.change_until_killed(seed, is_killed));
        }
        std::thread::sleep(Duration::from_micros(seed % 60_000));
        is_killed.store(true, Ordering::SeqCst);
        kill(&daemon);
    });
    if let Some(mapper) = mapper {
        mapper.was_right();
    }
    tiered.mount_again();
}

/// Reads a file until the daemon is killed.
fn reads_right(still: &Still, is_killed: &AtomicBool) {
    loop {
        match fs::read(&still.path) {
            Ok(read) => assert!(read == still.data, "{}", still.path.display()),
            Err(error) => {
                assert!(is_killed.load(Ordering::SeqCst), "{}: {error}", still.path.display());
                return;
            }
        }
    }
}

impl Changing {
    /// Changes the file until the daemon is killed.
    fn change_until_killed(&mut self, seed: u64, is_killed: &AtomicBool) {
        let mut draws = seed | 1;
        let mut draw = |below: usize| {
            draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (draws >> 33) as usize % below.max(1)
        };
        for step in 0.. {
            let (kind, size) = (draw(10), self.data.len());
            let mut next = self.data.clone();
            let done = if kind == 0 {
                next.resize(draw(3 * MIB), 0);
                OpenOptions::new()
                    .write(true)
                    .open(&self.path)
                    .and_then(|file| file.set_len(next.len() as u64))
            } else {
                let offset = if kind == 1 { size } else { draw(size) };
                let piece = noise(seed.wrapping_add(step), draw(200_000) + 1);
                let end = (offset + piece.len()).min(4 * MIB).max(offset);
                let piece = &piece[..end - offset];
                next.resize(size.max(end), 0);
                next[offset..end].copy_from_slice(piece);
                let opened = OpenOptions::new().write(true).open(&self.path);
                opened.and_then(|file| file.write_all_at(piece, offset as u64))
            };
            if let Err(error) = done {
                assert!(is_killed.load(Ordering::SeqCst), "{}: {error}", self.path.display());
                self.in_doubt = Some(next);
                return;
            }
            self.data = next;
        }
    }

    /// Checks the content of the file against the expected content.
    fn settle(&mut self) {
        let found = fs::read(&self.path).unwrap();
        let next = self.in_doubt.take().unwrap_or_else(|| self.data.clone());
        let sizes = [self.data.len(), next.len()];
        let (least, most) = (sizes[0].min(sizes[1]), sizes[0].max(sizes[1]));
        assert!((least..=most).contains(&found.len()), "{}: {sizes:?}", found.len());
        let byte = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
        let wrong = (0..found.len())
            .find(|at| ![byte(&self.data, *at), byte(&next, *at)].contains(&found[*at]));
        assert_eq!(wrong, None, "{} of {} bytes", self.path.display(), found.len());
        self.data = found;
    }
}

/// A program that repeatedly maps a file, until mapping fails or a signal ends the program.
struct Mapper(Child);

const MAPS: &str = "
import mmap, sys
wanted = open(sys.argv[2], 'rb').read()
while True:
    try:
        with open(sys.argv[1], 'rb') as file:
            mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    except OSError:
        sys.exit(0)
    if mapped[:] != wanted:
        sys.exit(9)
    mapped.close()
    print('right', flush=True)
";

impl Mapper {
    /// Starts the program, and waits until it has read the file once.
    fn start(path: &Path, reference: &Path) -> Option<Self> {
        let python = Command::new("python3")
            .arg("-c")
            .arg(MAPS)
            .args([path, reference])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = python else {
            skip("maps of files under kills", "no python3");
            return None;
        };
        let mut told = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert_eq!(line, "right\n");
        // Read all output, so that the program never blocks on a full pipe.
        std::thread::spawn(move || told.lines().for_each(drop));
        Some(Self(child))
    }

    /// Checks how the program ended. If the daemon is killed, mapping fails, or access to an
    /// unreadable page causes a signal.
    fn was_right(mut self) {
        let ended = self.0.wait().unwrap();
        assert!(matches!(ended.code(), None | Some(0)), "a map showed wrong bytes: {ended}");
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        // This has an effect only if an assertion failed. Otherwise the program has already ended.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A program that writes to a file through shared mappings. It reports each write before it starts,
/// and each sync after it is done. Before it writes to a range, it checks the range's content.
struct MapWriter {
    child: Child,
    told: BufReader<ChildStdout>,
}

const MAP_WRITES: &str = "
import mmap, random, sys
wanted, draws = bytearray(open(sys.argv[2], 'rb').read()), random.Random(int(sys.argv[3]))
try:
    while True:
        with open(sys.argv[1], 'r+b') as file, mmap.mmap(file.fileno(), 0) as mapped:
            for _ in range(3):
                start = draws.randrange(len(wanted))
                end = min(len(wanted), start + draws.randrange(1, 9000))
                if mapped[start:end] != wanted[start:end]:
                    print('wrong', start, end, 0, flush=True)
                    sys.exit(9)
                value = draws.randrange(256)
                print('begun', start, end, value, flush=True)
                mapped[start:end] = wanted[start:end] = bytes([value]) * (end - start)
                mapped.flush()
                print('synced', start, end, value, flush=True)
except OSError:
    pass
";

impl MapWriter {
    /// Starts the program, and waits until it has written once.
    fn start(changing: &mut Changing, before: &Path, seed: u64) -> Option<Self> {
        fs::write(before, &changing.data).unwrap();
        let python = Command::new("python3")
            .args(["-c", MAP_WRITES])
            .args([&changing.path, before])
            .arg(seed.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = python else {
            skip("shared maps of files under kills", "no python3");
            return None;
        };
        let told = BufReader::new(child.stdout.take().unwrap());
        let mut writer = Self { child, told };
        assert!(
            writer.hear(changing) && writer.hear(changing),
            "the program ended before its first write"
        );
        Some(writer)
    }

    /// Records the program's next report. Returns `false` if the program has ended.
    fn hear(&mut self, changing: &mut Changing) -> bool {
        let mut line = String::new();
        if self.told.read_line(&mut line).unwrap() == 0 {
            return false;
        }
        let (what, numbers) = line.trim_end().split_once(' ').unwrap();
        let numbers: Vec<usize> =
            numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let mut next = changing.data.clone();
        next[numbers[0]..numbers[1]].fill(numbers[2] as u8);
        match what {
            "begun" => changing.in_doubt = Some(next),
            "synced" => (changing.data, changing.in_doubt) = (next, None),
            _ => panic!("a mapping shows bytes that were not written: {line}"),
        }
        true
    }

    /// Records all reports until the program ends. It must not end before the kill. After the kill,
    /// an error ends it, or a signal at an unreadable page.
    fn follow(mut self, changing: &mut Changing, is_killed: &AtomicBool) {
        while self.hear(changing) {}
        let ended = self.child.wait().unwrap();
        assert!(matches!(ended.code(), None | Some(0)), "{ended}");
        assert!(is_killed.load(Ordering::SeqCst), "maps failed before the daemon was killed");
    }
}

impl Drop for MapWriter {
    fn drop(&mut self) {
        // This has an effect only if an assertion failed. Otherwise the program has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// If the disk is too full to store recalled blocks, the file can be read, but not changed.
#[test]
fn offline_file_on_a_full_disk_is_read_and_loses_no_data() {
    require_mounting!();
    let tiered = Tiered::mounted_over(Kind::Ext4);
    let data = noise(9, 8 * MIB);
    fs::write(tiered.path("file"), &data).unwrap();
    tiered.of("archive", "file");
    tiered.of("release", "file");
    let filler = File::create(tiered.beside_tree("filler")).unwrap();
    let full = (0..).find_map(|block| filler.write_all_at(&[1; MIB], block * MIB as u64).err());
    assert_eq!(full.unwrap().kind(), std::io::ErrorKind::StorageFull);
    assert!(fs::read(tiered.path("file")).unwrap() == data);
    let file = File::options().write(true).open(tiered.path("file")).unwrap();
    let change = file.write_all_at(b"changed", 7 * MIB as u64 + 10).unwrap_err();
    assert_eq!(change.kind(), std::io::ErrorKind::StorageFull, "{change}");
    drop(file);
    filler.set_len(0).unwrap();
    assert!(fs::read(tiered.path("file")).unwrap() == data);
    tiered.umount();
}
