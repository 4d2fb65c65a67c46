//! Temporary files. They have no names, so the kernel removes them even if this process is killed.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures_util::{Stream, stream};

use crate::error::Error;

/// Bytes read at a time.
const CHUNK: usize = 256 << 10;

/// Makes temporary files in a directory.
#[derive(Debug)]
pub struct Unnamed {
    directory: Arc<PathBuf>,
}

impl Unnamed {
    /// Makes temporary files in `directory`.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory: Arc::new(directory) }
    }
}

impl TempFileFactory for Unnamed {
    fn create_temp_file(&self, _purpose: &str) -> Result<Arc<dyn SpillFile>> {
        let directory = Arc::clone(&self.directory);
        let file = tempfile::tempfile_in(&*directory).map_err(|error| failed(&directory, error))?;
        Ok(Arc::new(Spilled(Arc::new(Content { file, bytes: AtomicU64::new(0), directory }))))
    }
}

/// A temporary file.
struct Spilled(Arc<Content>);

struct Content {
    file: File,
    bytes: AtomicU64,
    directory: Arc<PathBuf>,
}

impl SpillFile for Spilled {
    fn size(&self) -> Option<u64> {
        Some(self.0.bytes.load(Ordering::Acquire))
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<bytes::Bytes>> + Send>>> {
        let first = (Arc::clone(&self.0), 0_u64);
        let chunks = stream::unfold(first, |(content, at)| async move {
            let chunk = content.read(at)?;
            let next = at + chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
            Some((chunk, (content, next)))
        });
        Ok(Box::pin(chunks))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(Appender(Arc::clone(&self.0))))
    }
}

impl Content {
    /// Reads some bytes; `None` at the end.
    fn read(&self, at: u64) -> Option<Result<bytes::Bytes>> {
        let left = self.bytes.load(Ordering::Acquire).saturating_sub(at);
        if left == 0 {
            return None;
        }
        let mut chunk = vec![0; left.min(CHUNK as u64) as usize];
        let read = self.file.read_exact_at(&mut chunk, at);
        Some(read.map(|()| chunk.into()).map_err(|error| failed(&self.directory, error)))
    }
}

/// Appends to a temporary file. The engine opens one writer for each file.
struct Appender(Arc<Content>);

impl Write for Appender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let at = self.0.bytes.load(Ordering::Acquire);
        self.0
            .file
            .write_all_at(bytes, at)
            .map_err(|error| io::Error::other(failed(&self.0.directory, error)))?;
        self.0.bytes.store(at + bytes.len() as u64, Ordering::Release);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for Appender {
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

fn failed(directory: &Arc<PathBuf>, source: io::Error) -> DataFusionError {
    Error::Temporary { directory: directory.to_path_buf(), source }.into()
}
