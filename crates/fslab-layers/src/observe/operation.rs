//! Sets of operations, for layers that select operations.

use std::collections::BTreeSet;

pub use fslab_vfs::Operation;

/// Returns the operation with this name. Returns `None` for `forget`, because no caller waits for
/// its result.
#[must_use]
pub fn awaited(name: &str) -> Option<Operation> {
    name.parse().ok().filter(|operation| *operation != Operation::Forget)
}

/// A set of operations, in the order of the trait.
pub type Operations = BTreeSet<Operation>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_names_parse_and_sets_keep_the_trait_order() {
        for operation in Operation::ALL.iter().filter(|one| **one != Operation::Forget) {
            assert_eq!(awaited(operation.name()), Some(*operation));
        }
        let set = Operations::from([Operation::CopyFileRange, Operation::Read]);
        assert_eq!(
            set.into_iter().collect::<Vec<_>>(),
            [Operation::Read, Operation::CopyFileRange]
        );
        assert_eq!((awaited("reed"), awaited("forget")), (None, None));
    }
}
