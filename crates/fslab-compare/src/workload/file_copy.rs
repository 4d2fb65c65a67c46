//! `file-copy`: copies files of 0 bytes, 1 KiB, 2 KiB, 4 KiB and so on into the target, and reads
//! them back, cold and warm.
//!
//! The source files are in the work directory, and are read into the page cache before the clock
//! starts. The copies are compared with the sources by checksum, outside the timed regions.

use std::fs;

use super::content::{self, Content, REQUEST_BYTES, expect};
use super::{Parameter, Parameters, Preparation, Spec, Workload, doubling};
use crate::error::{Error, Result};
use crate::runner::{Phase, Session, Timed};
use crate::tree::{Access, HostTree, Tree};
use fslab_report::sample::CacheState;
use fslab_stats::Stopwatch;

const LARGEST: Parameter = Parameter::bytes(
    "largest",
    "size of the largest files; sizes double from 1 KiB up to it",
    32 << 20,
);

const BYTES_PER_SIZE: Parameter = Parameter::bytes(
    "bytes_per_size",
    "total bytes of all files of one size, which determines their number",
    4 << 20,
);

const MOST_FILES: Parameter =
    Parameter::count("most_files", "maximum number of files of one size", 16);

const SMALLEST: u64 = 1 << 10;

pub(super) const SPEC: Spec = Spec {
    name: "file-copy",
    help: "copy files of 0 bytes, 1 KiB, 2 KiB, ... into the target; read them back cold and warm",
    parameters: &[LARGEST, BYTES_PER_SIZE, MOST_FILES, content::DATA, content::DATA_FROM],
    phases: &["write", "read cold", "read warm"],
    construct: |parameters, seed| {
        Box::new(FileCopy {
            classes: classes(parameters),
            content: Content::new(parameters, seed),
            sources: None,
        })
    },
};

struct FileCopy {
    classes: Vec<Class>,
    content: Content,
    sources: Option<HostTree>,
}

/// Files of one size.
struct Class {
    size: u64,
    files: u64,
    checksum: u32,
}

fn classes(parameters: &Parameters) -> Vec<Class> {
    let largest = parameters.number(&LARGEST).max(SMALLEST);
    let most = parameters.number(&MOST_FILES);
    let bytes = parameters.number(&BYTES_PER_SIZE);
    let sizes = std::iter::once(0).chain(doubling(SMALLEST, largest));
    sizes
        .map(|size| Class { size, files: (bytes / size.max(1)).clamp(1, most), checksum: 0 })
        .collect()
}

impl Class {
    fn source(&self) -> String {
        format!("source-{}", self.size)
    }

    fn copy(&self, file: u64) -> String {
        format!("copy-{}-{file}", self.size)
    }

    fn phase(&self, name: &'static str) -> Phase {
        Phase::new(name).size(self.size)
    }
}

impl Workload for FileCopy {
    fn prepare(&mut self, preparation: &Preparation<'_>) -> Result<()> {
        let directory = preparation.directory;
        for class in &mut self.classes {
            let bytes = self.content.make(class.size, class.size as usize)?;
            class.checksum = crc32c::crc32c(&bytes);
            let path = directory.join(class.source());
            fs::write(&path, bytes).map_err(Error::file(&path))?;
        }
        self.sources = Some(HostTree::open(directory)?);
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        session.describe_data(self.content.describe());
        let mut buffer = vec![0; REQUEST_BYTES];
        for class in &self.classes {
            // This also reads the source into the page cache, so that the copy does not wait for
            // its device.
            content::verify(self.sources()?, &class.source(), class.checksum)?;
            session.measure(class.phase("write"), |timed| self.copy(timed, class, &mut buffer))?;
            self.record_stored(session, class)?;
        }
        session.make_cold()?;
        for class in &self.classes {
            let phase = class.phase("read cold").cache(CacheState::Cold);
            session.measure(phase, |timed| read(timed, class, &mut buffer))?;
        }
        self.verify(session)?;
        for class in &self.classes {
            let phase = class.phase("read warm").cache(CacheState::Warm);
            session.measure(phase, |timed| read(timed, class, &mut buffer))?;
        }
        Ok(())
    }
}

impl FileCopy {
    fn sources(&self) -> Result<&HostTree> {
        let unprepared = Error::WrongCount {
            what: "file-copy: prepared source trees".to_owned(),
            expected: 1,
            found: 0,
        };
        self.sources.as_ref().ok_or(unprepared)
    }

    /// Records the space that the copies occupy.
    fn record_stored(&self, session: &mut Session<'_>, class: &Class) -> Result<()> {
        let mut stored = 0;
        for file in 0..class.files {
            stored += session.tree()?.status(&class.copy(file))?.stored;
        }
        session.record_stored(stored);
        Ok(())
    }

    fn copy(&self, timed: &mut Timed<'_>, class: &Class, buffer: &mut [u8]) -> Result<()> {
        timed.each("copy", Stopwatch::start(), 0..class.files, |timed, file| {
            let source = self.sources()?.open(&class.source(), Access::Read)?;
            let target = timed.tree().create(&class.copy(file))?;
            let mut offset = 0;
            while let length @ 1.. = source.read_at(offset, buffer)? {
                target.write_at(offset, &buffer[..length])?;
                offset += length as u64;
            }
            timed.sync(&*target)?;
            target.close()
        })?;
        timed.count(class.files, class.files * class.size);
        timed.flush()
    }

    /// Compares every copy with its source. This also reads all copies into the page cache.
    fn verify(&self, session: &Session<'_>) -> Result<()> {
        for class in &self.classes {
            for file in 0..class.files {
                session.check()?;
                content::verify(session.tree()?, &class.copy(file), class.checksum)?;
            }
        }
        Ok(())
    }
}

fn read(timed: &mut Timed<'_>, class: &Class, buffer: &mut [u8]) -> Result<()> {
    timed.each("read", Stopwatch::start(), 0..class.files, |timed, file| {
        let path = class.copy(file);
        let length = content::read_file(timed, &path, buffer)?;
        expect(format!("bytes read of {path}"), class.size, length)
    })?;
    timed.count(class.files, class.files * class.size);
    Ok(())
}
