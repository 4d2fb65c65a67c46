//! SCA layers under power cuts and damage.

mod crash;
mod mutants;
mod script;
