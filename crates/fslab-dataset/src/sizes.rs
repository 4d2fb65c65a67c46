//! Checks the sizes in a part for programs that read it with another library.

use std::fs::File;
use std::path::Path;

use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::error::{Error, Result};
use crate::limits;
use crate::reader::guard;

/// Checks the footer of a part and the headers of all its pages, so that a library that reads the
/// part allocates no more memory than an undamaged part needs. Returns the footer.
///
/// # Errors
/// Fails if the file is damaged, if a size exceeds the limits of data sets, and on I/O errors.
pub fn check_sizes(path: &Path) -> Result<ParquetMetaData> {
    let file = File::open(path).map_err(Error::file(path))?;
    let twin = file.try_clone().map_err(Error::file(path))?;
    limits::check_footer(&twin).map_err(|what| Error::unfit(path, what))?;
    let reader = guard(path, || SerializedFileReader::new(file))?;
    for group in reader.metadata().row_groups() {
        let checked = guard(path, || Ok(limits::check_group(&twin, group)))?;
        checked.map_err(|what| Error::unfit(path, what))?;
    }
    Ok(reader.metadata().clone())
}
