//! Checks the sizes in a Parquet file before the Parquet library allocates memory for them.
//!
//! The library trusts the number of row groups in a footer, and the sizes in page headers. This
//! module parses footers and page headers itself and checks these numbers. Footers and page headers
//! are structs in Thrift's compact protocol.

use std::fs::File;
use std::os::unix::fs::FileExt;

use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

/// Maximum length of a footer in bytes.
const FOOTER_BYTES_MAX: u64 = 256 << 20;

/// Maximum number of row groups; the Parquet library has the same limit.
const GROUPS_MAX: u64 = i16::MAX as u64;

/// Maximum number of rows in a row group; fslab writes fewer.
const GROUP_ROWS_MAX: i64 = 1 << 20;

/// Maximum decoded size of a row group in bytes.
const GROUP_BYTES_MAX: u64 = 1 << 30;

/// Maximum number of values of a column in a row group.
const VALUES_MAX: u64 = 64 << 20;

/// Maximum length of the header of a page in bytes.
const HEADER_BYTES_MAX: usize = 4096;

/// The numbers of the accepted encodings of values: PLAIN, PLAIN_DICTIONARY, RLE,
/// DELTA_BINARY_PACKED and RLE_DICTIONARY.
const ENCODINGS: [u64; 5] = [0, 2, 3, 5, 8];

/// Maximum nesting of structs and lists.
const DEPTH_MAX: u32 = 16;

/// The magic number at the start and the end of a Parquet file.
const MAGIC: &[u8; 4] = b"PAR1";

/// The result of a check; the error describes the flaw.
pub(crate) type Checked<T = ()> = Result<T, String>;

/// Checks the footer of a file.
pub(crate) fn check_footer(file: &File) -> Checked {
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let mut end = [0; 8];
    let damaged = || "it is not a Parquet file, or it is truncated".to_owned();
    let start = length.checked_sub(8).ok_or_else(damaged)?;
    file.read_exact_at(&mut end, start).map_err(|error| error.to_string())?;
    let footer_bytes = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
    if end[4..] != MAGIC[..] || footer_bytes > start {
        return Err(damaged());
    }
    if footer_bytes > FOOTER_BYTES_MAX {
        return Err("its footer exceeds 256 MiB".to_owned());
    }
    let mut footer = vec![0; footer_bytes as usize];
    file.read_exact_at(&mut footer, start - footer_bytes).map_err(|error| error.to_string())?;
    let mut thrift = Thrift { bytes: &footer };
    let checked = thrift.each_field(|thrift, field, kind| {
        let before = thrift.bytes;
        if field == 4 && kind == LIST && thrift.list()?.0 > GROUPS_MAX {
            return None;
        }
        thrift.bytes = before;
        thrift.skip(kind, 0)
    });
    checked.ok_or_else(|| "its footer is damaged, or lists too many row groups".to_owned())
}

/// Checks the sizes of a row group and of the pages in some of its columns. A column is checked if
/// `is_read` returns `true` for its number.
pub(crate) fn check_group(
    file: &File,
    group: &RowGroupMetaData,
    is_read: impl Fn(usize) -> bool,
) -> Checked {
    if !(0..=GROUP_ROWS_MAX).contains(&group.num_rows()) {
        return Err("a row group has too many rows".to_owned());
    }
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let mut sizes = Sizes { rows: group.num_rows().unsigned_abs(), length, bytes: 0 };
    let columns = group.columns().iter().enumerate().filter(|(number, _)| is_read(*number));
    columns.map(|(_, column)| column).try_for_each(|column| sizes.add(file, column))
}

/// The sizes of a row group.
struct Sizes {
    rows: u64,
    /// Length of the file in bytes.
    length: u64,
    /// Decoded size in bytes of all pages that were checked so far.
    bytes: u64,
}

