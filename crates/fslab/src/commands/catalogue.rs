//! Lists all items that a command line or a plan can name, such as layers and workloads.

use fslab_age::profile::PROFILES;
use fslab_compare::plan::Form;
use fslab_compare::workload::{Spec as Workload, WORKLOADS};
use fslab_layers::{LAYERS, LEAVES, LayerSpec, LeafSpec, ValueKind};
use fslab_probe::ATTRIBUTES;
use fslab_report::RENDERERS;
use fslab_tier::archive::archive_kinds;

use super::built_in::{PLANS, Text};
use crate::layers;
use crate::leaves::FOREIGN;

/// A named item.
pub struct Entry {
    pub name: String,
    /// The kind of the item within its section; may be empty.
    pub kind: &'static str,
    pub help: String,
    /// The options with their defaults, each with its help text.
    pub options: Vec<(String, String)>,
}

/// A section of `fslab list`: all items of one sort.
pub struct Section {
    pub name: &'static str,
    pub entries: Vec<Entry>,
}

/// Returns the names in a section, each with its help.
pub fn names(section: &str) -> Vec<(String, String)> {
    let found = sections().into_iter().find(|one| one.name == section);
    let entries = found.map(|section| section.entries).unwrap_or_default();
    entries.into_iter().map(|entry| (entry.name, entry.help)).collect()
}

/// Returns the names of all sections and items, each with its help.
pub fn all_names() -> Vec<(String, String)> {
    let sections = sections();
    let names = sections.iter().map(|section| (section.name.to_owned(), "a section".to_owned()));
    let entries = sections.iter().flat_map(|section| &section.entries);
    names.chain(entries.map(|entry| (entry.name.clone(), entry.help.clone()))).collect()
}

impl Entry {
    /// Returns whether the item has this name. A leaf also has the name before its colon.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.split_once(':').is_some_and(|(scheme, _)| scheme == name)
    }

    fn new(name: impl Into<String>, kind: &'static str, help: impl Into<String>) -> Self {
        Self { name: name.into(), kind, help: help.into(), options: Vec::new() }
    }
}

/// Returns all leaves: those of fslab-layers, and those that this program adds.
pub fn all_leaves() -> impl Iterator<Item = &'static LeafSpec> {
    LEAVES.iter().chain(FOREIGN.iter().map(|leaf| &leaf.spec))
}

/// Returns all layers: those of fslab-layers, and those that this program adds.
pub fn all_layers() -> impl Iterator<Item = &'static LayerSpec> {
    LAYERS.iter().chain(layers::FOREIGN)
}

/// Returns the sections in the order of `fslab list`.
pub fn sections() -> Vec<Section> {
    let section = |name, entries| Section { name, entries };
    let plans = PLANS.iter().map(plan);
    vec![
        section("layers", all_layers().map(layer).collect()),
        section("leaves", all_leaves().map(leaf).collect()),
        section(
            "archives",
            archive_kinds().map(|one| Entry::new(one.name, "", one.help)).collect(),
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

fn plan(text: &Text) -> Entry {
    let entry = Entry::new(text.name, "", text.title());
    let Ok(plan) = text.plan(Form::Full) else { return entry };
    let targets = plan.targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>();
    let workloads = plan.workloads.iter().map(|one| one.label.as_str()).collect::<Vec<_>>();
    let lists = [("targets", targets), ("workloads", workloads)];
    let options = lists.map(|(name, names)| (name.to_owned(), shortened(&names))).to_vec();
    Entry { options, ..entry }
}

/// Joins the first eight names of a list, because some plans have very many workloads.
fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    match names.len() {
        0..=SHOWN => names.join("; "),
        all => format!("{}; and {} more", names[..SHOWN].join("; "), all - SHOWN),
    }
}

fn layer(layer: &LayerSpec) -> Entry {
    let options = layer.options.iter().map(|option| {
        let words = match option.value {
            ValueKind::Choice(words) => format!(" ({})", words.join(", ")),
            _ => String::new(),
        };
        (format!("{}={}", option.name, option.default), format!("{}{words}", option.help))
    });
    let help = format!("{} ({})", layer.help, layer.stability);
    Entry { options: options.collect(), ..Entry::new(layer.name, layer.kind.name(), help) }
}

fn leaf(leaf: &LeafSpec) -> Entry {
    Entry::new(leaf.name, "", format!("{} ({})", leaf.help, leaf.stability))
}

fn workload(workload: &Workload) -> Entry {
    let options = workload.parameters.iter().map(|parameter| {
        (format!("{} = {}", parameter.name, parameter.default), parameter.help.to_owned())
    });
    Entry { options: options.collect(), ..Entry::new(workload.name, "", workload.help) }
}
