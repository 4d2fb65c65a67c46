//! The manifest: the file that makes a directory a data set.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::format::Schema;

/// The name of the manifest in the directory of a data set.
pub const MANIFEST_FILE: &str = "manifest.json";

/// The folder of the parts in the directory of a data set. It contains only Parquet files, because
/// some SQL engines read all files of a folder as Parquet.
pub const PARTS_FOLDER: &str = "parts";

/// The version of the format of data sets.
pub const VERSION: u32 = 2;

/// Maximum number of parts of a data set.
pub const PARTS_MAX: usize = 4096;

/// The kinds of data sets, which are also the default names of their tables.
pub const KINDS: [&str; 5] = ["snapshot", "workload", "trace", "samples", "tier"];

/// Maximum length of a manifest in bytes.
const BYTES_MAX: u64 = 4 << 20;

/// The description of a data set. It is written last, so a directory without it is incomplete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the format, at most [`VERSION`].
    pub format: u32,
    /// The kind of the data set, one of [`KINDS`].
    pub kind: String,
    /// Version of the columns of this kind.
    pub columns: u32,
    /// The rule that assigns rows to parts: `inode` (by a hash of the inode number) or `order`
    /// (consecutive rows).
    pub partition: String,
    /// Facts about the whole data set, such as the time of a snapshot.
    pub facts: BTreeMap<String, String>,
    /// Number of rows in all parts.
    pub rows: u64,
    /// The Parquet files, in order.
    pub parts: Vec<Part>,
}

/// A Parquet file of a data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The path of the file, relative to the directory of the data set.
    pub file: String,
    /// Number of rows.
    pub rows: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// BLAKE3 of the file, 64 hexadecimal digits.
    pub blake3: String,
}

impl Manifest {
    /// Reads and checks the manifest in `directory`. The lengths of the parts are compared with
    /// those of the files; the contents of the files are not read.
    ///
    /// # Errors
    /// Fails if the directory is not a data set, if the data set is newer than this program, if a
    /// part is missing or has another length, and on I/O errors.
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(MANIFEST_FILE);
        let file = File::open(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::unfit(
                directory,
                "this is not a data set, because it has no manifest.json; \
                 `fslab dataset create` makes data sets",
            ),
            _ => Error::File { path: path.clone(), source },
        })?;
        let mut text = Vec::new();
        file.take(BYTES_MAX + 1).read_to_end(&mut text).map_err(Error::file(&path))?;
        if text.len() as u64 > BYTES_MAX {
            return Err(Error::unfit(&path, "a manifest has at most 4 MiB"));
        }
        let manifest = Self::parse(&path, &text)?;
        for part in &manifest.parts {
            part.check_length(directory)?;
        }
        Ok(manifest)
    }

    /// Parses and checks the text of a manifest. `path` is used in messages.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the text is not a valid manifest.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self> {
        /// The version of a manifest. It is parsed first, because later versions may have other
        /// members.
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let damaged = |error: serde_json::Error| {
            Error::unfit(path, format!("this is not a manifest of a data set: {error}"))
        };
        let Version { format } = serde_json::from_slice(text).map_err(damaged)?;
        if format > VERSION {
            let what = format!(
                "this data set has format {format}, but this fslab reads formats up to {VERSION}; \
                 use a newer fslab"
            );
            return Err(Error::unfit(path, what));
        }
        let manifest: Self = serde_json::from_slice(text).map_err(damaged)?;
        manifest.check().map_err(|what| Error::unfit(path, what))?;
        Ok(manifest)
    }

    /// Checks that the caller can read rows of this kind and version. `path` is used in messages.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the kind, the version of the columns or the partition differs.
    pub fn check_schema(&self, path: &Path, schema: &Schema) -> Result<()> {
        let Schema { kind, version, partition, .. } = schema;
        if self.kind != *kind {
            let what = format!("this is a data set of kind '{}', not '{kind}'", self.kind);
            return Err(Error::unfit(path, what));
        }
        if self.columns != *version {
            let what = format!(
                "its columns have version {}, but this fslab reads version {version}",
                self.columns
            );
            return Err(Error::unfit(path, what));
        }
        if self.partition != partition.name() {
            let (found, needed) = (&self.partition, partition.name());
            let what = format!("its partition is '{found}' instead of '{needed}'");
            return Err(Error::unfit(path, what));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if self.format == 0 {
            return Err("the format 0 is invalid".to_owned());
        }
        if !KINDS.contains(&self.kind.as_str()) {
            return Err(format!("the kind '{}' is unknown", self.kind.escape_default()));
        }
        if !["inode", "order"].contains(&self.partition.as_str()) {
            return Err(format!("the partition '{}' is unknown", self.partition.escape_default()));
        }
        if self.parts.is_empty() || self.parts.len() > PARTS_MAX {
            return Err(format!("a data set has 1 to {PARTS_MAX} parts, not {}", self.parts.len()));
        }
        let mut rows = 0_u64;
        for (number, part) in self.parts.iter().enumerate() {
            // Paths are fixed, so a manifest can't list a file outside its directory or list a file
            // twice.
            let needed = Part::path(self.format, number);
            if part.file != needed {
                let found = part.file.escape_default();
                return Err(format!("part {number} is '{found}' instead of '{needed}'"));
            }
            rows = rows.checked_add(part.rows).ok_or("the parts have too many rows")?;
        }
        if rows != self.rows {
            return Err(format!("the parts have {rows} rows, not {}", self.rows));
        }
        Ok(())
    }
}

impl Part {
    /// Returns the path of a part, relative to the data set's directory. The path depends on the
    /// format.
    #[must_use]
    pub fn path(format: u32, number: usize) -> String {
        let name = format!("part-{number:05}.parquet");
        // Format 1 had no folder for the parts.
        if format == 1 { name } else { format!("{PARTS_FOLDER}/{name}") }
    }

    /// Reads the whole file in `directory`, and compares its hash with the manifest.
    ///
    /// # Errors
    /// Returns [`Error::Unfit`] if the hashes differ. Also fails on I/O errors.
    pub fn check_hash(&self, directory: &Path) -> Result<()> {
        let path = directory.join(&self.file);
        let mut hash = blake3::Hasher::new();
        let mut file = File::open(&path).map_err(Error::file(&path))?;
        let mut block = vec![0; 1 << 18];
        loop {
            match file.read(&mut block).map_err(Error::file(&path))? {
                0 => break,
                length => hash.update(&block[..length]),
            };
        }
        if hash.finalize().to_hex().as_str() == self.blake3 {
            return Ok(());
        }
        let what = "its BLAKE3 hash is not that in the manifest: the file is damaged or was \
                    changed; create the data set again";
        Err(Error::unfit(&path, what))
    }

    fn check_length(&self, directory: &Path) -> Result<()> {
        let path = directory.join(&self.file);
        let found = std::fs::metadata(&path).map_err(Error::file(&path))?;
        if !found.is_file() || found.len() != self.bytes {
            let what = format!(
                "this part of a data set has {} bytes, not {} as in the manifest; create the data \
                 set again",
                found.len(),
                self.bytes
            );
            return Err(Error::unfit(&path, what));
        }
        Ok(())
    }
}
