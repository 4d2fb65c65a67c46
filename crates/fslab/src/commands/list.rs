//! `fslab list`: everything that can be named on a command line, from the registries.

use anyhow::Result;
use fslab_compare::workload::{Parameter, Spec as Workload, WORKLOADS};
use fslab_layers::{LAYERS, LEAVES, LayerSpec, LeafSpec, OptionSpec, ValueKind};
use fslab_probe::{ATTRIBUTES, Attribute};
use fslab_report::RENDERERS;
use fslab_tier::archive::ARCHIVE_KINDS;
use serde_json::{Value, json};

use crate::layers;
use crate::leaves::FOREIGN;
use crate::output::plain_table;

/// Arguments of `fslab list`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Prints the lists.
    pub fn run(self) -> Result<()> {
        if self.json {
            say!("{:#}", as_json());
        } else {
            say!("{}", as_tables());
        }
        Ok(())
    }
}

/// The leaves of this house, and those joined to it.
fn all_leaves() -> impl Iterator<Item = &'static LeafSpec> {
    LEAVES.iter().chain(FOREIGN.iter().map(|leaf| &leaf.spec))
}

/// The layers of this house, and those joined to it.
fn all_layers() -> impl Iterator<Item = &'static LayerSpec> {
    LAYERS.iter().chain(layers::FOREIGN)
}

fn as_json() -> Value {
    let layer_as_json = |layer: &LayerSpec| {
        let option_as_json = |option: &OptionSpec| {
            json!({
                "name": option.name,
                "help": option.help,
                "default": option.default,
                "values": option.value.expected(),
                "place": option.value == ValueKind::Place,
            })
        };
        let options: Vec<_> = layer.options.iter().map(option_as_json).collect();
        let kind = layer.kind.name();
        json!({ "name": layer.name, "help": layer.help, "kind": kind, "options": options })
    };
    let workload_as_json = |workload: &&Workload| {
        let parameter_as_json = |parameter: &Parameter| {
            json!({
                "name": parameter.name,
                "help": parameter.help,
                "default": parameter.default.to_string(),
                "values": parameter.default.values(),
            })
        };
        let parameters: Vec<_> = workload.parameters.iter().map(parameter_as_json).collect();
        json!({ "name": workload.name, "help": workload.help, "parameters": parameters })
    };
    let wants =
        |one: &&Attribute| json!({ "name": one.name, "help": one.help, "wants": one.wants.name() });
    let named = |(name, help)| json!({ "name": name, "help": help });
    let kinds: Vec<_> = ARCHIVE_KINDS.iter().map(|one| named((one.name, one.help))).collect();
    json!({
        "layers": all_layers().map(layer_as_json).collect::<Vec<_>>(),
        "leaves": all_leaves().map(|one| named((one.name, one.help))).collect::<Vec<_>>(),
        "archive_kinds": kinds,
        "workloads": WORKLOADS.iter().map(workload_as_json).collect::<Vec<_>>(),
        "renderers": RENDERERS.iter().map(|one| named((one.name, one.help))).collect::<Vec<_>>(),
        "attributes": ATTRIBUTES.iter().map(wants).collect::<Vec<_>>(),
    })
}

fn as_tables() -> String {
    let mut layers = plain_table(["layer", "kind", "what it does"]);
    for layer in all_layers() {
        layers.add_row([layer.name, layer.kind.name(), layer.help]);
        for option in layer.options {
            let name = format!("  {}={}", option.name, option.default);
            let words = match option.value {
                ValueKind::Choice(words) => format!(" ({})", words.join(", ")),
                _ => String::new(),
            };
            layers.add_row([name, String::new(), format!("{}{words}", option.help)]);
        }
    }
    let mut leaves = plain_table(["leaf", "", "what it is"]);
    leaves.add_rows(all_leaves().map(|leaf| [leaf.name, "", leaf.help]));
    let mut kinds = plain_table(["archive kind", "", "what it is"]);
    kinds.add_rows(ARCHIVE_KINDS.iter().map(|kind| [kind.name, "", kind.help]));
    let mut workloads = plain_table(["workload", "", "what it does"]);
    for workload in WORKLOADS {
        workloads.add_row([workload.name, "", workload.help]);
        for parameter in workload.parameters {
            let name = format!("  {} = {}", parameter.name, parameter.default);
            workloads.add_row([name.as_str(), "", parameter.help]);
        }
    }
    let mut renderers = plain_table(["renderer", "", "what it makes"]);
    renderers.add_rows(RENDERERS.iter().map(|one| [one.name, "", one.help]));
    let mut attributes = plain_table(["attribute", "wants", "what fslab probe finds"]);
    attributes.add_rows(ATTRIBUTES.iter().map(|one| [one.name, one.wants.name(), one.help]));
    format!("{layers}\n\n{leaves}\n\n{kinds}\n\n{workloads}\n\n{renderers}\n\n{attributes}")
}