impl Sizes {
    fn add(&mut self, file: &File, column: &ColumnChunkMetaData) -> Checked {
        let damaged = || format!("the column '{}' is damaged", column.column_path().string());
        let (mut at, length) = column.byte_range();
        let end = at.checked_add(length).ok_or_else(damaged)?;
        if end > self.length {
            return Err(damaged());
        }
        let (mut values, mut header) = (0_u64, vec![0; HEADER_BYTES_MAX]);
        while at < end {
            let length = (end - at).min(HEADER_BYTES_MAX as u64) as usize;
            let header = &mut header[..length];
            file.read_exact_at(header, at).map_err(|error| error.to_string())?;
            let page = Page::parse(header).ok_or_else(damaged)?;
            self.bytes = self.bytes.saturating_add(page.bytes);
            values = values.saturating_add(page.values);
            let values_max = match column.column_descr().max_rep_level() {
                0 => self.rows,
                _ => VALUES_MAX,
            };
            // The Parquet library allocates memory for all values of a dictionary before it reads
            // them.
            let are_too_many = values.max(page.dictionary_values) > values_max;
            if self.bytes > GROUP_BYTES_MAX || are_too_many {
                let name = column.column_path().string();
                return Err(format!("a row group has too many values or bytes in column '{name}'"));
            }
            at = at.saturating_add(page.header_bytes + page.stored_bytes);
        }
        Ok(())
    }
}

/// The sizes in the header of a page.
struct Page {
    header_bytes: u64,
    stored_bytes: u64,
    /// Decoded size of the page in bytes.
    bytes: u64,
    values: u64,
    dictionary_values: u64,
}

impl Page {
    fn parse(header: &[u8]) -> Option<Self> {
        let mut thrift = Thrift { bytes: header };
        let (mut bytes, mut stored_bytes) = (None, None);
        let (mut values, mut dictionary_values) = (0, 0);
        thrift.each_field(|thrift, field, kind| {
            match (field, kind) {
                (2, I32) => bytes = Some(thrift.size()?),
                (3, I32) => stored_bytes = Some(thrift.size()?),
                // Field 5 describes a data page of version 1, field 7 a dictionary page, and field
                // 8 a data page of version 2. The argument of `page_of_values` is the field with
                // the encoding.
                (5, STRUCT) => values = thrift.page_of_values(2)?,
                (7, STRUCT) => dictionary_values = thrift.page_of_values(2)?,
                (8, STRUCT) => values = thrift.page_of_values(4)?,
                _ => thrift.skip(kind, 0)?,
            }
            Some(())
        })?;
        let header_bytes = (header.len() - thrift.bytes.len()) as u64;
        let (stored_bytes, bytes) = (stored_bytes?, bytes?);
        Some(Self { header_bytes, stored_bytes, bytes, values, dictionary_values })
    }
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

/// Reads the compact protocol of Thrift. Methods return `None` if bytes are invalid or missing.
struct Thrift<'a> {
    bytes: &'a [u8],
}

impl Thrift<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn integer(&mut self) -> Option<i64> {
        let zigzag = self.varint()?;
        Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    /// Reads a number that must not be negative.
    fn size(&mut self) -> Option<u64> {
        self.integer()?.try_into().ok()
    }

