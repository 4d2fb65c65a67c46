//! Archives and releases more files than one thread processes alone.

use fslab_tier::command::{Command, Event};
use fslab_vfs::{Ino, OpenMode, SetAttr, SetTime};

use crate::bundles::contents;
use crate::support::{Bench, told};

/// Number of files, which is more than are read or released together.
const FILES: u64 = 600;

fn name(number: u64) -> String {
    format!("file{number:03}")
}

fn ino_of(bench: &Bench, number: u64) -> Ino {
    bench.client().lookup(Ino::ROOT, name(number)).unwrap().ino
}

fn all() -> Vec<Vec<u8>> {
    vec![Vec::new()]
}

/// Makes and archives the files; one is open for writing meanwhile.
fn archived_but_for_an_open_file() -> Bench {
    let bench = Bench::new();
    let client = bench.client();
    for number in 0..FILES {
        client.file(Ino::ROOT, name(number), &contents(number)).unwrap();
    }
    let open = client.open(ino_of(&bench, 300), OpenMode::READ_WRITE).unwrap();
    let archive = Command::Archive { paths: all(), rate: 0, bundled: None };
    let events = told(&bench, &archive);
    open.close().unwrap();
    let problems: Vec<&Event> =
        events.iter().filter(|event| !matches!(event, Event::Done { .. })).collect();
    assert_eq!(events.len() as u64, FILES);
    let [Event::Problem { what }] = problems[..] else { panic!("{problems:?}") };
    assert!(what.starts_with("file300: is open for writing"), "{what}");
    drop(client);
    bench
}

#[test]
fn each_of_many_files_is_archived_released_and_recalled() {
    let bench = archived_but_for_an_open_file();
    let client = bench.client();
    // A change that the tier can't see is found by comparing the bytes.
    let below = bench.below();
    let changed = below.lookup(Ino::ROOT, name(123)).unwrap().ino;
    let attr = below.attr(changed).unwrap();
    let file = below.open(changed, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"other").unwrap();
    file.close().unwrap();
    let modified = Some(SetTime::To(attr.modified));
    below.set(changed, &SetAttr { modified, ..SetAttr::default() }).unwrap();
    let events = told(&bench, &Command::Release { paths: all(), keep_bytes: 0 });
    let released: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::Done { path, .. } => Some(path.as_str()),
            _ => None,
        })
        .collect();
    let expected: Vec<String> =
        (0..FILES).filter(|number| ![123, 300].contains(number)).map(name).collect();
    assert_eq!(released, expected, "in the order of the walk");
    let problems = events.iter().filter(|event| matches!(event, Event::Problem { .. }));
    assert_eq!(problems.count(), 2, "{events:?}");
    for number in 0..FILES {
        let ino = ino_of(&bench, number);
        let is_offline = !bench.offline_blocks(ino).is_empty();
        assert_eq!(is_offline, ![123, 300].contains(&number), "{number}");
        let found = client.contents(ino).unwrap();
        let expected = contents(number);
        let is_right = match number {
            123 => found.starts_with(b"other") && found[5..] == expected[5..],
            _ => found == expected,
        };
        assert!(is_right, "{number}");
    }
}

#[test]
fn policy_releases_each_of_many_files() {
    let bench = archived_but_for_an_open_file();
    let rules = "[[rule]]\naction = 'release'\n".to_owned();
    let policy = Command::Policy { rules: Some((rules, "test".to_owned())), dry_run: false };
    for _ in 0..2 {
        let events = told(&bench, &policy);
        assert!(!events.iter().any(|event| matches!(event, Event::Problem { .. })), "{events:?}");
    }
    let is_offline = |number: &u64| !bench.offline_blocks(ino_of(&bench, *number)).is_empty();
    assert_eq!((0..FILES).filter(is_offline).count() as u64, FILES);
    let client = bench.client();
    for number in 0..FILES {
        assert!(client.contents(ino_of(&bench, number)).unwrap() == contents(number), "{number}");
    }
}
