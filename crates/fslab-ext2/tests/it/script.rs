//! Random changes of a tree, applied to a subject and to the model.

use fslab_vfs::{Attr, Errno, FileKind, Ino, OpenMode, SetAttr, SetTime, Timestamp};
use fslab_vfs_testing::client::Client;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// The existing paths and the random generator of a script.
pub struct Script {
    random: Pcg64,
    directories: Vec<String>,
    files: Vec<String>,
    count: u32,
    /// Names that are repeatedly added and removed in a separate directory.
    crowd: Vec<String>,
}

/// The directory for the names in `crowd`.
const CROWD: &str = "/crowd";

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap()
}

fn find(client: &Client<'_>, path: &str) -> Attr {
    let mut at = client.attr(Ino::ROOT).unwrap();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        at = client.lookup(at.ino, name).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    at
}

fn parent(client: &Client<'_>, path: &str) -> Ino {
    find(client, split(path).0).ino
}

impl Script {
    pub fn new(seed: u64) -> Self {
        let directories = vec![String::new()];
        Self {
            random: Pcg64::seed_from_u64(seed),
            directories,
            files: Vec::new(),
            count: 0,
            crowd: Vec::new(),
        }
    }

    /// Sets names that are repeatedly added and removed in one directory, such as names with equal
    /// hashes.
    pub fn with_crowd(self, crowd: Vec<String>) -> Self {
        Self { crowd, ..self }
    }

    pub fn run(&mut self, subject: &Client<'_>, model: &Client<'_>, steps: u32) {
        for _ in 0..steps {
            let both = [subject, model];
            match self.random.random_range(0..104) {
                0..=7 => self.make_directory(both),
                8..=15 => self.fill_directory(both),
                16..=20 => self.empty_directory(both),
                21..=40 => self.write_new(both),
                41..=50 => self.write_old(both),
                51..=58 => self.truncate(both),
                59..=70 => self.rename(both),
                71..=76 => self.link(both),
                77..=82 => self.symlink(both),
                83..=89 => self.unlink(both),
                90..=95 => self.attribute(both),
                96..=99 => self.touch(both),
                _ => self.mingle(both),
            }
        }
    }

    /// Runs a selection of the script's operations that writes no file content.
    pub fn run_small(&mut self, subject: &Client<'_>, model: &Client<'_>, steps: u32) {
        let both = [subject, model];
        for step in 0..steps {
            match step % 8 {
                0 => self.make_directory(both),
                1 if step < 20 => self.fill_directory(both),
                2 => self.rename(both),
                3 => self.link(both),
                4 => self.symlink(both),
                5 => self.attribute(both),
                6 => self.truncate(both),
                _ => self.unlink(both),
            }
        }
    }

    fn pick(&mut self, list: fn(&Self) -> &Vec<String>) -> Option<String> {
        let length = list(self).len();
        (length > 0).then(|| self.random.random_range(0..length)).map(|at| list(self)[at].clone())
    }

    fn new_path(&mut self) -> String {
        self.count += 1;
        let directory = self.pick(|script| &script.directories).unwrap();
        let length = *[1, 8, 20, 60, 200].get(self.random.random_range(0..5)).unwrap();
        let (count, random) = (self.count, self.random.next_u32());
        format!("{directory}/{count}-{:x<1$}", format!("{random:x}"), length)
    }

