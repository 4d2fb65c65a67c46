//! Distributions of file sizes.

use std::borrow::Cow;

use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64;

use crate::error::{Error, Result};

/// A distribution of file sizes in bytes. Sizes above the maximum are drawn again.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// The logarithm is normally distributed.
    Lognormal {
        /// Mean of the logarithm.
        mu: f64,
        /// Sigma of the logarithm.
        sigma: f64,
        /// The maximum size.
        largest: u64,
    },
    /// Lognormal, except for a share of the files whose sizes are log-uniform from 1 MiB to the
    /// maximum size.
    LognormalTail {
        /// Mean of the logarithm.
        mu: f64,
        /// Sigma of the logarithm.
        sigma: f64,
        /// Share of the tail, from 0 to 1.
        tail: f64,
        /// The maximum size.
        largest: u64,
    },
    /// Ranges of sizes, each with its upper bound and its weight. Sizes are uniform from the
    /// previous bound to the upper bound.
    Table(Cow<'static, [(u64, f64)]>),
}

/// Minimum size in the tail, in bytes.
const TAIL_BYTES: u64 = 1 << 20;

/// Maximum number of draws of one size. If every draw is too large, the maximum size is used.
const DRAWS_MAX: u32 = 64;

impl Sizes {
    pub(crate) fn check(&self) -> Result<()> {
        let fits = match self {
            Self::Lognormal { mu, sigma, largest }
            | Self::LognormalTail { mu, sigma, largest, .. } => {
                mu.is_finite() && (0.0..=10.0).contains(sigma) && *largest > 0
            }
            Self::Table(table) => {
                let rises = table.windows(2).all(|pair| pair[0].0 < pair[1].0);
                let weights = table.iter().all(|(_, weight)| *weight >= 0.0 && weight.is_finite());
                rises && weights && table.iter().any(|(_, weight)| *weight > 0.0)
            }
        };
        if fits {
            return Ok(());
        }
        let what = "file sizes need a spread from 0 to 10, or a table of increasing sizes with \
                    weights that are not negative";
        Err(Error::parameter(what))
    }

    /// Returns the same distribution limited to `bytes`.
    #[must_use]
    pub(crate) fn at_most(self, bytes: u64) -> Self {
        match self {
            Self::Lognormal { mu, sigma, largest } => {
                Self::Lognormal { mu, sigma, largest: largest.min(bytes) }
            }
            Self::LognormalTail { mu, sigma, tail, largest } => {
                Self::LognormalTail { mu, sigma, tail, largest: largest.min(bytes) }
            }
            Self::Table(table) => {
                let kept = table.iter().filter(|(size, _)| *size <= bytes).copied();
                let kept: Vec<_> = kept.collect();
                if kept.is_empty() { Self::Table(table) } else { Self::Table(kept.into()) }
            }
        }
    }

    /// Draws a size.
    pub fn draw(&self, random: &mut Pcg64) -> u64 {
        match self {
            Self::Lognormal { mu, sigma, largest } => lognormal(random, *mu, *sigma, *largest),
            Self::LognormalTail { tail, largest, .. }
                if *largest > TAIL_BYTES && random.random_bool(tail.clamp(0.0, 1.0)) =>
            {
                log_uniform(random, TAIL_BYTES as f64, *largest as f64) as u64
            }
            Self::LognormalTail { mu, sigma, largest, .. } => {
                lognormal(random, *mu, *sigma, *largest)
            }
            Self::Table(table) => from_table(random, table),
        }
    }
}

/// Draws a lognormal number up to `largest`.
pub fn lognormal(random: &mut Pcg64, mu: f64, sigma: f64, largest: u64) -> u64 {
    let mut draws = (0..DRAWS_MAX).map(|_| any_lognormal(random, mu, sigma));
    draws.find(|size| *size <= largest as f64).map_or(largest, |size| size as u64)
}

/// Draws a lognormal number.
///
/// All mathematical functions in profiles come from `libm`. A workload must be identical on all
/// machines, but the system's mathematical library rounds some values differently on other
/// processors.
pub(super) fn any_lognormal(random: &mut Pcg64, mu: f64, sigma: f64) -> f64 {
    let normal: f64 = StandardNormal.sample(random);
    libm::exp(mu + sigma * normal)
}

/// Draws a number whose logarithm is uniform.
pub(super) fn log_uniform(random: &mut Pcg64, least: f64, most: f64) -> f64 {
    least * libm::pow(most / least, random.random::<f64>())
}

fn from_table(random: &mut Pcg64, table: &[(u64, f64)]) -> u64 {
    let total: f64 = table.iter().map(|(_, weight)| weight).sum();
    let mut left = random.random::<f64>() * total;
    let mut below = 0;
    for (size, weight) in table {
        if left < *weight {
            return below + ((*size - below) as f64 * left / weight) as u64;
        }
        left -= weight;
        below = *size;
    }
    below
}
