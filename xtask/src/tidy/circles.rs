//! Checks that files of a crate do not import each other in a circle. Without circles, a reader of
//! a file needs only the files that it uses.
//!
//! An import is attributed to the file that defines the imported item; `pub use` is followed to the
//! definition. Imports from the file's own folder are ignored: if `dir.rs` uses `dir/htree.rs`, the
//! second file is a part of the first and may use its definitions. Tests are ignored too.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Item, UseTree, Visibility};

use super::tree::{Tree, Violation};

/// Permitted circles, as lists of files; ARCHITECTURE.md explains them.
const ALLOWED: &[&[&str]] =
    &[&["crates/fslab-tier/src/engine/files.rs", "crates/fslab-tier/src/engine/recall/waiting.rs"]];

/// A module path below a crate's root, such as `["dir", "htree"]`.
type Path = Vec<String>;

#[derive(Default)]
struct Module {
    file: String,
    /// The imported paths, and whether each is re-exported.
    imports: Vec<(Path, bool)>,
}

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, BTreeMap<Path, Module>> = BTreeMap::new();
    let mut violations = Vec::new();
    for (file, text) in tree.rust() {
        let Some((root, path)) = place_of(file) else { continue };
        match syn::parse_file(text) {
            Ok(parsed) => {
                let mut imports = Imports { own: path.clone(), found: Vec::new() };
                imports.visit_file(&parsed);
                let module = Module { file: file.to_owned(), imports: imports.found };
                crates.entry(root).or_default().insert(path, module);
            }
            Err(error) => violations.push(Violation::of_file(file, error.to_string())),
        }
    }
    for modules in crates.values() {
        violations.extend(circles(modules).into_iter().filter_map(|circle| told(modules, &circle)));
    }
    violations
}

/// Returns the crate's source folder and the module path of a file. `None` if it is not compiled
/// into the library or main program.
fn place_of(file: &str) -> Option<(&str, Path)> {
    let (root, inner) = file.split_once("/src/")?;
    let inner = inner.strip_suffix(".rs")?;
    let is_root = inner == "lib" || inner == "main";
    let path: Path =
        if is_root { Vec::new() } else { inner.split('/').map(str::to_owned).collect() };
    let is_test = path.iter().any(|part| part == "tests" || part == "bin");
    (!is_test).then_some((root, path))
}

/// Collects the imports of one file, as paths from the crate's root.
struct Imports {
    own: Path,
    found: Vec<(Path, bool)>,
}

impl Imports {
    /// Records an import as a path from the crate's root. A path that begins with a name is treated
    /// as the path of a child module. If the name is another crate's, the later search finds no
    /// module.
    fn note(&mut self, path: &[String], passes_on: bool) {
        let above = path.iter().take_while(|part| *part == "super").count();
        let Some(kept) = self.own.len().checked_sub(above) else { return };
        let absolute = match path.first().map(String::as_str) {
            Some("crate") => path[1..].to_vec(),
            Some("self") => [&self.own, &path[1..]].concat(),
            _ => [&self.own[..kept], &path[above..]].concat(),
        };
        self.found.push((absolute, passes_on));
    }

    fn note_tree(&mut self, before: &[String], tree: &UseTree, passes_on: bool) {
        let with = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(part) => {
                self.note_tree(&with(part.ident.to_string()), &part.tree, passes_on);
            }
            UseTree::Name(name) if name.ident == "self" => self.note(before, passes_on),
            UseTree::Name(name) => self.note(&with(name.ident.to_string()), passes_on),
            UseTree::Rename(name) => self.note(&with(name.ident.to_string()), passes_on),
            UseTree::Glob(_) => self.note(&with("*".to_owned()), passes_on),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.note_tree(before, tree, passes_on));
            }
        }
    }
}

