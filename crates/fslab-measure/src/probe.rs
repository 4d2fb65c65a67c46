//! What a file system is, found out from outside: right, or "not applicable", never wrong.
//!
//! The methods count instead of timing: blocks that a file takes (`st_blocks`), what is a hole,
//! which pages are resident, what a device was asked to do. Counts have no noise; one that
//! doesn't fit what the method expects makes it answer "not applicable" and say why. Where two
//! methods can find the same thing they must agree.
//!
//! The questions are those of Hu and Bursum ("Measurement and Impact of Key File System
//! Attributes": block size, prefetching, cache, direct pointers) and what has become interesting
//! since. Each attribute is one file with a `SPEC` and one line in [`ATTRIBUTES`].

mod attribute;
mod finding;
mod ground;
pub mod matrix;
mod search;
pub mod truth;

pub use attribute::{ATTRIBUTES, Attribute};
pub use finding::{Confidence, Finding, Method, Point, Value};
pub use ground::{Ground, Options};

/// An attribute and what was found.
#[derive(Debug)]
pub struct Answer {
    /// Which attribute.
    pub attribute: &'static Attribute,
    /// What was found, and how.
    pub finding: Finding,
}

/// Finds one attribute on a ground. What goes wrong on the way is told in the finding.
#[must_use]
pub fn find(attribute: &'static Attribute, ground: &Ground) -> Answer {
    let finding = (attribute.find)(ground).unwrap_or_else(|error| Finding {
        answer: Err(format!("could not be tried: {error}")),
        methods: Vec::new(),
    });
    Answer { attribute, finding }
}
