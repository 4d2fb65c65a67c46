//! Sets of operations, for layers that speak about them.

pub use fslab_vfs::Operation;

/// The operation of a name, if it is one that a caller waits for; nobody waits for `forget`.
#[must_use]
pub fn awaited(name: &str) -> Option<Operation> {
    name.parse().ok().filter(|operation| *operation != Operation::Forget)
}

/// A set of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations(u64);

impl Operations {
    /// Every operation that a caller waits for.
    #[must_use]
    pub fn all() -> Self {
        Operation::ALL.iter().copied().filter(|one| *one != Operation::Forget).collect()
    }

    /// Whether an operation is in the set.
    #[must_use]
    pub fn contains(self, operation: Operation) -> bool {
        self.0 & (1 << operation as u32) != 0
    }

    /// What is in either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members, in the order of the trait.
    pub fn iter(self) -> impl Iterator<Item = Operation> {
        Operation::ALL.iter().copied().filter(move |operation| self.contains(*operation))
    }
}

impl FromIterator<Operation> for Operations {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        Self(operations.into_iter().fold(0, |bits, operation| bits | 1 << operation as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_fit_a_set() {
        for operation in Operations::all().iter() {
            assert_eq!(awaited(operation.name()), Some(operation));
        }
        assert!(Operation::ALL.len() <= 64);
        let set: Operations = [Operation::Read, Operation::CopyFileRange].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Operation::Read, Operation::CopyFileRange]);
        assert_eq!((awaited("reed"), awaited("forget")), (None, None));
    }
}
