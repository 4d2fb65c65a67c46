//! `null`: the layer that does nothing, to measure what a layer costs.
//!
//! With `passthrough=off` every read and write comes through the daemon, as in the copying Wrapfs
//! of Zadok et al. (2001); that is the honest base line for layers that change data.

use std::sync::Arc;

use fslab_vfs::{Entry, FileSystem, Ino, Name, OpenMode, Opened, Request, Result};

use crate::layer_spec::{LayerKind, LayerSpec};
use crate::options::{OptionSpec, Options, ValueKind};
use crate::stack_context::Surroundings;

pub(crate) const SPEC: LayerSpec = LayerSpec {
    name: "null",
    help: "does nothing; measures what a layer costs",
    kind: LayerKind::Observer,
    caution: None,
    options: &[OptionSpec {
        name: "passthrough",
        help: "let the kernel read and write the lower file without asking",
        default: "on",
        value: ValueKind::Switch,
    }],
    build,
};

fn build(
    inner: Arc<dyn FileSystem>,
    options: &Options,
    _: &Surroundings,
) -> crate::Result<Arc<dyn FileSystem>> {
    Ok(Arc::new(Null { inner, passthrough: options.is_on("passthrough") }))
}

struct Null {
    inner: Arc<dyn FileSystem>,
    passthrough: bool,
}

impl Null {
    fn opened(&self, mut opened: Opened) -> Opened {
        if !self.passthrough {
            opened.backing = None;
        }
        opened
    }
}

impl FileSystem for Null {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        Ok(self.opened(self.inner.open(request, ino, mode)?))
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let (entry, opened) = self.inner.create(request, parent, name, mode, flags)?;
        Ok((entry, self.opened(opened)))
    }

    fn tmpfile(
        &self,
        request: &Request,
        parent: Ino,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let (entry, opened) = self.inner.tmpfile(request, parent, mode, flags)?;
        Ok((entry, self.opened(opened)))
    }
}
