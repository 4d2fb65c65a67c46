//! Writes a data set.
//!
//! Rows are buffered in memory until they are written as a row group. All parts share one memory
//! budget, so the memory needed does not depend on the number of parts. Once the buffered rows need
//! [`WAITING_BYTES_MAX`], the part with the most buffered rows writes its row group early. Because
//! vectors grow by doubling, the writer uses at most twice this budget, plus about 10 KiB for each
//! finished row group (its entry in the footer).

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding as Coded, ZstdLevel};
use parquet::errors::Result as ParquetResult;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::format::{Cell, Encoding, GROUP_LONG_BYTES, GROUP_ROWS, Schema};
use crate::manifest::{MANIFEST_FILE, Manifest, PARTS_FOLDER, PARTS_MAX, Part, VERSION};

/// Memory for the buffered rows of all parts, in bytes.
const WAITING_BYTES_MAX: usize = 256 << 20;

/// Maximum length of the smallest and largest values in statistics, in bytes.
const STATISTICS_BYTES: usize = 64;

/// Writes a data set that appears only when it is complete. If the writer is dropped before that,
/// it leaves no files behind.
pub struct Writer {
    target: PathBuf,
    temporary: TempDir,
    schema: Schema,
    facts: BTreeMap<String, String>,
    parts: Vec<PartWriter>,
    waiting_bytes: usize,
    waiting_bytes_max: usize,
}

struct PartWriter {
    path: PathBuf,
    /// The path relative to the directory of the data set.
    name: String,
    file: SerializedFileWriter<HashedFile>,
    buffer: Buffer,
    rows: u64,
}

/// An append-only file, with its length and hash.
struct HashedFile {
    file: File,
    hash: blake3::Hasher,
    bytes: u64,
}

impl Writer {
    /// Starts a data set in a temporary directory next to `directory`.
    ///
    /// # Errors
    /// Fails if `directory` exists, if the number of parts is not from 1 to [`PARTS_MAX`], and on
    /// I/O errors.
    pub fn create(
        directory: &Path,
        schema: &Schema,
        parts: usize,
        facts: BTreeMap<String, String>,
    ) -> Result<Self> {
        if !(1..=PARTS_MAX).contains(&parts) {
            let what = format!("a data set has 1 to {PARTS_MAX} parts, not {parts}");
            return Err(Error::unfit(directory, what));
        }
        if directory.symlink_metadata().is_ok() {
            return Err(exists(directory));
        }
        let beside = parent_of(directory);
        let temporary = tempfile::Builder::new().prefix(".fslab-dataset-").tempdir_in(beside);
        let temporary = temporary.map_err(Error::file(beside))?;
        let folder = temporary.path().join(PARTS_FOLDER);
        DirBuilder::new().mode(0o700).create(&folder).map_err(Error::file(&folder))?;
        let properties = properties(schema).map_err(Error::parquet(directory))?;
        let properties = Arc::new(properties);
        let parts = (0..parts)
            .map(|part| PartWriter::create(temporary.path(), part, schema, &properties))
            .collect::<Result<_>>()?;
        let (waiting_bytes, waiting_bytes_max) = (0, WAITING_BYTES_MAX);
        let (target, schema) = (directory.to_owned(), schema.clone());
        Ok(Self { target, temporary, schema, facts, parts, waiting_bytes, waiting_bytes_max })
    }

    /// Sets the memory for buffered rows, in bytes.
    #[must_use]
    pub fn with_memory(mut self, bytes: usize) -> Self {
        self.waiting_bytes_max = bytes;
        self
    }

    /// Sets a fact of the manifest.
    pub fn set_fact(&mut self, key: &str, value: String) {
        self.facts.insert(key.to_owned(), value);
    }