    fn make_directory(&mut self, both: [&Client<'_>; 2]) {
        let path = self.new_path();
        for client in both {
            client.mkdir(parent(client, &path), split(&path).1).unwrap();
        }
        self.directories.push(path);
    }

    /// Adds many names at once, so that directories reach all size limits.
    fn fill_directory(&mut self, both: [&Client<'_>; 2]) {
        for _ in 0..self.random.random_range(20..250) {
            let path = self.new_path();
            let directory = split(&path).0.to_owned();
            for client in both {
                client.file(parent(client, &path), split(&path).1, b"").unwrap();
            }
            self.files.push(path);
            // Most names go to one directory.
            let at = self.directories.iter().position(|one| *one == directory).unwrap();
            if self.random.random_range(0..40) > 0 {
                let last = self.directories.len() - 1;
                self.directories.swap(at, last);
                self.fill_one(both, &directory);
                return;
            }
        }
    }

    fn fill_one(&mut self, both: [&Client<'_>; 2], directory: &str) {
        for _ in 0..self.random.random_range(20..250) {
            self.count += 1;
            let path = format!("{directory}/{}-many-{:x}", self.count, self.random.next_u64());
            for client in both {
                client.file(parent(client, &path), split(&path).1, b"").unwrap();
            }
            self.files.push(path);
        }
    }

    fn empty_directory(&mut self, both: [&Client<'_>; 2]) {
        let Some(path) = self.pick(|script| &script.files) else { return };
        let directory = split(&path).0.to_owned();
        let mut kept = Vec::new();
        for path in std::mem::take(&mut self.files) {
            if split(&path).0 != directory || self.random.random_range(0..10) == 0 {
                kept.push(path);
                continue;
            }
            for client in both {
                client.unlink(parent(client, &path), split(&path).1).unwrap();
            }
        }
        self.files = kept;
    }

    fn bytes(&mut self) -> Vec<u8> {
        let most = *[10, 1000, 5000, 70_000, 600_000].get(self.random.random_range(0..5)).unwrap();
        let length = self.random.random_range(0..most);
        let mut bytes = vec![0; length];
        self.random.fill_bytes(&mut bytes);
        bytes
    }

    fn offset(&mut self) -> u64 {
        match self.random.random_range(0..6) {
            0..=2 => 0,
            3 => self.random.random_range(0..20_000),
            4 => self.random.random_range(0..4_000_000),
            _ => self.random.random_range(0..3 << 30),
        }
    }

    fn write_new(&mut self, both: [&Client<'_>; 2]) {
        let (path, bytes, offset) = (self.new_path(), self.bytes(), self.offset());
        for client in both {
            let directory = parent(client, &path);
            let flags = OpenMode::EXCLUSIVE;
            let (_, file) = client.create(directory, split(&path).1, 0o640, flags).unwrap();
            file.write_all(offset, &bytes).unwrap();
        }
        self.files.push(path);
    }

    fn old_file(&mut self, both: [&Client<'_>; 2]) -> Option<String> {
        let path = self.pick(|script| &script.files)?;
        (find(both[1], &path).kind == FileKind::Regular).then_some(path)
    }

    fn write_old(&mut self, both: [&Client<'_>; 2]) {
        let Some(path) = self.old_file(both) else { return };
        let (bytes, offset) = (self.bytes(), self.offset());
        for client in both {
            let file = client.open(find(client, &path).ino, OpenMode::READ_WRITE).unwrap();
            file.write_all(offset, &bytes).unwrap();
        }
    }

    fn truncate(&mut self, both: [&Client<'_>; 2]) {
        let Some(path) = self.old_file(both) else { return };
        let size = self.offset() / 2 + self.random.random_range(0..5000);
        for client in both {
            client.truncate(find(client, &path).ino, size).unwrap();
        }
    }

    fn rename(&mut self, both: [&Client<'_>; 2]) {
        let Some(from) = self.pick(|script| &script.files) else { return };
        let taken = self.random.random_range(0..3) == 0;
        let to = if taken { self.pick(|script| &script.files).unwrap() } else { self.new_path() };
        for client in both {
            let (old, new) = (parent(client, &from), parent(client, &to));
            client.rename(old, split(&from).1, new, split(&to).1).unwrap();
        }
        let same = find(both[1], &to).links > 1
            && both[1].exists(parent(both[1], &from), split(&from).1).unwrap();
        if from != to && !same {
            self.files.retain(|path| *path != from);
            if !taken {
                self.files.push(to);
            }
        }
    }

    fn link(&mut self, both: [&Client<'_>; 2]) {
        let Some(old) = self.old_file(both) else { return };
        let path = self.new_path();
        for client in both {
            client.link(find(client, &old).ino, parent(client, &path), split(&path).1).unwrap();
        }
        self.files.push(path);
    }

    fn symlink(&mut self, both: [&Client<'_>; 2]) {
        let path = self.new_path();
        let length = *[1, 58, 59, 60, 61, 900].get(self.random.random_range(0..6)).unwrap();
        let target = "t".repeat(length);
        for client in both {
            client.symlink(parent(client, &path), split(&path).1, &target).unwrap();
        }
        self.files.push(path);
    }

    fn unlink(&mut self, both: [&Client<'_>; 2]) {
        let Some(path) = self.pick(|script| &script.files) else { return };
        for client in both {
            client.unlink(parent(client, &path), split(&path).1).unwrap();
        }
        self.files.retain(|one| *one != path);
    }

    fn attribute(&mut self, both: [&Client<'_>; 2]) {
        let Some(path) = self.old_file(both) else { return };
        let name = format!("user.{}", self.random.random_range(0..4));
        let remove = self.random.random_range(0..4) == 0;
        let value = vec![b'v'; self.random.random_range(0..200)];
        for client in both {
            let ino = find(client, &path).ino;
            if remove {
                let answer = client.removexattr(ino, &name);
                let errno = answer.err().map(|error| error.errno());
                assert!(matches!(errno, None | Some(Errno::NODATA)), "{errno:?}");
            } else {
                client.setxattr(ino, &name, &value).unwrap();
            }
        }
    }

    /// Adds, removes and replaces names of the crowd, together with other names that fill the
    /// leaves of the index.
    fn mingle(&mut self, both: [&Client<'_>; 2]) {
        if self.crowd.is_empty() {
            return;
        }
        if !both[1].exists(Ino::ROOT, &CROWD[1..]).unwrap() {
            for client in both {
                client.mkdir(Ino::ROOT, &CROWD[1..]).unwrap();
            }
        }
        for _ in 0..self.random.random_range(3..12) {
            let at = self.random.random_range(0..self.crowd.len());
            let other = self.crowd[self.random.random_range(0..self.crowd.len())].clone();
            self.come_or_go(both, &self.crowd[at].clone(), Some(&other));
        }
        for _ in 0..self.random.random_range(0..40) {
            let name = format!("{:0>50}", self.random.random_range(0..200));
            self.come_or_go(both, &name, None);
        }
    }

    fn come_or_go(&mut self, both: [&Client<'_>; 2], name: &str, other: Option<&str>) {
        let [_, model] = both.map(|client| find(client, CROWD).ino);
        let is_there = both[1].exists(model, name).unwrap();
        let choice = self.random.random_range(0..4);
        for client in both {
            let directory = find(client, CROWD).ino;
            match (is_there, choice, other) {
                (false, ..) => drop(client.file(directory, name, name.as_bytes()).unwrap()),
                (true, 0, _) => client.unlink(directory, name).unwrap(),
                (true, 1, Some(other)) => {
                    client.rename(directory, name, directory, other).unwrap();
                }
                _ => {}
            }
        }
    }

    fn touch(&mut self, both: [&Client<'_>; 2]) {
        let Some(path) = self.old_file(both) else { return };
        let seconds = self.random.random_range(-1_000_000_000..2_000_000_000);
        let time = Timestamp { seconds, nanoseconds: 0 };
        let modified = Some(SetTime::To(time));
        for client in both {
            let changes = SetAttr { modified, ..SetAttr::default() };
            client.set(find(client, &path).ino, &changes).unwrap();
            client.chmod(find(client, &path).ino, 0o604).unwrap();
        }
    }
}

/// Asserts that two trees are equal: names, kinds, links, sizes, bytes, targets, attributes.
#[track_caller]
pub fn compare(subject: &Client<'_>, model: &Client<'_>, when: &str) {
    let mut todo = vec![(Ino::ROOT, Ino::ROOT, String::new())];
    while let Some((one, other, path)) = todo.pop() {
        let (mut names, mut expected) = (subject.names(one).unwrap(), model.names(other).unwrap());
        names.sort();
        expected.sort();
        assert_eq!(names, expected, "{when}: names in '{path}'");
        for name in expected {
            let path = format!("{path}/{name}");
            let looked_up = subject.lookup(one, &name);
            let found = looked_up.unwrap_or_else(|error| panic!("{when}: {path}: {error}"));
            let wanted = model.lookup(other, &name).unwrap();
            compare_files(subject, model, &found, &wanted, &format!("{when}: {path}"));
            if found.kind == FileKind::Directory {
                todo.push((found.ino, wanted.ino, path));
            }
        }
    }
}

#[track_caller]
fn compare_files(subject: &Client<'_>, model: &Client<'_>, found: &Attr, wanted: &Attr, at: &str) {
    let facts = |attr: &Attr| (attr.kind, attr.links, attr.permissions.bits(), attr.uid, attr.gid);
    assert_eq!(facts(found), facts(wanted), "{at}");
    match found.kind {
        FileKind::Regular => {
            assert_eq!(found.size, wanted.size, "{at}: size");
            compare_bytes(subject, model, found.ino, wanted.ino, at);
            let attributes = |client: &Client<'_>, ino| {
                let mut names = client.listxattr(ino).unwrap();
                names.sort();
                let value = |name: &String| client.getxattr(ino, name).unwrap();
                names.iter().map(|name| (name.clone(), value(name))).collect::<Vec<_>>()
            };
            let (found, wanted) = (attributes(subject, found.ino), attributes(model, wanted.ino));
            assert_eq!(found, wanted, "{at}: attributes");
        }
        FileKind::Symlink => {
            let targets =
                (subject.readlink(found.ino).unwrap(), model.readlink(wanted.ino).unwrap());
            assert_eq!(targets.0, targets.1, "{at}: target");
        }
        _ => {}
    }
}

/// Compares the data ranges of each file with the same ranges of the other one. Common holes are
/// skipped, because files may be large and sparse.
#[track_caller]
fn compare_bytes(subject: &Client<'_>, model: &Client<'_>, found: Ino, wanted: Ino, at: &str) {
    use fslab_vfs::SeekTo;
    const PIECE: usize = 1 << 20;
    let (found, wanted) = (
        subject.open(found, OpenMode::empty()).unwrap(),
        model.open(wanted, OpenMode::empty()).unwrap(),
    );
    for file in [&found, &wanted] {
        let mut offset = 0;
        while let Ok(start) = file.seek(offset, SeekTo::Data) {
            let end = file.seek(start, SeekTo::Hole).unwrap();
            let length = ((end - start) as usize).min(PIECE);
            let bytes = (found.read(start, length).unwrap(), wanted.read(start, length).unwrap());
            assert!(bytes.0 == bytes.1, "{at}: bytes from {start} on differ");
            offset = start + length as u64;
        }
    }
}
