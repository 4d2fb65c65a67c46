//! Tests of power cuts in the lower file system at every event: all guaranteed data is found
//! afterwards.

mod conversion;
mod crash;
mod foreign;
mod leftovers;
mod mutants;
mod quarantine;
mod rewriting;
mod script;
mod staging;
