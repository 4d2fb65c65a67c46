//! Compares published results with measured ones.
//!
//! A [`Paper`] is read from a file of claims. The file lists the statements and their places in the
//! paper, the published figures, and how this project measures the same quantities. A claim refers
//! to cells of a plan, or to the output of a command. The plan runs like any other comparison, and
//! the figures are read from its report. If something can't be measured, the claim states the
//! reason. Charts are drawn from the same figures. This crate does not run, mount or print
//! anything.
//!
//! The main types: [`Paper`], [`Claim`], [`Findings`].
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use fslab_reproduce::Paper;
//!
//! let text = "title = 'A paper'\nauthors = 'Its authors'\nabout = 'What it is about.'\n\
//!     [[claim]]\nid = 'same'\nplace = 'table 1'\nsays = 'it is the same'\nkind = 'measured'\n\
//!     missing = 'it needs another machine'\n";
//! let paper = Paper::parse("paper", "paper.toml", text, &BTreeMap::new())?;
//! assert_eq!(paper.claims.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod agreement;
mod answer;
mod claims;
mod drawn;
mod figure;
mod findings;
mod look_up;
mod markdown;
mod marks;
mod page;
mod published;
mod quantity;

pub use agreement::Agreement;
pub use answer::{Answers, Command, Reading, Way};
pub use claims::{
    Axis, Basis, Chart, Claim, EachOf, Extreme, Kind, Line, Paper, Place, Preparation, Query,
    Setting, Statistic,
};
pub use drawn::Drawn;
pub use figure::{At, AtUnit, Figure, Outcome};
pub use findings::{Counts, Findings, Planned, Row};
pub use look_up::{Ran, Runs};
pub use published::{Published, UNITS, Unit};
pub use quantity::Quantity;
