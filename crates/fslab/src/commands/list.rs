//! `fslab list`: everything that can be named on a command line or in a plan.

use anyhow::Result;
use comfy_table::Table;
use fslab_age::profile::PROFILES;
use fslab_compare::workload::{Parameter, Spec as Workload, WORKLOADS};
use fslab_layers::{LAYERS, LEAVES, LayerSpec, LeafSpec, OptionSpec, ValueKind};
use fslab_probe::{ATTRIBUTES, Attribute};
use fslab_report::RENDERERS;
use fslab_tier::archive::ARCHIVE_KINDS;
use serde_json::{Value, json};

use super::built_in_plans::PLANS;
use super::candidates;
use crate::layers;
use crate::leaves::FOREIGN;
use crate::output::{plain_table, print_table};

/// Arguments of `fslab list`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Print JSON, always of everything
    #[arg(long, conflicts_with = "what")]
    json: bool,
    /// A section, such as layers, or a name, such as zstd [all sections, without options]
    #[arg(add = candidates::of_list())]
    what: Option<String>,
}

const HELP: &str = "\
Sections: layers, leaves, archives, workloads, plans, profiles, renderers, attributes.";

/// Something with a name.
struct Entry {
    name: String,
    /// What kind of its section it is; may be empty.
    kind: &'static str,
    help: String,
    /// Options with their defaults, and what they mean.
    options: Vec<(String, String)>,
}

/// Things of one sort.
struct Section {
    name: &'static str,
    entries: Vec<Entry>,
}

impl Args {
    /// Prints the lists, one section, or one entry.
    pub fn run(self) -> Result<()> {
        if self.json {
            say!("{:#}", as_json());
            return Ok(());
        }
        let sections = sections();
        let Some(what) = &self.what else {
            for section in &sections {
                print_table(&section.as_table(false));
                say!("");
            }
            say!("`fslab list NAME` shows a section or an entry with its options.");
            return Ok(());
        };
        if let Some(section) = sections.iter().find(|section| section.name == what) {
            print_table(&section.as_table(true));
            return Ok(());
        }
        let entries = || sections.iter().flat_map(|section| &section.entries);
        let mut named = entries().filter(|entry| entry.name == *what).peekable();
        if named.peek().is_none() {
            let names = sections.iter().map(|section| section.name);
            let names = names.chain(entries().map(|entry| entry.name.as_str()));
            bail_as!(
                BadInput,
                "there is nothing with the name '{what}'; nearest: {}",
                fslab_report::nearest(what, names)
            );
        }
        named.for_each(Entry::show);
        Ok(())
    }
}

/// The names of a section, each with what it is.
pub(super) fn names(section: &str) -> Vec<(String, String)> {
    let found = sections().into_iter().find(|one| one.name == section);
    let entries = found.map(|section| section.entries).unwrap_or_default();
    entries.into_iter().map(|entry| (entry.name, entry.help)).collect()
}

/// The sections and the names in them.
pub(super) fn all_names() -> Vec<(String, String)> {
    let sections = sections();
    let names = sections.iter().map(|section| (section.name.to_owned(), "a section".to_owned()));
    let entries = sections.iter().flat_map(|section| &section.entries);
    names.chain(entries.map(|entry| (entry.name.clone(), entry.help.clone()))).collect()
}

impl Entry {
    fn new(name: impl Into<String>, kind: &'static str, help: impl Into<String>) -> Self {
        Self { name: name.into(), kind, help: help.into(), options: Vec::new() }
    }

    fn show(&self) {
        say!("{}: {}", self.name, self.help);
        if self.options.is_empty() {
            return;
        }
        let mut table = plain_table(["option", "meaning"]);
        table.add_rows(self.options.iter().map(|(name, help)| [name, help]));
        print_table(&table);
    }
}

impl Section {
    fn as_table(&self, with_options: bool) -> Table {
        let mut table = plain_table([self.name, "", ""]);
        for entry in &self.entries {
            table.add_row([&entry.name, entry.kind, &entry.help]);
            let options = entry.options.iter().filter(|_| with_options);
            table.add_rows(
                options.map(|(name, help)| [format!("  {name}"), String::new(), help.clone()]),
            );
        }
        table
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
        "plans": PLANS.iter().map(|plan| json!({ "name": plan.name, "help": plan.title() })).collect::<Vec<_>>(),
        "profiles": PROFILES.iter().map(|one| named((one.name, one.help))).collect::<Vec<_>>(),
        "workloads": WORKLOADS.iter().map(workload_as_json).collect::<Vec<_>>(),
        "renderers": RENDERERS.iter().map(|one| named((one.name, one.help))).collect::<Vec<_>>(),
        "attributes": ATTRIBUTES.iter().map(wants).collect::<Vec<_>>(),
    })
}

fn sections() -> Vec<Section> {
    let section = |name, entries| Section { name, entries };
    let plans = PLANS.iter().map(|plan| Entry::new(plan.name, "", plan.title()));
    vec![
        section("layers", all_layers().map(layer).collect()),
        section("leaves", all_leaves().map(|one| Entry::new(one.name, "", one.help)).collect()),
        section(
            "archives",
            ARCHIVE_KINDS.iter().map(|one| Entry::new(one.name, "", one.help)).collect(),
        ),
        section("workloads", WORKLOADS.iter().map(|one| workload(one)).collect()),
        section("plans", plans.collect()),
        section(
            "profiles",
            PROFILES.iter().map(|one| Entry::new(one.name, "", one.help)).collect(),
        ),
        section(
            "renderers",
            RENDERERS.iter().map(|one| Entry::new(one.name, "", one.help)).collect(),
        ),
        section(
            "attributes",
            ATTRIBUTES.iter().map(|one| Entry::new(one.name, one.wants.name(), one.help)).collect(),
        ),
    ]
}

fn layer(layer: &LayerSpec) -> Entry {
    let options = layer.options.iter().map(|option| {
        let words = match option.value {
            ValueKind::Choice(words) => format!(" ({})", words.join(", ")),
            _ => String::new(),
        };
        (format!("{}={}", option.name, option.default), format!("{}{words}", option.help))
    });
    Entry { options: options.collect(), ..Entry::new(layer.name, layer.kind.name(), layer.help) }
}

fn workload(workload: &Workload) -> Entry {
    let options = workload.parameters.iter().map(|parameter| {
        (format!("{} = {}", parameter.name, parameter.default), parameter.help.to_owned())
    });
    Entry { options: options.collect(), ..Entry::new(workload.name, "", workload.help) }
}