    /// Adds a row to a part.
    ///
    /// # Errors
    /// Fails if a cell does not fit its column, and on I/O errors.
    pub fn push(&mut self, part: usize, cells: &[Cell<'_>]) -> Result<()> {
        let Some(open) = self.parts.get_mut(part) else {
            return Err(Error::unfit(&self.target, format!("there is no part {part}")));
        };
        let before = open.buffer.bytes();
        let pushed = open.buffer.push(&self.schema.columns, cells);
        pushed.map_err(|what| Error::unfit(&open.path, what))?;
        open.rows += 1;
        self.waiting_bytes += open.buffer.bytes() - before;
        let is_whole =
            open.buffer.rows() >= GROUP_ROWS || open.buffer.long_bytes() >= GROUP_LONG_BYTES;
        if is_whole {
            return self.write_group(part);
        }
        if self.waiting_bytes > self.waiting_bytes_max {
            let largest = self.parts.iter().enumerate().max_by_key(|(_, one)| one.buffer.bytes());
            if let Some((largest, _)) = largest {
                return self.write_group(largest);
            }
        }
        Ok(())
    }

    fn write_group(&mut self, part: usize) -> Result<()> {
        let open = &mut self.parts[part];
        self.waiting_bytes -= open.buffer.bytes();
        open.write_group(&self.schema)
    }

    /// Completes the data set: writes all buffered rows and then the manifest, and renames the
    /// directory to its final name.
    ///
    /// # Errors
    /// Fails if the final name exists by now, and on I/O errors. After a failure, no files are left
    /// behind.
    pub fn finish(self) -> Result<Manifest> {
        let Self { target, temporary, schema, facts, parts, .. } = self;
        let parts =
            parts.into_iter().map(|part| part.finish(&schema)).collect::<Result<Vec<_>>>()?;
        let manifest = Manifest {
            format: VERSION,
            kind: schema.kind.to_owned(),
            columns: schema.version,
            partition: schema.partition.name().to_owned(),
            facts,
            rows: parts.iter().map(|part| part.rows).sum(),
            parts,
        };
        let path = temporary.path().join(MANIFEST_FILE);
        let mut text = serde_json::to_vec_pretty(&manifest)
            .map_err(io::Error::from)
            .map_err(Error::file(&path))?;
        text.push(b'\n');
        let mut file = new_file(&path)?;
        let saved = file.write_all(&text).and_then(|()| file.sync_all());
        saved.map_err(Error::file(&path))?;
        sync_directory(&temporary.path().join(PARTS_FOLDER))?;
        sync_directory(temporary.path())?;
        rename(temporary.path(), &target)?;
        // The directory was renamed, so the temporary directory no longer exists and must not be
        // removed.
        let _renamed = temporary.keep();
        sync_directory(parent_of(&target))?;
        Ok(manifest)
    }
}

impl PartWriter {
    fn create(
        directory: &Path,
        part: usize,
        schema: &Schema,
        properties: &Arc<WriterProperties>,
    ) -> Result<Self> {
        let name = Part::path(VERSION, part);
        let path = directory.join(&name);
        let file = HashedFile { file: new_file(&path)?, hash: blake3::Hasher::new(), bytes: 0 };
        let begun = schema.to_parquet().and_then(|types| {
            SerializedFileWriter::new(file, Arc::new(types), Arc::clone(properties))
        });
        let file = begun.map_err(Error::parquet(&path))?;
        Ok(Self { path, name, file, buffer: Buffer::new(&schema.columns), rows: 0 })
    }

    fn write_group(&mut self, schema: &Schema) -> Result<()> {
        if self.buffer.rows() == 0 {
            return Ok(());
        }
        // The new buffer allocates no memory yet, so all parts together stay within the budget.
        let rows = std::mem::replace(&mut self.buffer, Buffer::new(&schema.columns));
        let written = self.file.next_row_group().and_then(|group| rows.write(group));
        written.map_err(Error::parquet(&self.path))
    }

    fn finish(mut self, schema: &Schema) -> Result<Part> {
        self.write_group(schema)?;
        let written = self.file.into_inner().map_err(Error::parquet(&self.path))?;
        written.file.sync_all().map_err(Error::file(&self.path))?;
        let blake3 = written.hash.finalize().to_hex().to_string();
        Ok(Part { file: self.name, rows: self.rows, bytes: written.bytes, blake3 })
    }
}

impl Write for HashedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Makes a file that only its owner can read, because it may contain names of other users' files.
fn new_file(path: &Path) -> Result<File> {
    let opened = File::options().write(true).create_new(true).mode(0o600).open(path);
    opened.map_err(Error::file(path))
}

fn exists(path: &Path) -> Error {
    Error::unfit(path, "it exists already; remove it, or choose another name")
}

fn parent_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(Error::file(path))
}

/// Renames a directory; fails if the new name exists.
fn rename(from: &Path, to: &Path) -> Result<()> {
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => Err(exists(to)),
        // Some file systems do not support `RENAME_NOREPLACE`. A plain rename replaces at most an
        // empty directory.
        Err(Errno::INVAL | Errno::NOSYS) => std::fs::rename(from, to).map_err(Error::file(to)),
        Err(error) => Err(Error::file(to)(error.into())),
    }
}

fn properties(schema: &Schema) -> ParquetResult<WriterProperties> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_statistics_truncate_length(Some(STATISTICS_BYTES))
        .set_offset_index_disabled(true);
    for column in schema.columns.iter().filter(|one| one.encoding != Encoding::Dictionary) {
        for leaf in column.leaves() {
            properties = properties.set_column_dictionary_enabled(leaf.path.clone(), false);
            if column.encoding == Encoding::Delta {
                properties = properties.set_column_encoding(leaf.path, Coded::DELTA_BINARY_PACKED);
            }
        }
    }
    Ok(properties.build())
}
