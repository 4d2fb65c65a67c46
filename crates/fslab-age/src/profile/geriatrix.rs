//! Workloads from the distribution files of Geriatrix (Kadekodi et al. 2018): how old files are,
//! how large, and how deep they lie.
//!
//! The volume is filled; then each tick makes a file, where sizes and depths lack most, or removes
//! one. Which files stay to the end is decided when they are made, so that the ages at the end are
//! those asked for; the others go in an order of chance. (Geriatrix removes the oldest file of the
//! age that has most too many at the time. That was tried: no file then outlives an age of which
//! there are too many, and the ages beyond it starve.) The seed decides all; whole blocks of 4 KiB
//! count as space, so that small files do not overfill; the coin is loaded where the volume gets
//! 2 % above or below what it should hold; contents are written, not reserved.

mod distribution;
mod files;
mod generator;

pub use distribution::{Bucket, Depth, Distributions};
pub use generator::{Ageing, GeriatrixGenerator};
