//! Programs that may not recall.

use std::sync::Arc;

use fslab_tier::{DenyList, Program, Programs, Settings};
use fslab_vfs::{Errno, FileSystem, Handle, Ino, MemFs, OpenMode, Request, WriteOptions};

use crate::support::{Bench, MIB, TIER, noise};

const INDEXER: u32 = 7;
const PERSON: u32 = 8;

struct Two;

impl Programs for Two {
    fn of(&self, pid: u32) -> Option<Program> {
        let name = match pid {
            INDEXER => "updatedb",
            PERSON => "less",
            _ => return None,
        };
        Some(Program { name: name.to_owned(), ..Program::default() })
    }
}

fn read(bench: &Bench, ino: Ino, handle: Handle, offset: u64, pid: u32) -> Result<u8, Errno> {
    let (mut byte, request) = ([0], Request { pid, ..Request::default() });
    let read = bench.fs.read(&request, ino, handle, offset, &mut byte);
    read.map(|_| byte[0]).map_err(|error| error.errno())
}

#[test]
fn denied_program_fails_at_once_and_reads_resident_blocks() {
    let settings = Settings {
        deny: DenyList::new(&["updatedb".to_owned()], Arc::new(Two)).unwrap(),
        late: Errno::IO,
        ..Settings::of(TIER)
    };
    let bench = Bench::with(Arc::new(MemFs::default()), settings, 1);
    let client = bench.client();
    let data = noise(95, 3 * MIB);
    let ino = bench.offline(&client, "file", &data);
    let already = bench.bytes_recalled();
    let mode = OpenMode::READ_WRITE;
    let handle = bench.fs.open(&Request::default(), ino, mode).unwrap().handle;
    assert_eq!(read(&bench, ino, handle, 0, INDEXER), Err(Errno::IO));
    let indexer = Request { pid: INDEXER, ..Request::default() };
    let written = bench.fs.write(&indexer, ino, handle, 5, b"edge", WriteOptions::default());
    assert_eq!(written.unwrap_err().errno(), Errno::IO);
    assert_eq!((bench.bytes_recalled(), bench.counted("tier_refused_recalls")), (already, 2));
    assert_eq!(read(&bench, ino, handle, MIB, PERSON), Ok(data[MIB as usize]));
    assert_eq!(read(&bench, ino, handle, MIB, INDEXER), Ok(data[MIB as usize]), "it is here");
    assert_eq!(read(&bench, ino, handle, 0, 9), Ok(data[0]), "nobody knows who that is");
    bench.fs.release(&Request::default(), ino, handle).unwrap();
    assert!(client.contents(ino).unwrap() == data);
}
