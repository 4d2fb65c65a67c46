//! The engine and its layer, over memory and over host directories.

mod archives;
mod conformance;
mod offline;
mod rebuilding;
mod support;
