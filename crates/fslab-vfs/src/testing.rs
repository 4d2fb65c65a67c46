//! Tests that any file system can be put through: named conformance cases and a comparison with
//! a model under random operations.
