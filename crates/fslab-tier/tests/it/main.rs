//! The engine and its layer, over memory and over host directories.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod archives;
mod behind;
mod beside;
mod bundles;
mod conformance;
mod crashes;
mod deep;
mod delays;
mod denied;
mod drill;
mod encryption;
mod expiring;
mod golden;
mod identity;
mod limits;
mod looking;
mod marks;
mod measure;
mod moved;
mod offline;
mod opening;
mod ordinary;
mod parts;
mod patching;
mod privileges;
mod rebuilding;
mod releasing;
mod renaming;
mod rounds;
mod sparse;
mod support;
mod sweeping;
mod undeleting;
mod unreadable;
mod vanishing;
