//! The tree as a whole: its names, scans of all files, and its archived form.

pub(in crate::engine) mod archived_tree;
pub(in crate::engine) mod open_epoch;
pub(in crate::engine) mod renames;
pub(in crate::engine) mod scan;
pub(in crate::engine) mod unmounted_scan;
pub(in crate::engine) mod walk;
