//! Step `licences`: checks that deny.toml allows the licences of all dependencies. If cargo-deny is
//! installed, it also checks the licences and the sources of the dependencies.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Context, Step};
use crate::tally::Tally;
use crate::{environment, process};

mod expression;

/// The step `licences`.
pub const STEP: Step =
    Step { name: "licences", help: "deny.toml allows the licences of all dependencies", run };

fn run(context: &Context) -> Result<Tally> {
    let allowed = Allowed::read(&environment::workspace_root().join("deny.toml"))?;
    let mut problems = Vec::new();
    for target in &allowed.targets {
        let mut metadata = context.cargo();
        metadata.args(["metadata", "--format-version", "1", "--locked"]);
        let told = process::capture(metadata.args(["--filter-platform", target]))?;
        problems.extend(allowed.refused(&serde_json::from_str(&told)?)?);
    }
    problems.sort_unstable();
    problems.dedup();
    problems.iter().for_each(|problem| println!("{problem}"));
    ensure!(
        problems.is_empty(),
        "deny.toml does not allow the licences of {} dependencies",
        problems.len()
    );
    let mut tally = Tally::pass();
    tally += by_cargo_deny(context)?;
    Ok(tally)
}

fn by_cargo_deny(context: &Context) -> Result<Tally> {
    let Some(program) = environment::find_tool("cargo-deny") else {
        println!(
            "the optional check by cargo-deny is skipped, because cargo-deny is not installed"
        );
        return Ok(Tally::default());
    };
    let mut command = std::process::Command::new(program);
    command.current_dir(environment::workspace_root());
    // Advisories need a database from the network; the other checks need none.
    command.args(["--offline", "check", "bans", "licenses", "sources"]);
    let folder = context.target_directory();
    process::run_ok(command.env("CARGO_TARGET_DIR", folder))?;
    Ok(Tally::pass())
}

/// The settings in deny.toml.
struct Allowed {
    licences: Vec<String>,
    targets: Vec<String>,
}

impl Allowed {
    fn read(path: &Path) -> Result<Self> {
        Self::parse(&std::fs::read_to_string(path)?).context("deny.toml")
    }

    fn parse(text: &str) -> Result<Self> {
        let settings: toml::Table = text.parse()?;
        let strings = |table: &str, key: &str| {
            let list = settings.get(table).and_then(|table| table.get(key)?.as_array());
            let list = list.with_context(|| format!("the list {table}.{key} is missing"))?;
            let string = |value: &toml::Value| value.as_str().map(str::to_owned);
            list.iter()
                .map(string)
                .collect::<Option<Vec<_>>>()
                .context("a list contains something other than strings")
        };
        let (licences, targets) = (strings("licenses", "allow")?, strings("graph", "targets")?);
        ensure!(!targets.is_empty(), "graph.targets is empty, so nothing would be checked");
        Ok(Self { licences, targets })
    }

    /// Returns a problem for each foreign package that is compiled but whose licence is not
    /// allowed. `metadata` is the output of `cargo metadata`.
    fn refused(&self, metadata: &Value) -> Result<Vec<String>> {
        let nodes = metadata["resolve"]["nodes"]
            .as_array()
            .context("cargo metadata lists no resolved packages")?;
        let used: HashSet<_> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
        let packages =
            metadata["packages"].as_array().context("cargo metadata lists no packages")?;
        let foreign = packages.iter().filter(|package| {
            !package["source"].is_null()
                && package["id"].as_str().is_some_and(|id| used.contains(id))
        });
        Ok(foreign.filter_map(|package| self.problem(package)).collect())
    }

    fn problem(&self, package: &Value) -> Option<String> {
        let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
        let Some(licence) = package["license"].as_str() else {
            return Some(format!("{name} {version} declares no licence"));
        };
        let allows = |name: &str| self.licences.iter().any(|allowed| allowed == name);
        match expression::holds(licence, &allows) {
            Some(true) => None,
            Some(false) => Some(format!(
                "{name} {version} has the licence {licence}, which deny.toml does not allow"
            )),
            None => Some(format!("{name} {version} has an invalid licence: {licence}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = "[graph]\ntargets = ['here']\n[licenses]\nallow = ['MIT', 'CC0-1.0']\n";

    #[test]
    fn compiled_packages_with_other_licences_are_refused() {
        let package = |name: &str, licence: Value, source: Value| {
            serde_json::json!({
                "id": name, "name": name, "version": "1.0.0", "license": licence, "source": source,
            })
        };
        let registry = || Value::from("registry");
        let metadata = serde_json::json!({
            "packages": [
                package("right", "MIT OR GPL-3.0".into(), registry()),
                package("wrong", "GPL-3.0".into(), registry()),
                package("silent", Value::Null, registry()),
                package("own", "GPL-3.0".into(), Value::Null),
                package("unused", "GPL-3.0".into(), registry()),
            ],
            "resolve": {
                "nodes": [{"id": "right"}, {"id": "wrong"}, {"id": "silent"}, {"id": "own"}],
            },
        });
        let refused = Allowed::parse(DENY).unwrap().refused(&metadata).unwrap();
        let expected = [
            "wrong 1.0.0 has the licence GPL-3.0, which deny.toml does not allow",
            "silent 1.0.0 declares no licence",
        ];
        assert_eq!(refused, expected);
        assert!(Allowed::parse(&DENY.replace("'here'", "")).is_err());
        assert!(Allowed::parse(&DENY.replace("'MIT'", "3")).is_err());
    }
}
