//! `trace`: records every operation with its arguments, result and duration, as Parquet.
//!
//! A thread that finds the queue full waits for the writing thread, so records are lost only if the
//! trace can't be written. All reads and writes pass through the daemon. Operations that the kernel
//! answers from its caches never reach a layer.

mod arguments;
mod programs;

use std::sync::Arc;

use fslab_trace::{
    Anonymiser, DataMode, Metadata, Recorder, RecorderOptions, TraceWriter, VERSION, WhenFull,
};
use fslab_vfs::{
    Call, Clock, Errno, FileSystem, Intercepted, Opened, Outcome, Request, Result, Watch,
};

use self::programs::Programs;
use super::threads::own_number;
use crate::error::Error;
use crate::layer_spec::{LayerKind, LayerSpec};
use crate::options::{OptionSpec, Options, ValueKind};
use crate::report::{Measure, Report, Reporter};
use crate::stability::Stability;
use crate::stack_context::StackContext;

pub(crate) const SPEC: LayerSpec = LayerSpec {
    name: "trace",
    help: "records every operation as Parquet; `fslab trace` reads and replays it",
    kind: LayerKind::Observer,
    stability: Stability::Experimental,
    options: &[
        OptionSpec {
            name: "to",
            help: "new directory for the trace, outside the mount and the lower directory",
            default: "",
            value: ValueKind::Place,
        },
        OptionSpec {
            name: "data",
            help: "what to record of written data: none, a checksum, or the full data",
            default: "checksum",
            value: ValueKind::Choice(DataMode::NAMES),
        },
        OptionSpec {
            name: "anonymise",
            help: "replace all names by hashes; the key is the content of this file (at least 16 \
                   bytes)",
            default: "",
            value: ValueKind::Path,
        },
        OptionSpec {
            name: "when-full",
            help: "action if the trace can't be written: lose records and report the loss, or wait",
            default: "lose",
            value: ValueKind::Choice(&["lose", "wait"]),
        },
        OptionSpec {
            name: "save-every",
            help: "time between saves; a killed daemon loses the records since the last save",
            default: "1s",
            value: ValueKind::Duration,
        },
    ],
    build,
};

fn build(
    inner: Arc<dyn FileSystem>,
    options: &Options,
    context: &StackContext,
) -> crate::Result<Arc<dyn FileSystem>> {
    let data = options.choice("data").parse().unwrap_or(DataMode::Checksum);
    let anonymiser = options.path("anonymise").map(Anonymiser::from_key_file).transpose()?;
    let anonymised = anonymiser.is_some();
    if data == DataMode::Full && anonymised {
        let what = "has data=full and anonymise, but the recorded contents may include names; omit \
                    one of them";
        return Err(Error::Unfit { layer: SPEC.name, what: what.to_owned() });
    }
    let metadata =
        Metadata { version: VERSION, segment: 1, data, anonymised, lost: 0, closed: false };
    let writer = TraceWriter::create(options.place("to")?, metadata)?;
    let when_full =
        if options.choice("when-full") == "wait" { WhenFull::Wait } else { WhenFull::Lose };
    let save_every = options.duration("save-every");
    let settings = RecorderOptions { save_every, when_full, anonymiser };
    let clock = context.clock();
    let recorder = Arc::new(Recorder::start(writer, settings, Arc::clone(&clock))?);
    context.publish(Arc::new(Told(Arc::clone(&recorder))));
    let start_ns = clock.now_ns();
    let programs = Programs::of_this_machine();
    let interceptor = Trace { recorder, clock, data, start_ns, programs };
    Ok(Arc::new(Intercepted { inner, interceptor }))
}

struct Trace {
    recorder: Arc<Recorder>,
    clock: Arc<dyn Clock>,
    data: DataMode,
    /// Start of the trace.
    start_ns: u64,
    programs: Programs,
}

impl Watch for Trace {
    /// Start of the operation, in nanoseconds of the clock.
    type Begun = u64;

    fn begin(&self, _: &Call<'_>) -> u64 {
        self.clock.now_ns()
    }

    fn end(
        &self,
        begun_ns: u64,
        request: Option<&Request>,
        call: &Call<'_>,
        outcome: &Outcome<'_>,
    ) {
        let ended_ns = self.clock.now_ns();
        let mut record = arguments::record(request, call, outcome, self.data);
        record.start_ns = begun_ns.saturating_sub(self.start_ns);
        record.duration_ns = ended_ns.saturating_sub(begun_ns);
        record.thread = own_number();
        // The caller still waits for the reply, so its name can still be read.
        record.program = request.and_then(|request| self.programs.name_of(request.pid, ended_ns));
        self.recorder.record(record);
    }

    fn opened(&self, opened: &mut Opened) {
        opened.backing = None;
    }

    fn finish(&self) -> Result<()> {
        self.recorder.finish().map_err(|error| {
            tracing::error!(%error, "can't close the trace");
            Errno::IO.into()
        })
    }
}

struct Told(Arc<Recorder>);

impl Reporter for Told {
    fn report(&self) -> Report {
        let state = self.0.state();
        let measures = vec![
            Measure::counter("records", "operations recorded", state.taken),
            Measure::counter(
                "records_saved",
                "records that remain if the daemon is killed",
                state.saved,
            ),
            Measure::counter("records_lost", "records that could not be written", state.lost),
            Measure::counter("segments", "files of the trace begun", state.segments),
            Measure::counter("written_bytes", "bytes of the trace on disk", state.bytes),
            Measure::counter(
                "waits",
                "operations that waited because the queue of records was full",
                state.waits,
            ),
        ];
        Report { measures, ..Report::default() }
    }
}
