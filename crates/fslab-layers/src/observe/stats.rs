//! `stats`: counts operations, results and bytes, and measures latencies.
//!
//! The counters are split into shards, so that threads don't contend for cache lines; nothing is
//! locked. A shard takes 193 KiB, and is allocated at its first use. There are at most 16 shards.

mod counters;
mod histogram;

use std::sync::Arc;

use fslab_vfs::{Call, Clock, FileSystem, Intercepted, Opened, Outcome, Request, Watch};

use crate::layer_spec::{LayerKind, LayerSpec};
use crate::options::{OptionSpec, Options, ValueKind};
use crate::report::{Report, Reporter};
use crate::stability::Stability;
use crate::stack_context::StackContext;

use counters::Counters;

pub(crate) const SPEC: LayerSpec = LayerSpec {
    name: "stats",
    help: "counts operations, errors, bytes and latencies; `fslab stats` shows them",
    kind: LayerKind::Observer,
    stability: Stability::Beta,
    options: &[OptionSpec {
        name: "passthrough",
        help: "let the kernel read and write files itself, without counting",
        default: "off",
        value: ValueKind::Switch,
    }],
    build,
};

fn build(
    inner: Arc<dyn FileSystem>,
    options: &Options,
    context: &StackContext,
) -> crate::Result<Arc<dyn FileSystem>> {
    let counters = Arc::new(Counters::default());
    let passthrough = options.is_on("passthrough");
    context.publish(Arc::new(Told { counters: Arc::clone(&counters), passthrough }));
    let interceptor = Stats { counters, passthrough, clock: context.clock() };
    Ok(Arc::new(Intercepted { inner, interceptor }))
}

struct Stats {
    counters: Arc<Counters>,
    passthrough: bool,
    clock: Arc<dyn Clock>,
}

impl Watch for Stats {
    /// Start of the operation, in nanoseconds.
    type Begun = u64;

    fn begin(&self, call: &Call<'_>) -> u64 {
        self.counters.begin(call.operation());
        self.clock.now_ns()
    }

    fn end(&self, begun_ns: u64, _: Option<&Request>, call: &Call<'_>, outcome: &Outcome<'_>) {
        let duration_ns = self.clock.now_ns().saturating_sub(begun_ns);
        self.counters.end(call.operation(), duration_ns, outcome);
    }

    fn opened(&self, opened: &mut Opened) {
        if !self.passthrough {
            opened.backing = None;
        }
    }
}

struct Told {
    counters: Arc<Counters>,
    passthrough: bool,
}

impl Reporter for Told {
    fn report(&self) -> Report {
        let note = "reads and writes that the kernel does itself (passthrough) are not counted";
        let notes = self.passthrough.then(|| note.to_owned()).into_iter().collect();
        Report { operations: self.counters.report(), notes, ..Report::default() }
    }
}
