//! Probes the properties of a file system from outside. Each answer is right or "not applicable".
//!
//! The methods do not time operations. They count allocated blocks (`st_blocks`), holes, resident
//! pages, and requests to the device. Counts have no noise. If a count does not fit a method's
//! expectations, the method returns "not applicable" with the reason. Two methods for the same
//! attribute must agree.
//!
//! Timing, the original method, is available on request ([`timing`]). It confirms a count, or gives
//! no answer.
//!
//! The attributes are those of Hu and Bursum ("Measurement and Impact of Key File System
//! Attributes": block size, prefetching, cache, direct pointers), and newer ones. Each attribute is
//! one file with a `SPEC` and one line in [`ATTRIBUTES`].
//!
//! Start with these types: [`Attribute`], [`Ground`], [`Answer`].
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

/// An attribute and its result.
#[derive(Debug)]
pub struct Answer {
    /// The attribute.
    pub attribute: &'static Attribute,
    /// The result of counting.
    pub finding: Finding,
    /// The result of timing, if requested.
    pub timing: Option<Method>,
}

/// The comparison of timing with counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The values agree.
    Agree,
    /// The values differ.
    Differ,
    /// At least one has no value.
    Unknown,
}

impl Answer {
    /// Compares timing with counting; `None` if nothing was timed.
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

/// Probes one attribute by counting and, if requested and possible, by timing. Errors are part of
/// the finding.
#[must_use]
pub fn find(
    attribute: &'static Attribute,
    ground: &Ground,
    timing: Option<&timing::Timing<'_>>,
) -> Answer {
    let timing = timing.and_then(|timing| timing::time(attribute.name, ground, timing));
    let finding = (attribute.find)(ground).unwrap_or_else(|error| Finding {
        answer: Err(format!("the probe failed: {error}")),
        methods: Vec::new(),
    });
    Answer { attribute, finding, timing }
}
