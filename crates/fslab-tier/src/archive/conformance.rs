//! The conformance checks for every kind of archive.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

use super::{Archive, Container, ContainerKind};
use crate::id::Id;

/// The result of a check. The error names the rule that the archive broke, or is an error of the
/// archive.
type Checked = io::Result<()>;

/// A check, with its name.
type Case = (&'static str, fn(&dyn Archive) -> Checked);

/// All checks.
const CASES: &[Case] = &[
    ("container_is_invisible_until_it_is_finished", is_invisible_until_finished),
    ("reads_end_with_the_container", reads_end_with_the_container),
    ("empty_container_exists", empty_container_exists),
    ("kinds_are_separate", kinds_are_separate),
    ("missing_container_is_not_found", missing_is_not_found),
    ("each_container_is_listed_once", each_is_listed_once),
    ("container_can_be_replaced", can_be_replaced),
    ("large_container_is_whole", large_is_whole),
];

/// Runs all checks on an empty archive, and leaves the archive empty. Returns the failed checks.
#[must_use]
pub fn broken_promises(archive: &dyn Archive) -> Vec<String> {
    let run = |(name, check): &Case| {
        let checked = check(archive).and_then(|()| is_empty(archive));
        checked.err().map(|error| format!("{name}: {error}"))
    };
    CASES.iter().filter_map(run).collect()
}

fn promise(is_kept: bool, what: &str) -> Checked {
    if is_kept { Ok(()) } else { Err(io::Error::other(what.to_owned())) }
}

fn is_empty(archive: &dyn Archive) -> Checked {
    for kind in [ContainerKind::Files, ContainerKind::Tree] {
        promise(listed(archive, kind)?.is_empty(), "deleted containers are still listed")?;
    }
    Ok(())
}

fn files(number: u8) -> Container {
    (ContainerKind::Files, Id([number; 16]))
}

fn write(archive: &dyn Archive, container: Container, bytes: &[u8]) -> Checked {
    let mut upload = archive.begin(container)?;
    // Block and part sizes are not multiples of this size, so that pieces cross their boundaries.
    bytes.chunks(100_003).try_for_each(|piece| upload.write(piece))?;
    upload.finish().map(drop)
}

/// Deletes a container. A store may retain its bytes, but must hide it.
fn delete(archive: &dyn Archive, container: Container) -> Checked {
    archive.delete(container).map(|_done_or_retained| ())
}

fn contents(archive: &dyn Archive, container: Container) -> io::Result<Vec<u8>> {
    let length = usize::try_from(archive.length(container)?).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        let end = length.min(done + (1 << 20));
        let count = archive.read(container, done as u64, &mut bytes[done..end])?;
        promise(count == end - done, "a read returned fewer bytes than the container has")?;
        done = end;
    }
    Ok(bytes)
}

/// Returns the identities and lengths of the listed containers, with the number of times that each
/// was listed.
fn listed(archive: &dyn Archive, kind: ContainerKind) -> io::Result<BTreeMap<(Id, u64), u32>> {
    let mut found = BTreeMap::new();
    archive.list(kind, &mut |id, length| *found.entry((id, length)).or_insert(0) += 1)?;
    Ok(found)
}

fn is_not_found<T>(answer: &io::Result<T>) -> bool {
    matches!(answer, Err(error) if error.kind() == ErrorKind::NotFound)
}

fn is_invisible_until_finished(archive: &dyn Archive) -> Checked {
    for kind in [ContainerKind::Files, ContainerKind::Tree] {
        let container = (kind, Id([7; 16]));
        let mut upload = archive.begin(container)?;
        upload.write(b"hello ")?;
        promise(is_not_found(&archive.length(container)), "an unfinished container has a length")?;
        promise(listed(archive, kind)?.is_empty(), "an unfinished container is listed")?;
        drop(upload);
        promise(
            is_not_found(&archive.length(container)),
            "the container exists although its upload was dropped",
        )?;
        write(archive, container, b"hello")?;
        promise(contents(archive, container)? == b"hello", "the contents are wrong")?;
        delete(archive, container)?;
    }
    Ok(())
}

