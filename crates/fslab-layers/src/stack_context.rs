//! What layers get from whoever builds a stack, because they must not fetch it themselves: a clock,
//! random numbers, and somewhere to publish what they have to tell.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_vfs::{Clock, MonotonicClock};
use parking_lot::Mutex;

use crate::leaf::LeafOptions;
use crate::report::{Report, Reporter};

/// What layers get from whoever builds a stack.
#[derive(Clone)]
pub struct StackContext {
    clock: Arc<dyn Clock>,
    draws: Arc<dyn RandomSource>,
    leaf: LeafOptions,
    published: Arc<Mutex<Vec<Published>>>,
    services: Arc<Mutex<Vec<Arc<dyn Service>>>>,
    /// The layer that is being built, and its place from the top, from 1.
    layer: (usize, String),
    /// That a conversion uses the layer, and the key of the file ids that it gives.
    conversion: Option<Option<u64>>,
}

/// Random numbers.
pub trait RandomSource: Send + Sync {
    /// The next number.
    fn draw(&self) -> u64;
}

/// A layer that can be asked to do something while it is mounted.
pub trait Service: Send + Sync {
    /// The word under which it is asked for.
    fn name(&self) -> &'static str;

    /// Answers a question, a line at a time, in a thread that it may keep for long. `tell` answers
    /// `false` when nobody listens any more; `is_gone` tells that in between.
    fn serve(
        &self,
        question: &str,
        is_gone: &Arc<std::sync::atomic::AtomicBool>,
        tell: &mut dyn FnMut(&str) -> bool,
    );
}

/// The same numbers each time, for tests: layers get numbers that can't be guessed only from
/// whoever has a source of them.
#[derive(Debug, Default)]
pub struct CountingNumbers(AtomicU64);

impl RandomSource for CountingNumbers {
    fn draw(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

struct Published {
    position: usize,
    layer: String,
    reporter: Arc<dyn Reporter>,
}

impl StackContext {
    /// With a clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let draws = Arc::new(CountingNumbers::default());
        let (published, services) = (Arc::default(), Arc::default());
        let (leaf, layer) = (LeafOptions::default(), (0, String::new()));
        Self { clock, draws, leaf, published, services, layer, conversion: None }
    }

    /// With a source of random numbers; without it they are the same each time.
    #[must_use]
    pub fn with_random_source(self, draws: Arc<dyn RandomSource>) -> Self {
        Self { draws, ..self }
    }

    /// Random numbers.
    #[must_use]
    pub fn draws(&self) -> Arc<dyn RandomSource> {
        Arc::clone(&self.draws)
    }

    /// With options for the leaf of the stack.
    #[must_use]
    pub fn with_leaf_options(self, leaf: LeafOptions) -> Self {
        Self { leaf, ..self }
    }

    /// How the leaf of the stack is used.
    #[must_use]
    pub fn leaf_options(&self) -> &LeafOptions {
        &self.leaf
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Called by a layer that has something to tell, once, while it is built.
    pub fn publish(&self, reporter: Arc<dyn Reporter>) {
        let (position, layer) = self.layer.clone();
        self.published.lock().push(Published { position, layer, reporter });
    }

    /// Called by a layer that can be asked to do something, once, while it is built.
    pub fn offer(&self, service: Arc<dyn Service>) {
        self.services.lock().push(service);
    }

    /// What layers can be asked for.
    #[must_use]
    pub fn services(&self) -> Vec<Arc<dyn Service>> {
        self.services.lock().clone()
    }

    /// Whether any layer has something to tell.
    #[must_use]
    pub fn has_reporters(&self) -> bool {
        !self.published.lock().is_empty()
    }

    /// What the layers have to tell now, top first.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        let report = |published: &Published| Report {
            position: published.position,
            layer: published.layer.clone(),
            ..published.reporter.report()
        };
        let mut reports: Vec<_> = self.published.lock().iter().map(report).collect();
        reports.sort_by_key(|report| report.position);
        reports
    }

    /// For the layer of a conversion, with the key of the file ids that it gives, if any.
    #[must_use]
    pub fn of_conversion(&self, key: Option<u64>) -> Self {
        Self { conversion: Some(key), ..self.clone() }
    }

    /// Whether a conversion uses the layer, with the key of the file ids that it gives, if any.
    #[must_use]
    pub fn conversion(&self) -> Option<Option<u64>> {
        self.conversion
    }

    pub(crate) fn of_layer(&self, position: usize, layer: String) -> Self {
        Self { layer: (position, layer), ..self.clone() }
    }
}

impl Default for StackContext {
    fn default() -> Self {
        Self::new(Arc::new(MonotonicClock))
    }
}

impl fmt::Debug for StackContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StackContext").field("layer", &self.layer).finish_non_exhaustive()
    }
}
