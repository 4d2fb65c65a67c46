//! Checks that dependencies between crates go in one direction, as in the diagram in
//! ARCHITECTURE.md. Code can import only crates that its manifest lists, so checking the manifests
//! is sufficient.

use toml::Table;

use super::tree::{Tree, Violation};

/// For every crate, the crates of this project on which it may depend.
const ARROWS: &[(&str, &str)] = &[
    ("fslab-sys", ""),
    ("fslab-vfs", "fslab-sys"),
    ("fslab-vfs-testing", "fslab-vfs fslab-sys"),
    ("fslab-fuse", "fslab-vfs fslab-sys"),
    ("fslab-trace", "fslab-dataset fslab-vfs"),
    ("fslab-layers", "fslab-trace fslab-vfs-testing fslab-vfs fslab-sys"),
    ("fslab-sca", "fslab-layers fslab-vfs fslab-sys"),
    ("fslab-tier", "fslab-vfs fslab-sys"),
    ("fslab-s3", "fslab-tier"),
    ("fslab-ext2", "fslab-vfs-testing fslab-vfs fslab-sys"),
    ("fslab-stats", "fslab-sys"),
    ("fslab-chart", ""),
    ("fslab-report", "fslab-chart fslab-dataset fslab-stats"),
    ("fslab-compare", "fslab-report fslab-stats fslab-trace fslab-vfs fslab-sys"),
    ("fslab-probe", "fslab-chart fslab-compare fslab-report fslab-sys"),
    ("fslab-campaign", "fslab-compare fslab-report fslab-sys"),
    ("fslab-reproduce", "fslab-chart fslab-compare fslab-report fslab-stats"),
    ("fslab-dataset", ""),
    ("fslab-sql", "fslab-dataset"),
    ("fslab-age", "fslab-chart fslab-dataset fslab-ext2 fslab-vfs fslab-sys"),
    (
        "fslab",
        "fslab-age fslab-campaign fslab-chart fslab-compare fslab-dataset fslab-ext2 fslab-fuse \
         fslab-layers fslab-probe fslab-report fslab-reproduce fslab-s3 fslab-sca fslab-stats \
         fslab-sys fslab-tier fslab-trace fslab-vfs",
    ),
    ("xtask", ""),
    ("fuzz", "fslab-age fslab-dataset fslab-ext2 fslab-fuse fslab-sca fslab-tier"),
];

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    tree.manifests().flat_map(|(path, name, text)| manifest(path, name, text)).collect()
}

fn manifest(path: &str, name: &str, text: &str) -> Vec<Violation> {
    let Some((_, allowed)) = ARROWS.iter().find(|(crate_name, _)| *crate_name == name) else {
        let message = format!(
            "{name} has no list of permitted dependencies; add it to xtask/src/tidy/arrows.rs"
        );
        return vec![Violation::of_file(path, message)];
    };
    let table = match text.parse::<Table>() {
        Ok(table) => table,
        Err(error) => return vec![Violation::of_file(path, error.message())],
    };
    dependencies(&table)
        .into_iter()
        .filter(|dependency| !may(allowed, dependency))
        .map(|dependency| {
            Violation::of_file(path, format!("{name} must not depend on {dependency}"))
        })
        .collect()
}

fn may(allowed: &str, dependency: &str) -> bool {
    let is_ours = dependency == "fslab" || dependency.starts_with("fslab-");
    !is_ours || allowed.split(' ').any(|one| one == dependency)
}

/// Returns the packages that a crate's own code can import, on any platform. Development
/// dependencies are left out, because tests may use any crate.
fn dependencies(manifest: &Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let per_target = targets.into_iter().flat_map(Table::values).filter_map(toml::Value::as_table);
    std::iter::once(manifest)
        .chain(per_target)
        .flat_map(|table| ["dependencies", "build-dependencies"].map(|key| table.get(key)))
        .filter_map(|section| section.and_then(toml::Value::as_table))
        .flatten()
        .map(|(key, value)| package(key, value))
        .collect()
}

/// Returns the package name of a dependency, which a manifest may rename.
fn package(key: &str, value: &toml::Value) -> String {
    value.get("package").and_then(toml::Value::as_str).unwrap_or(key).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        for (name, text, count) in [
            ("fslab-vfs", "[dependencies]\nfslab-sys.workspace = true\nslab = '1'", 0),
            ("fslab-vfs", "[dependencies]\nfslab-fuse.workspace = true", 1),
            ("fslab-compare", "[dependencies]\nfslab-layers = { path = '..' }", 1),
            ("fslab-compare", "[dev-dependencies]\nfslab-layers = { path = '..' }", 0),
            ("fslab-vfs", "[target.'cfg(unix)'.dependencies]\nfslab-fuse = '1'", 1),
            ("fslab-vfs", "[build-dependencies]\nfslab-fuse = '1'", 1),
            ("fslab-layers", "[dependencies]\nk = { package = 'fslab-fuse', version = '1' }", 1),
            ("fslab-new", "[dependencies]", 1),
            ("fslab-vfs", "[dependencies", 1),
        ] {
            let path = format!("crates/{name}/Cargo.toml");
            assert_eq!(run(&Tree::of(&[(&path, text)])).len(), count, "{name}: {text}");
        }
    }
}
