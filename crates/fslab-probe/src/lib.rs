//! What a file system is, found out from outside: right, or "not applicable", never wrong.
//!
//! The methods count instead of timing: blocks that a file takes (`st_blocks`), what is a hole,
//! which pages are resident, what a device was asked to do. Counts have no noise; one that
//! doesn't fit what the method expects makes it answer "not applicable" and say why. Where two
//! methods can find the same thing they must agree.
//!
//! Timing, the original method, is beside them where it is asked for ([`timing`]): it confirms, or
//! refuses to answer.
//!
//! The questions are those of Hu and Bursum ("Measurement and Impact of Key File System
//! Attributes": block size, prefetching, cache, direct pointers) and what has become interesting
//! since. Each attribute is one file with a `SPEC` and one line in [`ATTRIBUTES`].
//!
//! The types to know first: [`Attribute`], [`Ground`], [`Answer`].
//!
//! ```
//! use fslab_probe::{ATTRIBUTES, Ground, Options, find};
//!
//! let directory = tempfile::tempdir()?;
//! let ground = Ground::prepare(directory.path(), Options::default())?;
//! let attribute = ATTRIBUTES.iter().find(|one| one.name == "sparse-granularity").unwrap();
//! println!("{:?}", find(attribute, &ground, None).finding);
//! ground.clear()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attribute;
mod finding;
mod ground;
mod growth;
pub mod matrix;
pub mod original;
mod plot;
mod search;
mod steps;
pub mod timing;
pub mod truth;

pub use attribute::{ATTRIBUTES, Attribute};
pub use finding::{Confidence, Finding, Method, Point, Value};
pub use ground::{Ground, Options};
pub use growth::{Growth, growth};
pub use plot::plot;

/// An attribute and what was found.
#[derive(Debug)]
pub struct Answer {
    /// Which attribute.
    pub attribute: &'static Attribute,
    /// What was found, and how.
    pub finding: Finding,
    /// What timing found, where it was asked.
    pub timing: Option<Method>,
}

/// How what was timed compares with what was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// They say the same.
    Agree,
    /// They don't.
    Differ,
    /// One of them has no answer.
    Unknown,
}

impl Answer {
    /// How timing compares with counting; `None` where nothing was timed.
    #[must_use]
    pub fn comparison(&self) -> Option<Comparison> {
        let timed = self.timing.as_ref()?;
        Some(match (self.finding.value(), &timed.outcome) {
            (Some(counted), Ok(timed)) if timing::agree(counted, timed) => Comparison::Agree,
            (Some(_), Ok(_)) => Comparison::Differ,
            _ => Comparison::Unknown,
        })
    }
}

/// Finds one attribute on a ground by counting and, where that is asked for and a question of time,
/// by timing. What goes wrong on the way is told in the finding.
#[must_use]
pub fn find(
    attribute: &'static Attribute,
    ground: &Ground,
    timing: Option<&timing::Timing<'_>>,
) -> Answer {
    let timing = timing.and_then(|timing| timing::time(attribute.name, ground, timing));
    let finding = (attribute.find)(ground).unwrap_or_else(|error| Finding {
        answer: Err(format!("could not be tried: {error}")),
        methods: Vec::new(),
    });
    Answer { attribute, finding, timing }
}
