//! Anonymises names: a keyed hash replaces each name. To compare a guessed name with a hash, a
//! reader needs the key.
//!
//! A name becomes 24 hexadecimal digits (96 bits of keyed BLAKE3), whatever its length. Its
//! extension is kept if it is one of [`KNOWN_EXTENSIONS`], because studies of traces need the types
//! of files. Any other extension could itself reveal a name, so it is hashed together with the
//! name.
//!
//! The same key gives the same names, so traces of one tree can be compared. The directories in the
//! target of a symbolic link are hashed one by one, so links still refer to the same files. The
//! name of a program may be that of a private script, so it is hashed, too. Numbers (inodes, users,
//! groups, processes, sizes, times) are not changed.

use std::path::Path;

use crate::error::{Error, Result};
use crate::record::Record;

/// Extensions that are kept in an anonymised name.
#[rustfmt::skip]
pub const KNOWN_EXTENSIONS: &[&str] = &[
    "a", "avi", "bak", "bin", "bz2", "c", "cc", "class", "conf", "cpp", "css", "csv", "d", "db",
    "deb", "dll", "doc", "docx", "exe", "gif", "go", "gz", "h", "hpp", "htm", "html", "ini", "iso",
    "jar", "java", "jpeg", "jpg", "js", "json", "lock", "log", "m4a", "md", "mkv", "mp3", "mp4",
    "o", "ods", "odt", "parquet", "pdf", "php", "pl", "png", "ppt", "pptx", "py", "pyc", "rb",
    "rlib", "rmeta", "rpm", "rs", "sh", "so", "sql", "sqlite", "svg", "swp", "tar", "tgz",
    "timestamp", "tmp", "toml", "ts", "txt", "wal", "wav", "xls", "xlsx", "xml", "xz", "yaml",
    "yml", "zip", "zst",
];

/// Minimum length of a key in bytes.
const KEY_BYTES_MIN: usize = 16;

/// The context string for deriving the key. If another program uses the same key file, its hashes
/// differ from those in traces.
const CONTEXT: &str = "fslab 2026-11 names in traces";

/// Namespaces of extended attributes. These prefixes are kept, because they have a meaning for the
/// kernel.
const ATTRIBUTE_NAMESPACES: &[&[u8]] = &[b"user.", b"trusted.", b"security.", b"system."];

/// Replaces names by keyed hashes.
pub struct Anonymiser {
    key: [u8; blake3::KEY_LEN],
}

impl Anonymiser {
    /// Reads the key from a file: at least 16 bytes that can't be guessed.
    ///
    /// # Errors
    /// Returns [`Error::Unfit`] for a shorter key. Also fails on I/O errors.
    pub fn from_key_file(path: &Path) -> Result<Self> {
        let secret = std::fs::read(path).map_err(Error::file(path))?;
        if secret.len() < KEY_BYTES_MIN {
            let length = secret.len();
            let what = format!(
                "is too short for a key: {length} bytes; a key has at least {KEY_BYTES_MIN}"
            );
            return Err(Error::unfit(path, what));
        }
        Ok(Self { key: blake3::derive_key(CONTEXT, &secret) })
    }

    /// Returns the replacement for a name.
    #[must_use]
    pub fn name(&self, name: &[u8]) -> Vec<u8> {
        if matches!(name, b"" | b"." | b"..") {
            return name.to_vec();
        }
        let digits = self.digits(name);
        match known_extension(name) {
            Some(extension) => format!("{digits}.{extension}").into_bytes(),
            None => digits.into_bytes(),
        }
    }

    /// Returns the replacement for the name of a program. The name may have been truncated within
    /// an extension, so extensions are hashed.
    #[must_use]
    pub fn program(&self, name: &[u8]) -> Vec<u8> {
        self.digits(name).into_bytes()
    }

    /// Returns the replacement for the target of a symbolic link.
    #[must_use]
    pub fn path(&self, path: &[u8]) -> Vec<u8> {
        let parts: Vec<_> = path.split(|byte| *byte == b'/').map(|part| self.name(part)).collect();
        parts.join(&b'/')
    }

    /// Returns the replacement for the name of an extended attribute. `system.` and `security.`
    /// attributes belong to the kernel and keep their names.
    #[must_use]
    pub fn attribute(&self, name: &[u8]) -> Vec<u8> {
        if name.starts_with(b"system.") || name.starts_with(b"security.") {
            return name.to_vec();
        }
        let namespace = ATTRIBUTE_NAMESPACES.iter().find(|prefix| name.starts_with(prefix));
        let namespace = namespace.copied().unwrap_or_default();
        [namespace, &self.name(&name[namespace.len()..])].concat()
    }

