//! `null`: a layer without any effect, to measure the cost of a layer.
//!
//! With `passthrough=off` every read and write passes through the daemon, as in the copying Wrapfs
//! of Zadok et al. (2001). That is the fair baseline for layers that change data.

use std::sync::Arc;

use fslab_vfs::{Call, FileSystem, Intercepted, Interceptor, Opened, Reply, Request, Result};

use crate::layer_spec::{LayerKind, LayerSpec};
use crate::options::{OptionSpec, Options, ValueKind};
use crate::stability::Stability;
use crate::stack_context::StackContext;

pub(crate) const SPEC: LayerSpec = LayerSpec {
    name: "null",
    help: "does nothing; for measuring the cost of a layer",
    kind: LayerKind::Observer,
    stability: Stability::Beta,
    options: &[OptionSpec {
        name: "passthrough",
        help: "let the kernel read and write the lower file itself",
        default: "on",
        value: ValueKind::Switch,
    }],
    build,
};

fn build(
    inner: Arc<dyn FileSystem>,
    options: &Options,
    _: &StackContext,
) -> crate::Result<Arc<dyn FileSystem>> {
    Ok(Arc::new(Intercepted {
        inner,
        interceptor: Null { passthrough: options.is_on("passthrough") },
    }))
}

struct Null {
    passthrough: bool,
}

impl Interceptor for Null {
    fn around<T: Reply>(
        &self,
        _: &dyn FileSystem,
        _: Option<&Request>,
        call: Call<'_>,
        perform: impl FnOnce(&Call<'_>) -> Result<T>,
    ) -> Result<T> {
        perform(&call)
    }

    fn opened(&self, opened: &mut Opened) {
        if !self.passthrough {
            opened.backing = None;
        }
    }
}
