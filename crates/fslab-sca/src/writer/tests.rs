use std::sync::Arc;

use fslab_vfs::Request;

use super::*;
use crate::format::FAN_OUT;
use crate::options;
use crate::testing::logs::{CHUNK, Refusing, file_in, identity, put};

/// Readers see a change even if the checkpoint that it makes due can't be written.
#[test]
fn change_takes_effect_even_if_its_checkpoint_cannot_be_written() {
    let fs = Arc::new(Refusing::default());
    let lower = file_in(fs.clone());
    let (request, settings) = (Request::default(), options::of_tools().unwrap());
    let io = Io::new(&lower, &request, &settings);
    let mut log = Log::new(identity());
    let mut page = 1;
    while log.map.changed_pages() + 1 < CHANGED_PAGES_MAX {
        put(&mut log, io, (page * FAN_OUT, 1));
        page += 1;
    }
    let border = FAN_OUT * CHUNK;
    let write = |log: &mut Log, offset: u64, data: &[u8]| {
        log.write(io, (offset, data), &mut PreEncoded::default(), WriteOptions::default())
    };
    // This write keeps the chunk decoded in memory.
    write(&mut log, border, b"old").unwrap();
    assert_eq!(log.map.changed_pages(), CHANGED_PAGES_MAX - 1);
    // Only the write of the checkpoint fails, which follows the write of the frames.
    fs.refuse(log.end() + 1..u64::MAX, Errno::IO, 1);
    let written = write(&mut log, border - 4, b"pastnew");
    assert_eq!(fs.end(), 0, "no checkpoint was due");
    written.unwrap();
    let mut found = [0; 3];
    log.map.read(io, border, &mut found).unwrap();
    assert_eq!(&found, b"new");
}
