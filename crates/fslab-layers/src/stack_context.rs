//! The services that the builder of a stack provides to layers: a clock, random numbers, and a way
//! to publish reports. Layers must not obtain these themselves.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_vfs::{Clock, MonotonicClock};
use parking_lot::Mutex;

use crate::leaf::LeafOptions;
use crate::report::{Report, Reporter};

/// The services that the builder of a stack provides to layers.
#[derive(Clone)]
pub struct StackContext {
    clock: Arc<dyn Clock>,
    draws: Arc<dyn RandomSource>,
    leaf: LeafOptions,
    published: Arc<Mutex<Vec<Published>>>,
    services: Arc<Mutex<Vec<Arc<dyn Service>>>>,
    /// The layer being built, and its position from the top, counted from 1.
    layer: (usize, String),
    /// `Some` if a conversion uses the layer; the inner value is the conversion's key for file ids.
    conversion: Option<Option<u64>>,
}

/// A source of random numbers.
pub trait RandomSource: Send + Sync {
    /// The next number.
    fn draw(&self) -> u64;
}

/// A service that a layer offers while it is mounted.
pub trait Service: Send + Sync {
    /// The name by which it is requested.
    fn name(&self) -> &'static str;

    /// Answers a question by passing lines to `tell`; this may take a long time. Once the client
    /// has disconnected, `tell` returns `false` and `is_gone` becomes true. A service that has no
    /// line to pass checks `is_gone`.
    fn serve(
        &self,
        question: &str,
        is_gone: &Arc<std::sync::atomic::AtomicBool>,
        tell: &mut dyn FnMut(&str) -> bool,
    );
}

/// A source that returns the same numbers in each run, for tests. Layers get unpredictable numbers
/// only if the builder of the stack provides a source of them.
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
    /// Creates a context with a clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let draws = Arc::new(CountingNumbers::default());
        let (published, services) = (Arc::default(), Arc::default());
        let (leaf, layer) = (LeafOptions::default(), (0, String::new()));
        Self { clock, draws, leaf, published, services, layer, conversion: None }
    }

    /// Sets the source of random numbers; the default is [`CountingNumbers`].
    #[must_use]
    pub fn with_random_source(self, draws: Arc<dyn RandomSource>) -> Self {
        Self { draws, ..self }
    }

    /// The source of random numbers.
    #[must_use]
    pub fn draws(&self) -> Arc<dyn RandomSource> {
        Arc::clone(&self.draws)
    }

    /// Sets the options for the leaf of the stack.
    #[must_use]
    pub fn with_leaf_options(self, leaf: LeafOptions) -> Self {
        Self { leaf, ..self }
    }

    /// The options for the leaf of the stack.
    #[must_use]
    pub fn leaf_options(&self) -> &LeafOptions {
        &self.leaf
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Publishes a reporter; a layer calls this at most once, while it is built.
    pub fn publish(&self, reporter: Arc<dyn Reporter>) {
        let (position, layer) = self.layer.clone();
        self.published.lock().push(Published { position, layer, reporter });
    }

    /// Offers a service; a layer calls this at most once, while it is built.
    pub fn offer(&self, service: Arc<dyn Service>) {
        self.services.lock().push(service);
    }

    /// The services offered by the layers.
    #[must_use]
    pub fn services(&self) -> Vec<Arc<dyn Service>> {
        self.services.lock().clone()
    }

    /// Whether any layer has published a reporter.
    #[must_use]
    pub fn has_reporters(&self) -> bool {
        !self.published.lock().is_empty()
    }

    /// The current reports of the layers, top first.
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

    /// The context for a layer that a conversion uses; `key` is the conversion's key for file ids.
    #[must_use]
    pub fn of_conversion(&self, key: Option<u64>) -> Self {
        Self { conversion: Some(key), ..self.clone() }
    }

    /// Returns `Some` if a conversion uses the layer; the inner value is its key for file ids.
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
