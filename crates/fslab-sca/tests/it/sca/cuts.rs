//! Tests of files that consist partly of small raw pieces, and are truncated in the middle of a
//! piece.

use fslab_vfs::{Ino, OpenMode, SeekTo};
use fslab_vfs_testing::client::Client;

use super::below::{Below, read_file, text};

/// Offsets of the cuts: within a piece, between two pieces, and within the encoded part of a chunk.
const CUTS: [usize; 5] = [1, 150, 300, 301, 4296];

/// Each byte is read by itself, in a new mount, so that no other read has cached it.
#[test]
fn single_bytes_of_appended_pieces_are_read_back() {
    let content = text(500);
    for layer in ["zstd:chunk=4KiB", "copy:chunk=4KiB"] {
        let below = Below::new();
        let fs = below.mount(layer);
        let client = Client::new(&*fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::READ_WRITE).unwrap();
        for (number, piece) in content.chunks(100).enumerate() {
            file.write_all(number as u64 * 100, piece).unwrap();
        }
        file.close().unwrap();
        fs.shutdown().unwrap();
        for offset in [0, 98, 99, 100, 101, 199, 250, 498, 499] {
            let fs = below.mount(layer);
            let client = Client::new(&*fs);
            let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
            let file = client.open(ino, OpenMode::empty()).unwrap();
            let byte = file.read(offset as u64, 1).unwrap();
            assert_eq!(byte, content[offset..=offset], "{layer}, byte {offset}");
            file.close().unwrap();
        }
    }
}

#[test]
fn truncated_file_that_grows_again_has_zeros_past_the_cut() {
    for (layer, cut) in ["zstd:chunk=4KiB", "copy:chunk=4KiB"]
        .iter()
        .flat_map(|layer| CUTS.iter().map(move |cut| (*layer, *cut)))
    {
        let (below, content) = (Below::new(), text(4700));
        let grown = |file: &mut Vec<u8>| {
            file.truncate(cut);
            file.resize(6000, 0);
        };
        let mut expected = content.clone();
        {
            let fs = below.mount(layer);
            let client = Client::new(&*fs);
            let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::READ_WRITE).unwrap();
            for (number, piece) in content.chunks(100).enumerate() {
                file.write_all(number as u64 * 100, piece).unwrap();
            }
            file.truncate(cut as u64).unwrap();
            file.truncate(6000).unwrap();
            grown(&mut expected);
            file.close().unwrap();
            assert!(read_file(&*fs, "file").as_ref() == Ok(&expected), "{layer}, cut at {cut}");
            fs.shutdown().unwrap();
        }
        let again = read_file(&*below.mount(layer), "file");
        assert!(again.as_ref() == Ok(&expected), "{layer}, cut at {cut}, mounted again");
    }
}

/// Seeking and every walk over a file, such as packing, use the same search for pieces.
#[test]
fn raw_pieces_between_holes_are_found() {
    for layer in ["zstd:chunk=4KiB", "copy:chunk=4KiB"] {
        let below = Below::new();
        let fs = below.mount(layer);
        let client = Client::new(&*fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::READ_WRITE).unwrap();
        let (piece, chunks) = (text(100), text(8192));
        file.write_all(9000, &piece).unwrap();
        file.write_all(40_960, &chunks).unwrap();
        let data = file.seek(0, SeekTo::Data).unwrap();
        assert!((8192..=9000).contains(&data), "{layer}: data at {data}");
        let hole = file.seek(9000, SeekTo::Hole).unwrap();
        assert!((9100..40_960).contains(&hole), "{layer}: a hole at {hole}");
        assert_eq!(file.seek(hole, SeekTo::Data).unwrap(), 40_960, "{layer}");
        file.close().unwrap();
    }
}
