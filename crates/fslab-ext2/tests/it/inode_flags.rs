//! Tests the restrictions of `chattr +i` and `+a`: the engine returns the same errors as the
//! kernel.

use fslab_vfs::{
    Errno, FallocateMode, FileSystem, HostFs, HostOptions, Ino, OpenMode, RenameMode, Result,
};
use fslab_vfs_testing::client::Client;

use crate::mounted::{Mounted, can_mount};
use crate::support::{Image, options};

/// Offset of `i_flags` in an inode.
const FLAGS: u64 = 32;
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;

/// Makes an image with a plain, an immutable and an append-only directory, each with files.
fn furnished() -> Image {
    let image = Image::new(8 << 20, &options(1024));
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let mut flagged = Vec::new();
    for (name, flag) in [("plain", 0), ("fixed", IMMUTABLE), ("adding", APPEND)] {
        let directory = client.mkdir(Ino::ROOT, name).unwrap();
        client.mkdir(directory, "sub").unwrap();
        for name in ["file", "other", "movable"] {
            client.file(directory, name, b"bytes").unwrap();
        }
        flagged.push((directory, flag));
        for (name, flag) in [("immutable", IMMUTABLE), ("append", APPEND)] {
            flagged.push((client.file(directory, name, b"bytes").unwrap(), flag));
        }
    }
    drop(client);
    ext2.shutdown().unwrap();
    for (ino, flag) in flagged {
        image.set_in_inode(ino, FLAGS, &flag.to_le_bytes());
    }
    image
}

type Tried = (&'static str, Option<Errno>);

/// Performs a list of operations and records their results.
struct Asking<'a> {
    client: Client<'a>,
    plain: Ino,
    fixed: Ino,
    adding: Ino,
    answers: Vec<Tried>,
}

impl<'a> Asking<'a> {
    fn new(subject: &'a dyn FileSystem) -> Self {
        let client = Client::new(subject);
        let [plain, fixed, adding] =
            ["plain", "fixed", "adding"].map(|name| client.lookup(Ino::ROOT, name).unwrap().ino);
        Self { client, plain, fixed, adding, answers: Vec::new() }
    }

    fn all(mut self) -> Vec<Tried> {
        self.new_names();
        self.lost_names();
        self.moved_names();
        self.openings();
        self.answers
    }

    fn note<T>(&mut self, what: &'static str, answer: Result<T>) {
        self.answers.push((what, answer.err().map(|error| error.errno())));
    }

    fn new_names(&mut self) {
        let (plain, fixed, adding) = (self.plain, self.fixed, self.adding);
        let file = self.client.lookup(plain, "file").unwrap().ino;
        let [immutable, append] =
            ["immutable", "append"].map(|name| self.client.lookup(plain, name).unwrap().ino);
        self.note("create, fixed", self.client.file(fixed, "new", b""));
        self.note("create, adding", self.client.file(adding, "new", b""));
        self.note("create an existing name, fixed", self.client.mkdir(fixed, "file"));
        self.note("mkdir, fixed", self.client.mkdir(fixed, "new directory"));
        self.note("mkdir, adding", self.client.mkdir(adding, "new directory"));
        self.note("symlink, fixed", self.client.symlink(fixed, "new link", "target"));
        self.note("link, fixed", self.client.link(file, fixed, "linked"));
        self.note("link, adding", self.client.link(file, adding, "linked"));
        self.note("link to immutable", self.client.link(immutable, plain, "linked"));
        self.note("link to append", self.client.link(append, plain, "linked"));
    }

    fn lost_names(&mut self) {
        let (plain, fixed, adding) = (self.plain, self.fixed, self.adding);
        self.note("unlink, fixed", self.client.unlink(fixed, "file"));
        self.note("unlink, adding", self.client.unlink(adding, "file"));
        self.note("rmdir, fixed", self.client.rmdir(fixed, "sub"));
        self.note("rmdir, adding", self.client.rmdir(adding, "sub"));
        self.note("unlink what isn't there, fixed", self.client.unlink(fixed, "none"));
        self.note("unlink immutable", self.client.unlink(plain, "immutable"));
        self.note("unlink append", self.client.unlink(plain, "append"));
        self.note("rmdir fixed, which is full", self.client.rmdir(Ino::ROOT, "fixed"));
        self.note("unlink fixed, a directory", self.client.unlink(Ino::ROOT, "fixed"));
    }

