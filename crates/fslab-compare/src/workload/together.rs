//! `together`: runs several workloads at the same time on one target, each in its own directory.
//!
//! Phases with the same number begin together: the first of each workload, then the second, until
//! only one workload has phases left. Each phase is a sample with its own time and latencies. The
//! counters of processors and of the device cover all workloads and can't be separated, so they are
//! omitted.

use std::panic::resume_unwind;

use super::parameters::NamedWorkload;
use super::{DefaultValue, Parameter, Preparation, Spec, Workload};
use crate::error::{Error, Result};
use crate::runner::{Meeting, Part, Session, name_of_part};

const WORKLOADS: Parameter = Parameter {
    name: "workloads",
    help: "the workloads: a list of tables, each like a [[workload]] but without matrix and quick",
    default: DefaultValue::Workloads,
};

pub(super) const SPEC: Spec = Spec {
    name: "together",
    help: "run several workloads at the same time on one target, with a verdict for each workload",
    parameters: &[WORKLOADS],
    phases: &[],
    construct: |parameters, seed| {
        let member = |named: NamedWorkload| Member {
            workload: (named.spec.construct)(&named.parameters, seed),
            named,
        };
        Box::new(Together {
            members: parameters.workloads(&WORKLOADS).into_iter().map(member).collect(),
        })
    },
};

struct Together {
    members: Vec<Member>,
}

struct Member {
    named: NamedWorkload,
    workload: Box<dyn Workload>,
}

impl Workload for Together {
    fn check(&self) -> std::result::Result<(), String> {
        if self.members.len() < 2 {
            return Err("`workloads`: must list at least 2, such as [{ name = \"stream\" }, \
                 { name = \"random-io\" }]"
                .to_owned());
        }
        for (index, Member { named, workload }) in self.members.iter().enumerate() {
            if self.members[..index].iter().any(|other| other.named.label == named.label) {
                return Err(format!(
                    "`workloads`: {} appears twice; give one a `label`",
                    named.label
                ));
            }
            workload.check().map_err(|wrong| format!("`workloads`: {}: {wrong}", named.label))?;
        }
        Ok(())
    }

    fn phases(&self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for Member { named, workload } in &self.members {
            let phases = workload.phases().unwrap_or_else(|| named.spec.phase_names());
            names.extend(phases.iter().map(|phase| name_of_part(&named.label, phase)));
        }
        Some(names)
    }

    fn prepare(&mut self, preparation: &Preparation<'_>) -> Result<()> {
        for (number, Member { workload, .. }) in self.members.iter_mut().enumerate() {
            let directory = preparation.directory.join(format!("member-{number}"));
            std::fs::create_dir(&directory).map_err(Error::file(&directory))?;
            workload.prepare(&Preparation { directory: &directory, host: preparation.host })?;
        }
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        let directories: Vec<String> =
            (0..self.members.len()).map(|number| format!("together-{number}")).collect();
        for directory in &directories {
            session.tree()?.make_directory(directory)?;
        }
        let meeting = Meeting::of(self.members.len());
        let parts = session.parts(&directories)?;
        let run = |(member, part): (&Member, Part<'_>)| {
            part.run(&member.named.label, &*member.workload, &meeting)
        };
        let ended: Vec<_> = std::thread::scope(|scope| {
            let run = &run;
            let both = self.members.iter().zip(parts);
            let running: Vec<_> = both.map(|one| scope.spawn(move || run(one))).collect();
            running
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        for samples in ended {
            session.add_samples(samples?);
        }
        Ok(())
    }
}