    /// Returns the replacement for a checksum. The original checksum could reveal a short text,
    /// which can be found by computing the checksums of all short texts.
    fn checksum(&self, checksum: u64, size: u64) -> u64 {
        let told = [checksum.to_le_bytes(), size.to_le_bytes()].concat();
        let hash = self.hash(&told);
        hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Anonymises a record. Data can't be anonymised and is removed.
    pub(crate) fn apply(&self, record: &mut Record) {
        use fslab_vfs::Operation::{Getxattr, Listxattr, Readlink, Removexattr, Setxattr, Symlink};
        for name in [&mut record.name, &mut record.new_name].into_iter().flatten() {
            *name = self.name(name);
        }
        if let Some(program) = &mut record.program {
            *program = self.program(program);
        }
        if let Some(text) = &mut record.text {
            *text = match record.operation {
                Symlink | Readlink => self.path(text),
                Getxattr | Setxattr | Listxattr | Removexattr => self.attribute(text),
                _ => self.name(text),
            };
        }
        record.checksum = record
            .checksum
            .map(|checksum| self.checksum(checksum, record.size.unwrap_or_default()));
        record.data = None;
    }

    fn digits(&self, name: &[u8]) -> String {
        self.hash(name).iter().take(12).map(|byte| format!("{byte:02x}")).collect()
    }

    fn hash(&self, bytes: &[u8]) -> [u8; blake3::OUT_LEN] {
        *blake3::keyed_hash(&self.key, bytes).as_bytes()
    }
}

fn known_extension(name: &[u8]) -> Option<&'static str> {
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    let extension = std::str::from_utf8(&name[dot + 1..]).ok()?;
    let known = KNOWN_EXTENSIONS.iter().find(|known| **known == extension)?;
    // A name such as `.git` or `.tmp` has no extension.
    (dot > 0).then_some(known)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn anonymiser(secret: &[u8]) -> Anonymiser {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(secret).unwrap();
        Anonymiser::from_key_file(file.path()).unwrap()
    }

    #[test]
    fn names_are_hidden_and_known_extensions_stay() {
        let one = anonymiser(b"sixteen bytes or more");
        let shown = |name: &[u8]| String::from_utf8(one.name(name)).unwrap();
        assert_eq!(shown(b".."), "..");
        assert!(shown(b"salaries.xlsx").ends_with(".xlsx"));
        for name in ["salaries", "a.of-a-person", ".txt", "Makefile", "x.RS"] {
            let hidden = shown(name.as_bytes());
            assert_eq!(hidden.len(), 24, "{name}");
            assert!(hidden.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hidden}");
        }
        assert_eq!(shown(b"a"), shown(b"a"));
        assert_ne!(shown(b"a"), shown(b"b"));
        let other = anonymiser(b"another key of a good length");
        assert_ne!(one.name(b"a"), other.name(b"a"));
    }

    #[test]
    fn links_and_attributes_keep_their_shape() {
        let one = anonymiser(b"sixteen bytes or more");
        let target = [b"../".as_slice(), &one.name(b"src"), b"/", &one.name(b"main.rs")].concat();
        assert_eq!(one.path(b"../src/main.rs"), target);
        assert_eq!(one.attribute(b"security.capability"), b"security.capability");
        assert!(one.attribute(b"user.secret").starts_with(b"user."));
        assert!(!one.attribute(b"user.secret").ends_with(b"secret"));
    }

    #[test]
    fn names_of_programs_are_hidden_without_an_extension() {
        let one = anonymiser(b"sixteen bytes or more");
        let mut record = Record::new(fslab_vfs::Operation::Lookup);
        record.program = Some(b"jane.sh".to_vec());
        one.apply(&mut record);
        let hidden = String::from_utf8(record.program.unwrap()).unwrap();
        assert_eq!(hidden.len(), 24, "{hidden}");
        assert!(hidden.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hidden}");
        assert!(String::from_utf8(one.name(b"jane.sh")).unwrap().starts_with(&hidden));
    }

    #[test]
    fn a_short_key_is_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"too short").unwrap();
        let error = Anonymiser::from_key_file(file.path()).err().unwrap();
        assert!(error.to_string().contains("9 bytes; a key has at least 16"), "{error}");
    }
}
