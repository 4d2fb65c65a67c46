//! Objects in archives: archived versions of files, and archived trees.
//!
//! `writer` and `reader`: one object. `bundle`: several small objects in one container.
//! `archived_tree`: the names of a whole tree. `prefetch`: reads of several objects together.
//! `shape`: the reads that an object needs. The records are those of [`crate::stored`].

pub mod archived_tree;
pub mod bundle;
mod piece;
pub(crate) mod prefetch;
pub mod reader;
pub(crate) mod shape;
pub mod writer;
