//! Workloads from the distribution files of Geriatrix (Kadekodi et al. 2018): ages, sizes and
//! depths of files.
//!
//! First, the volume is filled. Then each tick either creates a file, with the most
//! underrepresented size and depth, or removes one. A file is marked at its creation if it must be
//! kept until the end; these marks produce the requested ages. Other files are removed in random
//! order. Geriatrix itself removes the oldest file of the most overrepresented age instead. fslab
//! does not use this rule: no file would become older than an overrepresented age, so there would
//! be too few files of higher ages.
//!
//! The seed determines all random choices. Space is counted in blocks of 4 KiB, so that small files
//! do not fill the volume beyond its target. If the used space differs from its target by more than
//! 2 %, the ticks only create or only remove files. Unlike in Geriatrix, file contents are written
//! instead of being allocated with fallocate.

mod distribution;
mod files;
mod generator;

pub use distribution::{Bucket, Depth, Distributions};
pub use generator::{Ageing, GeriatrixGenerator};
