//! What scripts promise: the versions of something, and which of them were durable when.
//!
//! Moments are positions of a [`super::CrashFs`]: how many events had happened below.

/// The versions of something through a script: of a file's bytes, of its time, of all names.
#[derive(Debug, Clone)]
pub struct History<T> {
    /// Each with the position at which the change to it began.
    versions: Vec<(usize, T)>,
    /// Syncs that returned: at which position, and of which version.
    synced: Vec<(usize, usize)>,
    /// The last version whose change returned with success.
    completed: usize,
}

impl<T> History<T> {
    /// Something that begins so.
    #[must_use]
    pub fn new(position: usize, first: T) -> Self {
        Self { versions: vec![(position, first)], synced: Vec::new(), completed: 0 }
    }

    /// A change to another version begins.
    pub fn begin(&mut self, position: usize, version: T) {
        self.versions.push((position, version));
    }

    /// What the version that was begun last has turned out to be.
    pub fn amend(&mut self, version: T) {
        if let Some((_, last)) = self.versions.last_mut() {
            *last = version;
        }
    }

    /// The change that began last returned with success.
    pub fn complete(&mut self) {
        self.completed = self.versions.len() - 1;
    }

    /// A sync returned: the last version that was completed is durable from here on.
    pub fn sync(&mut self, position: usize) {
        self.synced.push((position, self.completed));
    }

    /// Without a crash, everything that returned with success is as good as synced.
    pub fn confirm(&mut self) {
        self.sync(0);
    }

    /// The version that was begun last.
    #[must_use]
    pub fn last(&self) -> &T {
        &self.versions[self.versions.len() - 1].1
    }

    /// What may be found after a crash: from the last version that was synced to the last that had
    /// begun.
    pub fn allowed(&self, point: usize) -> impl Iterator<Item = &T> {
        let synced = self.synced.iter().rev().find(|(when, _)| *when <= point);
        let first = synced.map_or(0, |(_, version)| *version);
        let begun = self.versions.iter().enumerate().skip(first);
        begun
            .filter(move |(index, (begun, _))| *index == first || *begun < point)
            .map(|(_, (_, version))| version)
    }
}

/// Whether a file may have this size: that of one of the versions. What makes a file longer may
/// have been done in part.
///
/// # Errors
/// Why not.
pub fn is_size_of(size: usize, versions: &[&[u8]]) -> Result<(), String> {
    let sizes: Vec<_> = versions.iter().map(|version| version.len()).collect();
    let in_part = |pair: &[usize]| (pair[0]..pair[1]).contains(&size);
    if sizes.contains(&size) || sizes.windows(2).any(in_part) {
        return Ok(());
    }
    Err(format!("a size of {size}, not one of {sizes:?}"))
}

/// Whether each byte found at a place is one that some version held there; behind its end a version
/// holds zeros.
///
/// # Errors
/// The first that none held.
pub fn are_bytes_of(bytes: &[u8], start: usize, versions: &[&[u8]]) -> Result<(), String> {
    const PIECE: usize = 512;
    for (number, piece) in bytes.chunks(PIECE).enumerate() {
        let at = start + number * PIECE;
        // Most pieces are whole ones of a version, and files are long.
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
    fn what_was_synced_and_what_began_since_is_allowed() {
        let mut history = History::new(0, 'a');
        history.begin(2, 'b');
        history.complete();
        history.sync(5);
        history.begin(7, 'c');
        let found = |point| history.allowed(point).collect::<String>();
        assert_eq!([found(2), found(3), found(5), found(7), found(8)], ["a", "ab", "b", "b", "bc"]);
    }

    #[test]
    fn bytes_of_versions_may_be_mixed_and_others_may_not() {
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
