//! Power cuts below layers, at every event: what is found afterwards was promised.

mod conversion;
mod crash;
mod foreign;
mod leftovers;
mod mutants;
mod rewriting;
mod script;
