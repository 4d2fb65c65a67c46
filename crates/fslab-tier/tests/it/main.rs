//! The engine and its layer, over memory and over host directories.

mod archives;
mod conformance;
mod crashes;
mod offline;
mod rebuilding;
mod support;