impl<'a> Visit<'a> for Imports {
    fn visit_item(&mut self, item: &'a Item) {
        match item {
            Item::Mod(module) if is_for_tests(&module.attrs) => {}
            Item::Use(import) => {
                let passes_on = !matches!(import.vis, Visibility::Inherited);
                self.note_tree(&[], &import.tree, passes_on);
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let parts: Path = path.segments.iter().map(|part| part.ident.to_string()).collect();
            self.note(&parts, false);
        }
        visit::visit_path(self, path);
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    })
}

/// Returns the module that defines the item of a path; `None` if it is in another crate.
fn defining(modules: &BTreeMap<Path, Module>, path: &[String], depth: usize) -> Option<Path> {
    const DEPTH_MAX: usize = 8;
    let known = (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length]))?;
    let (module, rest) = path.split_at(known);
    let Some(name) = rest.first().filter(|_| depth < DEPTH_MAX) else {
        return Some(module.to_vec());
    };
    let passed_on = modules[module]
        .imports
        .iter()
        .find(|(import, passes_on)| *passes_on && import.last() == Some(name));
    match passed_on {
        Some((import, _)) if import[..] != path[..=known] => {
            defining(modules, &[import, &rest[1..]].concat(), depth + 1)
        }
        _ => Some(module.to_vec()),
    }
}

/// Returns the modules from which each module imports, except modules in its own folder.
fn edges(modules: &BTreeMap<Path, Module>) -> BTreeMap<&Path, BTreeSet<Path>> {
    let of = |(path, module): (_, &Module)| {
        let path: &Path = path;
        let found = module.imports.iter().filter_map(|(import, _)| defining(modules, import, 0));
        (path, found.filter(|other| !other.starts_with(path)).collect())
    };
    modules.iter().map(of).collect()
}

/// Returns the sets of modules that import each other, directly or indirectly.
fn circles(modules: &BTreeMap<Path, Module>) -> Vec<BTreeSet<Path>> {
    let edges = edges(modules);
    let reached = |from: &Path| {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&Path> = edges[from].iter().collect();
        while let Some(path) = next.pop() {
            if reached.insert(path.clone()) {
                next.extend(&edges[path]);
            }
        }
        reached
    };
    let reach: BTreeMap<&Path, BTreeSet<Path>> =
        modules.keys().map(|path| (path, reached(path))).collect();
    let circle_of = |path: &&Path| -> BTreeSet<Path> {
        reach[path].iter().filter(|other| reach[other].contains(*path)).cloned().collect()
    };
    let found: BTreeSet<_> = reach.keys().map(circle_of).filter(|one| one.len() > 1).collect();
    found.into_iter().collect()
}

fn told(modules: &BTreeMap<Path, Module>, circle: &BTreeSet<Path>) -> Option<Violation> {
    let files: Vec<&str> = circle.iter().map(|path| modules[path].file.as_str()).collect();
    if ALLOWED.contains(&&*files) {
        return None;
    }
    let message = format!("is in a circle of imports with {}", files[1..].join(", "));
    Some(Violation::of_file(files[0], message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_circles_are_found() {
        let tree = |one: &str, other: &str| {
            run(&Tree::of(&[
                ("crates/a/src/lib.rs", "mod one; mod other; pub use one::One;"),
                ("crates/a/src/one.rs", one),
                ("crates/a/src/other.rs", other),
            ]))
            .len()
        };
        assert_eq!(tree("use crate::other::X;", "pub struct X;"), 0);
        assert_eq!(tree("use crate::other::X;", "use super::one::Y;"), 1);
        // An item that the root re-exports is attributed to the file that defines it.
        assert_eq!(tree("use crate::other::X; pub struct One;", "use crate::One;"), 1);
        assert_eq!(tree("fn f() { crate::other::g() }", "fn g() { super::one::f() }"), 1);
        let in_tests = "#[cfg(test)] mod tests { use crate::one::Y; }";
        assert_eq!(tree("use crate::other::X;", in_tests), 0);
        assert_eq!(tree("use crate::other::X;", "fn ("), 1, "unparsable code is reported");
        // The root may use its parts, and they may use the root.
        assert_eq!(tree("use crate::root;", "fn f() { crate::root() }"), 0);
    }
}
