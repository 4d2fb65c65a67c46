//! The expected results of a script: the versions of a file or another item, and when each of them
//! became durable.
//!
//! A position is the number of events so far in a [`super::CrashFs`].

/// The versions of an item during a script, such as a file's bytes, its time, or all names.
#[derive(Debug, Clone)]
pub struct History<T> {
    /// The versions, each with the position at which the change to it began.
    versions: Vec<(usize, T)>,
    /// The syncs that returned: their positions and versions.
    synced: Vec<(usize, usize)>,
    /// The last version whose change succeeded.
    completed: usize,
}

impl<T> History<T> {
    /// Starts a history with a first version.
    #[must_use]
    pub fn new(position: usize, first: T) -> Self {
        Self { versions: vec![(position, first)], synced: Vec::new(), completed: 0 }
    }

    /// Records that a change to another version begins.
    pub fn begin(&mut self, position: usize, version: T) {
        self.versions.push((position, version));
    }

    /// Replaces the version that began last, once its actual content is known.
    pub fn amend(&mut self, version: T) {
        if let Some((_, last)) = self.versions.last_mut() {
            *last = version;
        }
    }

    /// Records that the change that began last succeeded.
    pub fn complete(&mut self) {
        self.completed = self.versions.len() - 1;
    }

    /// Records that a sync returned, so that the last completed version is durable from here on.
    pub fn sync(&mut self, position: usize) {
        self.synced.push((position, self.completed));
    }

    /// Treats the last completed version as synced, for a check without a crash. Earlier versions
    /// are then not allowed.
    pub fn confirm(&mut self) {
        self.sync(0);
    }

    /// The version that began last.
    #[must_use]
    pub fn last(&self) -> &T {
        &self.versions[self.versions.len() - 1].1
    }

    /// The versions that are allowed after a crash: all from the last synced version to the last
    /// one whose change had begun.
    pub fn allowed(&self, point: usize) -> impl Iterator<Item = &T> {
        let synced = self.synced.iter().rev().find(|(when, _)| *when <= point);
        let first = synced.map_or(0, |(_, version)| *version);
        let begun = self.versions.iter().enumerate().skip(first);
        begun
            .filter(move |(index, (begun, _))| *index == first || *begun < point)
            .map(|(_, (_, version))| version)
    }
}

/// Checks that a file may have this size: the size of a version, or a size between those of two
/// successive versions, because an extension may be partial.
///
/// # Errors
/// The size and the allowed ones.
pub fn is_size_of(size: usize, versions: &[&[u8]]) -> Result<(), String> {
    let sizes: Vec<_> = versions.iter().map(|version| version.len()).collect();
    let in_part = |pair: &[usize]| (pair[0]..pair[1]).contains(&size);
    if sizes.contains(&size) || sizes.windows(2).any(in_part) {
        return Ok(());
    }
    Err(format!("a size of {size}, not one of {sizes:?}"))
}

/// Checks each byte: at least one version must have the same byte at the same offset. Past its end,
/// a version has zeros.
///
/// # Errors
/// The first byte that no version had.
pub fn are_bytes_of(bytes: &[u8], start: usize, versions: &[&[u8]]) -> Result<(), String> {
    const PIECE: usize = 512;
    for (number, piece) in bytes.chunks(PIECE).enumerate() {
        let at = start + number * PIECE;
        // Whole pieces are compared first, because files are long and most pieces equal those of
        // one version.
        let same = |version: &&[u8]| version.get(at..at + piece.len()) == Some(piece);
        if !versions.iter().any(same) {
            are_single_bytes_of(piece, at, versions)?;
        }
    }
    Ok(())
}

fn are_single_bytes_of(bytes: &[u8], start: usize, versions: &[&[u8]]) -> Result<(), String> {
    for (place, byte) in bytes.iter().enumerate() {
        let at = start + place;
        let mut held = versions.iter().map(|version| version.get(at).copied().unwrap_or(0));
        if !held.any(|held| held == *byte) {
            return Err(format!("{byte} at {at}, which no version held"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synced_version_and_later_changes_are_allowed() {
        let mut history = History::new(0, 'a');
        history.begin(2, 'b');
        history.complete();
        history.sync(5);
        history.begin(7, 'c');
        let found = |point| history.allowed(point).collect::<String>();
        assert_eq!([found(2), found(3), found(5), found(7), found(8)], ["a", "ab", "b", "b", "bc"]);
    }

    #[test]
    fn only_bytes_of_allowed_versions_may_be_mixed() {
        let versions: [&[u8]; 2] = [b"aaaa", b"bb"];
        assert_eq!(are_bytes_of(b"aba\0", 0, &versions), Ok(()));
        assert_eq!(are_bytes_of(b"ba", 1, &versions), Ok(()));
        assert!(are_bytes_of(b"b", 2, &versions).is_err());
        assert!(are_bytes_of(b"c", 0, &versions).is_err());
        assert_eq!(is_size_of(2, &versions), Ok(()));
        assert!(is_size_of(3, &versions).is_err());
        assert_eq!(is_size_of(3, &[b"bb", b"aaaa"]), Ok(()));
    }
}