    /// Reads the start of a list: its length and the type of its elements.
    fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let length = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        // Each element needs at least one byte, so a longer list can't be valid.
        (length <= self.bytes.len() as u64).then_some((length, head & 15))
    }

    /// Calls `read` with the number and the type of each field of a struct.
    fn each_field(&mut self, mut read: impl FnMut(&mut Self, i64, u8) -> Option<()>) -> Option<()> {
        let mut field = 0_i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            field = match head >> 4 {
                0 => self.integer()?,
                step => field.checked_add(step.into())?,
            };
            read(self, field, head & 15)?;
        }
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match kind {
            TRUE | FALSE => {}
            BYTE => drop(self.byte()?),
            I16 | I32 | I64 => drop(self.varint()?),
            DOUBLE => self.bytes = self.bytes.get(8..)?,
            BINARY => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.bytes = self.bytes.get(length..)?;
            }
            LIST | SET => {
                let (length, element) = self.list()?;
                for _ in 0..length {
                    // Each boolean in a list is stored in one byte.
                    let element = if matches!(element, TRUE | FALSE) { BYTE } else { element };
                    self.skip(element, depth + 1)?;
                }
            }
            STRUCT => self.each_field(|thrift, _, kind| thrift.skip(kind, depth + 1))?,
            _ => return None,
        }
        Some(())
    }

    /// Reads the header of a page that contains values, and returns their number. Returns `None` if
    /// fslab does not write the page's encoding, because a small page in some encodings decodes to
    /// very many bytes.
    fn page_of_values(&mut self, encoding: i64) -> Option<u64> {
        let mut values = None;
        self.each_field(|thrift, field, kind| {
            match (field, kind) {
                (1, I32) => values = Some(thrift.size()?),
                (number, I32) if number == encoding => {
                    let found = thrift.size()?;
                    ENCODINGS.contains(&found).then_some(())?;
                }
                _ => thrift.skip(kind, 1)?,
            }
            Some(())
        })?;
        values
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn number(number: i64) -> Vec<u8> {
        let mut zigzag = (number << 1 ^ number >> 63).cast_unsigned();
        let mut bytes = vec![0x15];
        while zigzag >= 0x80 {
            bytes.push(zigzag as u8 | 0x80);
            zigzag >>= 7;
        }
        bytes.push(zigzag as u8);
        bytes
    }

    /// Returns the header of a data page (`step` 2) or a dictionary page (`step` 4). `step` is the
    /// distance from field 3 to the field that describes the page (5 or 7).
    fn header(bytes: i64, step: u8, values: i64, encoding: i64) -> Vec<u8> {
        let [kind, bytes, stored] = [0, bytes, 10].map(number);
        let [values, encoding] = [values, encoding].map(number);
        [&kind, &bytes, &stored, &vec![step << 4 | STRUCT], &values, &encoding, &vec![0, 0]]
            .map(|field| field.as_slice())
            .concat()
    }

    #[test]
    fn page_header_gives_sizes_before_decoding() {
        let good = header(1 << 30, 2, 1_000_000, 5);
        let page = Page::parse(&good).unwrap();
        assert_eq!((page.bytes, page.stored_bytes, page.values), (1 << 30, 10, 1_000_000));
        assert_eq!(page.header_bytes, good.len() as u64);
        let dictionary = Page::parse(&header(8, 4, i64::from(i32::MAX), 0)).unwrap();
        assert_eq!((dictionary.values, dictionary.dictionary_values), (0, i32::MAX as u64));
        for length in 0..good.len() {
            assert!(Page::parse(&good[..length]).is_none(), "{length} bytes");
        }
        // DELTA_BYTE_ARRAY (7) is refused, because it can repeat the start of a value without
        // limit.
        for (bytes, values, encoding) in [(8, 1, 7), (8, 1, 6), (-8, 1, 0), (8, -1, 0)] {
            assert!(Page::parse(&header(bytes, 2, values, encoding)).is_none());
        }
    }

    #[test]
    fn deeply_nested_header_is_refused() {
        let nested = [vec![0x1c; 3000], vec![0; 3001]].concat();
        assert!(Page::parse(&nested).is_none());
        assert!(Page::parse(&vec![0x19; 3000]).is_none());
    }

    #[test]
    fn footer_with_too_many_row_groups_is_refused() {
        let groups = |count: &[u8]| [&[0x49, 0xfc][..], count, &[0; 70_000], &[0]].concat();
        for (footer, is_good) in [
            (vec![0], true),
            // One list claims more row groups than it has bytes, the other more than Parquet
            // accepts.
            (groups(&[0xff, 0xff, 0xff, 0xff, 0x07]), false),
            (groups(&[0x80, 0x80, 0x02]), false),
            (vec![0x19], false),
        ] {
            let mut file = tempfile::tempfile().unwrap();
            let length = (footer.len() as u32).to_le_bytes();
            let bytes = [&MAGIC[..], &footer, &length, MAGIC].concat();
            file.write_all(&bytes).unwrap();
            assert_eq!(check_footer(&file).is_ok(), is_good, "{} bytes", footer.len());
            file.set_len(bytes.len() as u64 - 1).unwrap();
            check_footer(&file).unwrap_err();
        }
    }
}