    fn moved_names(&mut self) {
        let (plain, fixed, adding) = (self.plain, self.fixed, self.adding);
        let moves = [
            ("rename immutable", plain, "immutable", plain, "new"),
            ("rename append", plain, "append", plain, "new"),
            ("rename immutable to itself", plain, "immutable", plain, "immutable"),
            ("rename into fixed", plain, "file", fixed, "moved"),
            ("rename out of fixed", fixed, "file", plain, "moved"),
            ("rename into adding", plain, "movable", adding, "moved"),
            ("rename out of adding", adding, "file", plain, "moved"),
            ("rename over immutable", plain, "other", plain, "immutable"),
            ("rename over append", plain, "other", plain, "append"),
            ("rename over a name of adding", plain, "other", adding, "other"),
            ("rename a fixed directory", Ino::ROOT, "fixed", plain, "fixed"),
        ];
        for (what, from, name, to, new) in moves {
            self.note(what, self.client.rename(from, name, to, new));
        }
        let exchange = RenameMode::EXCHANGE;
        let answer = self.client.rename_with(plain, "other", plain, "immutable", exchange);
        self.note("exchange with immutable", answer);
    }

    fn openings(&mut self) {
        let read_only = OpenMode::empty();
        for (what, name, mode) in [
            ("read immutable", "immutable", read_only),
            ("write immutable", "immutable", OpenMode::WRITE_ONLY),
            ("append to immutable", "immutable", OpenMode::WRITE_ONLY | OpenMode::APPEND),
            ("empty immutable", "immutable", OpenMode::TRUNCATE),
            ("write append", "append", OpenMode::WRITE_ONLY),
            ("append to append", "append", OpenMode::WRITE_ONLY | OpenMode::APPEND),
            (
                "empty append",
                "append",
                OpenMode::READ_WRITE | OpenMode::TRUNCATE | OpenMode::APPEND,
            ),
        ] {
            let ino = self.client.lookup(self.plain, name).unwrap().ino;
            self.note(what, self.client.open(ino, mode).and_then(|file| file.close()));
        }
        let ino = self.client.lookup(self.plain, "append").unwrap().ino;
        let file = self.client.open(ino, OpenMode::WRITE_ONLY | OpenMode::APPEND).unwrap();
        let keep = FallocateMode::KEEP_SIZE;
        let [punched, zeroed] = [FallocateMode::PUNCH_HOLE, FallocateMode::ZERO_RANGE]
            .map(|mode| file.fallocate(0, 4, mode | keep));
        file.close().unwrap();
        self.note("punch a hole into append", punched);
        self.note("make zeros of append", zeroed);
    }
}

#[test]
fn immutable_and_append_only_files_keep_names_and_bytes_as_with_the_kernel() {
    let (image, other) = (furnished(), furnished());
    let ext2 = image.open();
    let ours = Asking::new(&ext2).all();
    let allowed: Vec<_> =
        ours.iter().filter(|(_, answer)| answer.is_none()).map(|(what, _)| *what).collect();
    let expected = [
        "create, adding",
        "mkdir, adding",
        "link, adding",
        "rename immutable to itself",
        "rename into adding",
        "read immutable",
        "append to append",
    ];
    assert_eq!(allowed, expected);
    let other_than_refused = |(_, answer): &&Tried| !matches!(answer, None | Some(Errno::PERM));
    let found: Vec<_> = ours.iter().filter(other_than_refused).copied().collect();
    let missing = ("unlink what isn't there, fixed", Some(Errno::NOENT));
    assert_eq!(found, [("create an existing name, fixed", Some(Errno::EXIST)), missing]);
    ext2.shutdown().unwrap();
    assert!(image.report().is_clean());
    if !can_mount("immutable_and_append_only_files_keep_names_and_bytes_as_with_the_kernel") {
        return;
    }
    let mounted = Mounted::new(&other.path());
    let host = HostFs::open(mounted.path(), &HostOptions::default()).unwrap();
    let kernel = Asking::new(&host).all();
    host.shutdown().unwrap();
    drop(host);
    mounted.unmount();
    assert_eq!(ours, kernel);
}
