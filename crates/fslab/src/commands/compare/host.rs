//! Mounts layers for `fslab-compare` by running this binary.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_age::image::{AgedImage, is_aged_image};
use fslab_age::workload::brief_source;
use fslab_compare::{Host, HostError, Unpacked};
use fslab_layers::{Foreign, LayerChoice, Stack};
use fslab_vfs::FileSystem;

use crate::{layers, leaves};

/// The path of this binary, which is run again for every mount.
pub struct Binary {
    path: PathBuf,
}

impl Binary {
    /// Finds the path of this binary.
    pub fn new() -> Result<Self> {
        Ok(Self { path: std::env::current_exe().context("can't find this program")? })
    }
}

impl Host for Binary {
    fn mount_command(&self, layers: &[String], lower: &Path, mountpoint: &Path) -> Vec<OsString> {
        let mut command: Vec<OsString> = vec![self.path.clone().into(), "mount".into()];
        for layer in layers {
            command.extend(["-l".into(), layer.into()]);
        }
        command.extend([lower.into(), mountpoint.into()]);
        command
    }

    fn check_layers(&self, layers: &[String]) -> Result<(), HostError> {
        for layer in layers {
            LayerChoice::parse(layer, layers::FOREIGN)?;
        }
        Ok(())
    }

    fn check_stack(&self, specification: &str) -> Result<(), HostError> {
        parse(specification)?;
        Ok(())
    }

    fn worker_command(&self) -> Option<Vec<OsString>> {
        Some(vec![self.path.clone().into(), "worker".into()])
    }

    fn program(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }

    fn unpack(&self, recorded: &Path, to: &Path) -> Result<Option<Unpacked>, HostError> {
        if !is_aged_image(recorded)? {
            return Ok(None);
        }
        let image = AgedImage::open(recorded)?;
        let identity = image.identity().clone();
        image.unpack(to, &File::create(to)?)?;
        let told =
            |key: &str| identity.facts.get(key).map(|value| format!(", {}", brief_source(value)));
        let details: String = ["source", "policy", "data"].into_iter().filter_map(told).collect();
        let description = format!("aged by the workload {}{details}", &identity.workload);
        let policy = identity.facts.get("policy").cloned();
        Ok(Some(Unpacked { workload: identity.workload, policy, description }))
    }

    fn file_system(&self, specification: &str) -> Result<Box<dyn FileSystem>, HostError> {
        Ok(Box::new(parse(specification)?.build_in(&crate::stack_context::of_program())?))
    }
}

fn parse(specification: &str) -> Result<Stack, HostError> {
    let foreign = Foreign { leaves: leaves::FOREIGN, layers: layers::FOREIGN };
    Ok(Stack::parse(specification, foreign)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use fslab_compare::Host;
    use fslab_compare::Plan;
    use fslab_compare::plan::{Form, Over, TargetKind};

    use super::Binary;

    /// Returns the layers of a target: from its list, or from a mount command that runs fslab.
    fn layers(kind: &TargetKind) -> Vec<String> {
        match kind {
            TargetKind::Image { over: Over::Layers(layers), .. } => layers.clone(),
            TargetKind::Image { over: Over::Command(foreign), .. } => {
                let words = foreign.mount.windows(2);
                words.filter(|pair| pair[0] == "-l").map(|pair| pair[1].clone()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Without this test, a wrong option in a plan would only show up hours later, as a target that
    /// failed.
    #[test]
    fn the_stacks_of_all_plans_can_be_built() {
        let directory = Path::new("../../plans");
        let host = Binary::new().unwrap();
        let mut built = 0;
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            for form in [Form::Full, Form::Quick] {
                let plan = Plan::parse(&path.display().to_string(), &text, form).unwrap();
                for target in &plan.targets {
                    let stack = [layers(&target.kind), vec!["mem:".to_owned()]].concat();
                    let answer = host.file_system(&stack.join(" / "));
                    assert!(answer.is_ok(), "{}, {}: {stack:?}", path.display(), target.name);
                    built += usize::from(stack.len() > 1);
                }
            }
        }
        assert!(built > 100, "{built}");
    }
}
