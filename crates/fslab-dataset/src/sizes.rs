//! Checks the sizes in a part for programs that read it with another library.

use std::fs::File;
use std::path::Path;

use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::error::{Error, Result};
use crate::limits;
use crate::reader::guard;

/// Checks the size of the footer of a part and reads the footer.
///
/// # Errors
/// Fails if the file is damaged or has too many row groups, and on I/O errors.
pub fn read_footer(path: &Path) -> Result<ParquetMetaData> {
    let file = File::open(path).map_err(Error::file(path))?;
    limits::check_footer(&file).map_err(|what| Error::unfit(path, what))?;
    let reader = guard(path, || SerializedFileReader::new(file))?;
    Ok(reader.metadata().clone())
}

/// Checks the sizes of the row groups of a part, and of the pages in some of its columns. A column
/// is checked if `is_read` returns `true` for its number in the file. A library that then reads
/// these columns allocates no more memory than an undamaged part needs.
///
/// # Errors
/// Fails if the file is damaged, if a size exceeds the limits of data sets, and on I/O errors.
pub fn check_sizes(
    path: &Path,
    footer: &ParquetMetaData,
    is_read: impl Fn(usize) -> bool,
) -> Result<()> {
    let file = File::open(path).map_err(Error::file(path))?;
    for group in footer.row_groups() {
        let checked = guard(path, || Ok(limits::check_group(&file, group, &is_read)))?;
        checked.map_err(|what| Error::unfit(path, what))?;
    }
    Ok(())
}
