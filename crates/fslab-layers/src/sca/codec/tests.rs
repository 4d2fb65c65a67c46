//! Tests of every codec.
