//! Power cuts below layers, at every event: what is found afterwards was promised.

mod conversion;
mod crash;
mod leftovers;
mod mutants;
mod script;
