//! Workloads from the distribution files of Geriatrix (Kadekodi et al. 2018): ages, sizes and
//! depths of files.
//!
//! The volume is filled first. Then each tick makes a file, in the size and depth that are most
//! underrepresented, or removes one. A file's creation decides whether it stays to the end, so that
//! the final ages are as requested; other files are removed in random order. Geriatrix removes the
//! oldest file of the most overrepresented age instead. That was tried: then no file outlives an
//! overrepresented age, and greater ages starve.
//!
//! The seed decides everything random. Space is counted in blocks of 4 KiB, so that small files do
//! not overfill the volume. If the volume is 2 % above or below its target, the coin is biased.
//! Contents are written, not reserved.

mod distribution;
mod files;
mod generator;

pub use distribution::{Bucket, Depth, Distributions};
pub use generator::{Ageing, GeriatrixGenerator};
