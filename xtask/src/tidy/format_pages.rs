//! Checks that each page of docs/formats contains the hash of the source file that it describes. So
//! code and page are changed together.
//!
//! The page has a line `<!-- format: PATH/format.rs sha256:HEX -->`, where HEX is the output of
//! `sha256sum`. After a change of the code, read the page again, correct it, and then update the
//! hash.

use sha2::{Digest, Sha256};

use super::tree::{Tree, Violation};

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let is_page = |path: &str| path.ends_with(".md") && !path.ends_with("/README.md");
    let pages = tree.files().filter(|(path, _)| path.starts_with("docs/formats/") && is_page(path));
    let pages: Vec<_> = pages.map(|(path, text)| (path, marker(text))).collect();
    let described = |code: &str| {
        pages.iter().any(|(_, found)| matches!(found, Some((path, _)) if *path == code))
    };
    let undescribed = tree
        .rust()
        .filter(|(path, _)| is_format(tree, path) && !described(path))
        .map(|(path, _)| Violation::of_file(path, "no page of docs/formats describes it"));
    let wrong = pages.iter().filter_map(|(page, found)| wrong(tree, page, *found));
    undescribed.chain(wrong).collect()
}

/// Returns whether a file defines an on-disk format. Such a file is named `format.rs` and is in the
/// same folder as a `reader.rs` or `writer.rs`.
fn is_format(tree: &Tree, path: &str) -> bool {
    let beside = |name| path.strip_suffix("format.rs").map(|folder| format!("{folder}{name}"));
    let exists = |name| beside(name).is_some_and(|path| tree.get(&path).is_some());
    path.ends_with("/format.rs") && (exists("reader.rs") || exists("writer.rs"))
}

/// Returns the path and the hash in a page's marker.
fn marker(page: &str) -> Option<(&str, &str)> {
    let (_, rest) = page.split_once("<!-- format: ")?;
    rest.split_once(" -->")?.0.split_once(" sha256:")
}

fn wrong(tree: &Tree, page: &str, found: Option<(&str, &str)>) -> Option<Violation> {
    let Some((path, hash)) = found else {
        let message = "has no line `<!-- format: PATH sha256:HEX -->`";
        return Some(Violation::of_file(page, message));
    };
    let Some(code) = tree.get(path) else {
        return Some(Violation::of_file(page, format!("describes {path}, which does not exist")));
    };
    let now = hex(code);
    let message = format!("{path} has changed: correct the page, then set sha256:{now}");
    (now != hash).then(|| Violation::of_file(page, message))
}

fn hex(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_matches_sha256sum() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex(""), empty);
    }

    #[test]
    fn planted_violations_are_found() {
        let code = ("crates/a/src/sca/format.rs", "const MAGIC: u32 = 1;");
        let good = format!("# SCA\n<!-- format: {} sha256:{} -->\n", code.0, hex(code.1));
        let count = |page: &str, code: (&str, &str)| {
            let reader = code.0.replace("format.rs", "reader.rs");
            run(&Tree::of(&[("docs/formats/sca.md", page), code, (&reader, "")])).len()
        };
        assert_eq!(count(&good, code), 0);
        assert_eq!(count(&good, (code.0, "const MAGIC: u32 = 2;")), 1);
        assert_eq!(count("# SCA\n", code), 2, "no marker, and code without a page");
        assert_eq!(count(&good, ("crates/b/src/format.rs", code.1)), 2, "another file");
        assert_eq!(run(&Tree::of(&[code, ("crates/a/src/sca/writer.rs", "")])).len(), 1, "no page");
        assert_eq!(run(&Tree::of(&[code])).len(), 0, "formats something else, such as numbers");
    }
}
