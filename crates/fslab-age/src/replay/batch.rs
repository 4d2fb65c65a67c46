//! Batches of operations that may run in parallel; only operations on the same directory must keep
//! their order.

use crate::error::Result;
use crate::workload::{Operation, OperationKind, Population};

/// Maximum number of operations in a batch.
const OPERATIONS_MAX: usize = 4096;

/// Several operations that do not change directories, or one operation that does.
#[derive(Default)]
pub struct Batch {
    operations: Vec<Operation>,
}

/// An operation with the context that is needed to perform it.
pub struct Step {
    pub operation: Operation,
    /// The index of the operation in the workload, from 0.
    pub index: u64,
    /// The directory that contained the file before the operation.
    pub directory: u64,
    /// The name of an existing file before the operation, or the name of a new file.
    pub name: Vec<u8>,
    /// For `rename`: the new name.
    pub new_name: Vec<u8>,
}

impl Batch {
    /// Whether the batch must be performed before this operation is added.
    pub fn is_due_before(&self, operation: &Operation) -> bool {
        let Some(last) = self.operations.last() else { return false };
        self.operations.len() >= OPERATIONS_MAX
            || operation.kind.is_structural()
            || last.kind.is_structural()
    }

    pub fn add(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Empties the batch and returns its steps; `first` is the index of the first operation.
    ///
    /// # Errors
    /// Fails if an operation is inconsistent with earlier operations.
    pub fn take_steps(&mut self, population: &mut Population, first: u64) -> Result<Vec<Step>> {
        let numbered = self.operations.drain(..).zip(first..);
        numbered.map(|(operation, index)| step(operation, index, population)).collect()
    }
}

fn step(operation: Operation, index: u64, population: &mut Population) -> Result<Step> {
    let before = population.get(operation.file);
    let place = before.map(|member| (member.directory, member.name_of(operation.file)));
    population.apply(&operation)?;
    let (directory, name) = place.unwrap_or_else(|| (operation.directory, operation.name_of()));
    let new_name = match population.get(operation.file) {
        Some(member) if operation.kind == OperationKind::Rename => member.name_of(operation.file),
        _ => Vec::new(),
    };
    Ok(Step { operation, index, directory, name, new_name })
}