fn reads_end_with_the_container(archive: &dyn Archive) -> Checked {
    write(archive, files(1), b"0123456789")?;
    for (offset, length, expected) in [(0, 10, "0123456789"), (0, 99, "0123456789"), (3, 4, "3456")]
        .into_iter()
        .chain([(8, 9, "89"), (9, 1, "9"), (10, 5, ""), (1 << 40, 5, ""), (4, 0, "")])
    {
        let mut buffer = vec![0; length];
        let count = archive.read(files(1), offset, &mut buffer)?;
        let what = format!("a read of {length} bytes at offset {offset} returned wrong bytes");
        promise(&buffer[..count] == expected.as_bytes(), &what)?;
    }
    delete(archive, files(1))
}

fn empty_container_exists(archive: &dyn Archive) -> Checked {
    write(archive, files(1), b"")?;
    promise(archive.length(files(1))? == 0, "the length of an empty container is not 0")?;
    promise(archive.read(files(1), 0, &mut [0; 5])? == 0, "an empty container has bytes")?;
    let expected = BTreeMap::from([((Id([1; 16]), 0), 1)]);
    promise(listed(archive, ContainerKind::Files)? == expected, "the list is wrong")?;
    delete(archive, files(1))
}

fn kinds_are_separate(archive: &dyn Archive) -> Checked {
    let tree = (ContainerKind::Tree, Id([1; 16]));
    write(archive, files(1), b"files")?;
    write(archive, tree, b"tree")?;
    delete(archive, files(1))?;
    promise(is_not_found(&archive.length(files(1))), "the deleted container still has a length")?;
    promise(contents(archive, tree)? == b"tree", "the container of the other kind was deleted")?;
    delete(archive, tree)
}

fn missing_is_not_found(archive: &dyn Archive) -> Checked {
    promise(is_not_found(&archive.length(files(9))), "a missing container has a length")?;
    promise(is_not_found(&archive.read(files(9), 0, &mut [0; 5])), "a missing container is read")?;
    delete(archive, files(9))?;
    archive.check()
}

fn each_is_listed_once(archive: &dyn Archive) -> Checked {
    let mut expected = BTreeMap::new();
    for number in 0..20 {
        write(archive, files(number), &vec![number; usize::from(number)])?;
        expected.insert((Id([number; 16]), number.into()), 1);
    }
    promise(listed(archive, ContainerKind::Files)? == expected, "the list is wrong")?;
    (0..20).try_for_each(|number| delete(archive, files(number)))
}

fn can_be_replaced(archive: &dyn Archive) -> Checked {
    write(archive, files(1), b"before")?;
    let mut upload = archive.begin(files(1))?;
    upload.write(b"never")?;
    drop(upload);
    promise(contents(archive, files(1))? == b"before", "an unfinished upload replaced it")?;
    write(archive, files(1), b"and after")?;
    archive.forget(files(1));
    promise(contents(archive, files(1))? == b"and after", "it still has its old contents")?;
    let expected = BTreeMap::from([((Id([1; 16]), 9), 1)]);
    promise(listed(archive, ContainerKind::Files)? == expected, "the list is wrong")?;
    delete(archive, files(1))?;
    promise(is_not_found(&archive.length(files(1))), "the replaced container reappeared")
}

fn large_is_whole(archive: &dyn Archive) -> Checked {
    let bytes: Vec<u8> =
        (0..20_u32 << 20).map(|number| (number >> 3) as u8 ^ number as u8).collect();
    write(archive, files(1), &bytes)?;
    promise(archive.length(files(1))? == bytes.len() as u64, "its length is wrong")?;
    promise(contents(archive, files(1))? == bytes, "its bytes are wrong")?;
    delete(archive, files(1))
}
