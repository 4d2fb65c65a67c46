//! Lists of changes since the last commit, which mounts with `-o keep` record
//! ([`crate::kept_changes`]).

/// The changes of one kind since the last commit. Empty if changes are not recorded.
#[derive(Debug)]
pub(crate) struct Recent<T>(Option<Vec<T>>);

// A derived implementation would require that `T` has a default value.
impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Recent<T> {
    /// Adds a change, unless it repeats the latest one.
    pub fn add(&mut self, change: T)
    where
        T: PartialEq,
    {
        if let Some(changes) = &mut self.0
            && changes.last() != Some(&change)
        {
            changes.push(change);
        }
    }

    /// Records all changes from now on.
    pub fn begin(&mut self) {
        self.0 = Some(Vec::new());
    }

    pub fn get(&self) -> &[T] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Returns the changes and empties the list.
    pub fn take(&mut self) -> Vec<T> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
