//! `fslab list`: lists all items that a command line or a plan can name.

use anyhow::Result;
use comfy_table::Table;
use fslab_age::profile::PROFILES;
use fslab_compare::workload::{Parameter, Spec as Workload, WORKLOADS};
use fslab_layers::{LayerSpec, LeafSpec, OptionSpec, ValueKind};
use fslab_probe::{ATTRIBUTES, Attribute};
use fslab_report::RENDERERS;
use fslab_tier::archive::archive_kinds;
use serde_json::{Value, json};

use super::built_in::{PLANS, Text};
use super::candidates;
use super::catalogue::{Entry, Section, all_layers, all_leaves, sections};
use crate::exit::Code;
use crate::output::{plain_table, print_table};

/// Arguments of `fslab list`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A section, such as layers, or a name, such as zstd [default: all sections, without options]
    #[arg(add = candidates::of_list())]
    what: Option<String>,
}

const HELP: &str = "\
Sections: layers, leaves, archives, workloads, plans, profiles, renderers, attributes.";

impl Args {
    /// Prints the lists, one section, or one entry.
    pub fn run(self) -> Result<()> {
        if self.json {
            say!("{:#}", as_json(self.what.as_deref())?);
            return Ok(());
        }
        let sections = sections();
        let Some(what) = &self.what else {
            for section in &sections {
                print_table(&as_table(section, false));
                say!("");
            }
            say!("`fslab list NAME` shows a section or an entry with its options.");
            return Ok(());
        };
        if let Some(section) = sections.iter().find(|section| section.name == what) {
            print_table(&as_table(section, true));
            return Ok(());
        }
        let entries = sections.iter().flat_map(|section| &section.entries);
        let mut named = entries.filter(|entry| entry.is_called(what)).peekable();
        if named.peek().is_none() {
            return Err(no_such_name(&sections, what));
        }
        named.for_each(show);
        Ok(())
    }
}

fn show(entry: &Entry) {
    say!("{}: {}", entry.name, entry.help);
    if entry.options.is_empty() {
        return;
    }
    let mut table = plain_table(["option", "meaning"]);
    table.add_rows(entry.options.iter().map(|(name, help)| [name, help]));
    print_table(&table);
}

fn as_table(section: &Section, with_options: bool) -> Table {
    let mut table = plain_table([section.name, "", ""]);
    for entry in &section.entries {
        table.add_row([&entry.name, entry.kind, &entry.help]);
        let options = entry.options.iter().filter(|_| with_options);
        table.add_rows(
            options.map(|(name, help)| [format!("  {name}"), String::new(), help.clone()]),
        );
    }
    table
}

/// Returns all sections, or only the section or entry with the name `what`. If several entries have
/// this name, returns an array.
fn as_json(what: Option<&str>) -> Result<Value> {
    let all = all_as_json();
    let Some(what) = what else { return Ok(all) };
    let sections = sections();
    if let Some(section) = sections.iter().find(|section| section.name == what) {
        return Ok(all[json_key(section)].clone());
    }
    let mut found = Vec::new();
    for section in &sections {
        let entries = all[json_key(section)].as_array().into_iter().flatten();
        let named = section.entries.iter().zip(entries).filter(|(entry, _)| entry.is_called(what));
        found.extend(named.map(|(_, value)| value.clone()));
    }
    match found.len() {
        0 => Err(no_such_name(&sections, what)),
        1 => Ok(found.remove(0)),
        _ => Ok(Value::Array(found)),
    }
}

/// Returns the key of a section in JSON. Its value lists the entries in the section's order.
fn json_key(section: &Section) -> &'static str {
    match section.name {
        "archives" => "archive_kinds",
        name => name,
    }
}

fn no_such_name(sections: &[Section], what: &str) -> anyhow::Error {
    let names = sections.iter().flat_map(|section| {
        let entries = section.entries.iter().map(|entry| entry.name.as_str());
        std::iter::once(section.name).chain(entries)
    });
    Code::BadInput
        .error(format!("nothing has the name '{what}'{}", fslab_report::suggestion(what, names)))
}

fn all_as_json() -> Value {
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
        json!({
            "name": layer.name,
            "help": layer.help,
            "kind": layer.kind.name(),
            "stability": layer.stability.name(),
            "options": options,
        })
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
    let leaf_as_json = |leaf: &LeafSpec| {
        let stability = leaf.stability.name();
        json!({ "name": leaf.name, "help": leaf.help, "stability": stability })
    };
    let leaves: Vec<_> = all_leaves().map(leaf_as_json).collect();
    let named = |(name, help)| json!({ "name": name, "help": help });
    let kinds: Vec<_> = archive_kinds().map(|one| named((one.name, one.help))).collect();
    let plan = |one: &Text| json!({ "name": one.name, "help": one.title() });
    let plans: Vec<_> = PLANS.iter().map(plan).collect();
    json!({
        "layers": all_layers().map(layer_as_json).collect::<Vec<_>>(),
        "leaves": leaves,
        "archive_kinds": kinds,
        "plans": plans,
        "profiles": PROFILES.iter().map(|one| named((one.name, one.help))).collect::<Vec<_>>(),
        "workloads": WORKLOADS.iter().map(workload_as_json).collect::<Vec<_>>(),
        "renderers": RENDERERS.iter().map(|one| named((one.name, one.help))).collect::<Vec<_>>(),
        "attributes": ATTRIBUTES.iter().map(wants).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_name_can_be_printed_as_json() {
        for section in sections() {
            let listed = as_json(Some(section.name)).unwrap();
            assert_eq!(listed.as_array().unwrap().len(), section.entries.len(), "{}", section.name);
            // If a section and an entry have the same name, such as the renderer `attributes`, the
            // name refers to the section.
            let is_section = |name: &str| sections().iter().any(|section| section.name == name);
            for entry in section.entries.iter().filter(|entry| !is_section(&entry.name)) {
                let found = as_json(Some(&entry.name)).unwrap();
                let is_it = |one: &Value| one["name"] == entry.name.as_str();
                let has_it = found.as_array().map_or(is_it(&found), |all| all.iter().any(is_it));
                assert!(has_it, "{}: {found}", entry.name);
            }
        }
        assert!(as_json(Some("mem")).is_ok());
        let refused = as_json(Some("layer")).unwrap_err().to_string();
        assert!(refused.contains("did you mean layers"), "{refused}");
    }
}
