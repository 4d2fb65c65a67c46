//! `fslab list`: everything that can be named on a command line, from the registries.

use anyhow::Result;
use comfy_table::{ContentArrangement, Table, presets};
use fslab_compare::workload::{Spec as Workload, WORKLOADS};
use fslab_layers::{LAYERS, LEAVES, LayerSpec, LeafSpec, ValueKind};
use fslab_probe::{ATTRIBUTES, Attribute};
use fslab_report::RENDERERS;
use serde_json::{Value, json};

use crate::layers;
use crate::leaves::FOREIGN;

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
    let layers: Vec<_> = all_layers().map(layer_as_json).collect();
    let leaves: Vec<_> =
        all_leaves().map(|leaf| json!({ "name": leaf.name, "help": leaf.help })).collect();
    let workloads: Vec<_> = WORKLOADS.iter().map(|workload| workload_as_json(workload)).collect();
    let renderers: Vec<_> =
        RENDERERS.iter().map(|one| json!({ "name": one.name, "help": one.help })).collect();
    let attributes: Vec<_> = ATTRIBUTES.iter().map(|one| attribute_as_json(one)).collect();
    json!({
        "layers": layers,
        "leaves": leaves,
        "workloads": workloads,
        "renderers": renderers,
        "attributes": attributes,
    })
}

fn attribute_as_json(attribute: &Attribute) -> Value {
    let Attribute { name, help, wants, .. } = attribute;
    json!({ "name": name, "help": help, "wants": wants.name() })
}

fn layer_as_json(layer: &LayerSpec) -> Value {
    let options: Vec<_> = layer
        .options
        .iter()
        .map(|option| {
            json!({
                "name": option.name,
                "help": option.help,
                "default": option.default,
                "values": option.value.expected(),
                "place": option.value == ValueKind::Place,
            })
        })
        .collect();
    json!({
        "name": layer.name,
        "help": layer.help,
        "kind": layer.kind.name(),
        "options": options,
    })
}

fn workload_as_json(workload: &Workload) -> Value {
    let parameters: Vec<_> = workload
        .parameters
        .iter()
        .map(|parameter| {
            json!({
                "name": parameter.name,
                "help": parameter.help,
                "default": parameter.default.to_string(),
                "values": parameter.default.values(),
            })
        })
        .collect();
    json!({ "name": workload.name, "help": workload.help, "parameters": parameters })
}

fn as_tables() -> String {
    let mut layers = table(["layer", "kind", "what it does"]);
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
    let mut leaves = table(["leaf", "", "what it is"]);
    for leaf in all_leaves() {
        leaves.add_row([leaf.name, "", leaf.help]);
    }
    let mut workloads = table(["workload", "", "what it does"]);
    for workload in WORKLOADS {
        workloads.add_row([workload.name, "", workload.help]);
        for parameter in workload.parameters {
            let name = format!("  {} = {}", parameter.name, parameter.default);
            workloads.add_row([name.as_str(), "", parameter.help]);
        }
    }
    let mut renderers = table(["renderer", "", "what it makes"]);
    for renderer in RENDERERS {
        renderers.add_row([renderer.name, "", renderer.help]);
    }
    let mut attributes = table(["attribute", "wants", "what fslab probe finds"]);
    for attribute in ATTRIBUTES {
        attributes.add_row([attribute.name, attribute.wants.name(), attribute.help]);
    }
    format!("{layers}\n\n{leaves}\n\n{workloads}\n\n{renderers}\n\n{attributes}")
}

fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    table
}
