//! Tests of power cuts in the lower file system at every event. Afterwards, all guaranteed data
//! must be found.

mod conversion;
mod crash;
mod foreign;
mod leftovers;
mod mutants;
mod quarantine;
mod rewriting;
mod script;
mod staging;
