//! The external inputs of a plan: files and directories that its runs read, and devices.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use super::{DevicePlan, Plan, TargetKind};
use crate::workload::{Parameters, Spec};

/// Workload parameters whose value is a file or directory to read.
const READ: [&str; 6] = ["source", "list", "trace", "data_from", "job", "archive"];

/// The value of `list` that stands for all files and is not the name of a file.
const ALL_FILES: &str = "all";

impl Plan {
    /// Returns the files and directories that runs read: the sources of targets, the inputs of
    /// workloads, and the programs of targets. Files read by commands of the plan are not included.
    #[must_use]
    pub fn inputs(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let Ok(_unchanged) = self.clone().with_inputs(|path| {
            if !found.iter().any(|known| known == path) {
                found.push(path.to_owned());
            }
            Ok::<_, Infallible>(path.to_owned())
        });
        found
    }

    /// Returns the plan with each of its [`inputs`](Self::inputs) replaced by the path that `place`
    /// returns for it.
    ///
    /// # Errors
    /// Fails with the first error of `place`.
    pub fn with_inputs<E>(
        mut self,
        mut place: impl FnMut(&Path) -> Result<PathBuf, E>,
    ) -> Result<Self, E> {
        for target in &mut self.targets {
            let image = match &mut target.kind {
                TargetKind::Image { base, .. } => Some(base),
                TargetKind::Directory { .. } | TargetKind::InProcess { .. } => None,
            };
            let of_image = image
                .into_iter()
                .flat_map(|image| image.source.as_mut().into_iter().chain(image.recorded.as_mut()));
            for path in of_image.chain(target.program.as_mut()) {
                *path = place(path)?;
            }
        }
        for workload in &mut self.workloads {
            place_inputs(workload.spec, &mut workload.parameters, &mut place)?;
        }
        Ok(self)
    }

    /// Returns the devices of targets, each with the name of its target.
    pub fn devices_mut(&mut self) -> impl Iterator<Item = (&str, &mut DevicePlan)> {
        self.targets.iter_mut().filter_map(|target| match &mut target.kind {
            TargetKind::Image { base, .. } => Some((&*target.name, base.device.as_mut()?)),
            TargetKind::Directory { .. } | TargetKind::InProcess { .. } => None,
        })
    }
}

/// Replaces the input paths of a workload and of the workloads nested in it.
fn place_inputs<E>(
    spec: &Spec,
    parameters: &mut Parameters,
    place: &mut impl FnMut(&Path) -> Result<PathBuf, E>,
) -> Result<(), E> {
    for parameter in spec.parameters.iter().filter(|one| READ.contains(&one.name)) {
        let Some(text) = parameters.text(parameter) else { continue };
        if text != ALL_FILES {
            let path = place(Path::new(&text))?;
            parameters.set_text(parameter, path.display().to_string());
        }
    }
    for inner in parameters.workloads_mut() {
        place_inputs(inner.spec, &mut inner.parameters, place)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Form;
    use crate::workload::{DefaultValue, WORKLOADS};

    /// Text parameters whose value is not an input.
    const OTHERS: [&str; 4] = ["configure", "build", "program", "account"];

    /// A campaign freezes the inputs of a plan, so each new text parameter must be in one of the
    /// two lists.
    #[test]
    fn every_text_parameter_is_classified_as_input_or_not() {
        for workload in WORKLOADS {
            let texts = workload.parameters.iter();
            for one in texts.filter(|one| matches!(one.default, DefaultValue::Text(_))) {
                let known = READ.contains(&one.name) != OTHERS.contains(&one.name);
                assert!(known, "{}: add {} to READ or OTHERS", workload.name, one.name);
            }
        }
    }

    #[test]
    fn inputs_of_targets_and_workloads_are_found_and_replaced() {
        let text = "name = 'p'\n\
            [[target]]\nname = 'aged'\nfilesystem = 'ext4'\naged = 'a.img'\n\
            [[target]]\nname = 'read'\nfilesystem = 'squashfs'\nsource = 'tree'\n\
            [[target]]\nname = 'raw'\nfilesystem = 'ext4'\ndevice = 'scratch'\n\
            [[workload]]\nname = 'hot-files'\nlist = 'hot.txt'\n\
            [[workload]]\nname = 'hot-files'\nlabel = 'all'\nlist = 'all'\n\
            [[workload]]\nname = 'compile'\nsource = 'tree'\n\
            [[workload]]\nname = 'together'\n\
            workloads = [{ name = 'untar', archive = 'a.tar' }, { name = 'stream' }]\n";
        let plan = Plan::parse("p", text, Form::Full).unwrap();
        let expected = ["a.img", "tree", "hot.txt", "a.tar"].map(PathBuf::from);
        assert_eq!(plan.inputs(), expected);
        let placed = plan.with_inputs(|path| Ok::<_, ()>(Path::new("/in").join(path)));
        let mut placed = placed.unwrap();
        assert_eq!(placed.inputs(), expected.map(|path| Path::new("/in").join(path)));
        let devices: Vec<_> = placed.devices_mut().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(devices, ["raw"]);
        assert_eq!(Err("no"), placed.with_inputs(|_| Err("no")).map(drop));
    }
}
