//! The leaves, under the conformance suite and the model test.

mod conformance;
