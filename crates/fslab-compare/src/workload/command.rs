//! `command`: runs any command in the root of each target. The workload fails if the command fails.

use std::path::{Path, PathBuf};

use super::output::OutputFigure;
use super::program::{Program, directory};
use super::{DefaultValue, Parameter, Parameters, Preparation, Spec, Workload};
use crate::error::{Error, Result};
use crate::runner::{Phase, Session, Timed};
use crate::tree::copy::copy_tree;
use fslab_report::sample::CacheState;

/// The parameter that contains the command.
pub(crate) const COMMAND: Parameter = Parameter::command(
    "command",
    "the command and its arguments; the variable FSLAB_TARGET contains the target's directory",
    &["ls", "-lRF"],
);

const SOURCE: Parameter = Parameter::text(
    "source",
    "directory whose contents are copied into the target first, untimed",
    "",
);

const CACHE: Parameter = Parameter::choice(
    "cache",
    "both: run it cold after a remount, then warm; cold: only cold; as is: once, without a \
    remount",
    &["both", "cold", "as is"],
);

const METRICS: Parameter = Parameter {
    name: "metrics",
    help: "metrics to read from the command's output, each by a JSON pointer or regular expression",
    default: DefaultValue::Metrics,
};

pub(crate) const SPEC: Spec = Spec {
    name: "command",
    help: "run a command in the root of each target, cold and warm",
    parameters: &[COMMAND, SOURCE, CACHE, METRICS],
    phases: &["run", "run cold", "run warm"],
    construct: |parameters, _seed| {
        Box::new(Command {
            command: parameters.command(&COMMAND),
            source: parameters.text(&SOURCE).map(PathBuf::from),
            cache: parameters.word(&CACHE),
            metrics: parameters.metrics(&METRICS),
        })
    },
};

/// Returns the parameters for running a command line.
pub(crate) fn parameters_for(words: Vec<String>) -> Parameters {
    let mut parameters = Parameters::default();
    parameters.set_command(&COMMAND, words);
    parameters
}

struct Command {
    command: Vec<String>,
    source: Option<PathBuf>,
    cache: &'static str,
    metrics: Vec<OutputFigure>,
}

impl Workload for Command {
    fn prepare(&mut self, _preparation: &Preparation<'_>) -> Result<()> {
        let Some(source) = &self.source else { return Ok(()) };
        source.read_dir().map(|_| ()).map_err(Error::file(source))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        let root = directory(session, "command")?;
        if let Some(source) = &self.source {
            copy_tree(source, &root)?;
            session.tree()?.sync_all()?;
        }
        if self.cache == "as is" {
            return session.measure(Phase::new("run"), |timed| self.execute(timed, &root));
        }
        session.make_cold()?;
        let cold = Phase::new("run cold").cache(CacheState::Cold);
        session.measure(cold, |timed| self.execute(timed, &root))?;
        if self.cache == "both" {
            // Files that the first run has written are not removed, because they belong to the warm
            // state.
            session.measure(Phase::new("run warm"), |timed| self.execute(timed, &root))?;
        }
        Ok(())
    }
}

impl Command {
    fn execute(&self, timed: &mut Timed<'_>, root: &Path) -> Result<()> {
        let program = Program::new(&self.command, root).variable("FSLAB_TARGET", root);
        if self.metrics.is_empty() {
            program.run(timed.interrupt())?;
        } else {
            let printed = program.output_of(timed.interrupt())?;
            for metric in &self.metrics {
                timed.add_metric(metric.find(&printed)?);
            }
        }
        timed.count(1, 0);
        timed.flush()
    }
}
