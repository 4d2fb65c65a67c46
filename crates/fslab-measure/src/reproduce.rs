//! Published results beside measured ones.
//!
//! A *paper* is a file of claims: what was stated where, which figures it gave, and how this
//! project measures the same thing. Claims name cells of plans, which are run as any comparison
//! is; what they say is read from the reports of those comparisons. What can't be measured says
//! why. Nothing here runs, mounts or prints anything but the prober.

mod agreement;
mod claims;
mod findings;
mod look_up;
mod markdown;
mod page;
mod probing;
mod published;
mod quantity;

pub use agreement::Agreement;
pub use claims::{Basis, Claim, Kind, Paper, Place, Query, Setting, Statistic};
pub use findings::{Counts, Findings, Planned, Row};
pub use look_up::{Figure, Outcome, Ran, Runs};
pub use probing::{Probed, Probes, probe};
pub use published::{Published, UNITS, Unit};
pub use quantity::Quantity;
