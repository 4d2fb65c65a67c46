//! Lists of names: removing duplicates, and suggestions for unknown names.

/// Returns each distinct item once, in order of first occurrence.
#[must_use]
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for item in items {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

/// Returns the end of a message about a wrong name, with up to three similar names. The text is
/// empty if no name is similar.
#[must_use]
pub fn suggestion<'a>(wrong: &str, valid: impl IntoIterator<Item = &'a str>) -> String {
    const NEAR: f64 = 0.75;
    let likeness = |name: &str| strsim::jaro_winkler(wrong, name);
    let mut near: Vec<&str> = valid.into_iter().filter(|name| likeness(name) >= NEAR).collect();
    near.sort_by(|one, other| likeness(other).total_cmp(&likeness(one)).then(one.cmp(other)));
    near.dedup();
    near.truncate(3);
    match near.as_slice() {
        [] => String::new(),
        near => format!("; did you mean {}?", near.join(", ")),
    }
}

/// Returns the valid names most similar to a wrong one, or all valid names if none is similar.
#[must_use]
pub fn nearest<'a>(wrong: &str, valid: impl IntoIterator<Item = &'a str>) -> String {
    let mut ranked: Vec<(usize, &str)> =
        valid.into_iter().map(|name| (strsim::damerau_levenshtein(wrong, name), name)).collect();
    ranked.sort_by_key(|(distance, _)| *distance);
    let near = |distance: usize, name: &str| distance <= wrong.len().max(name.len()) / 2;
    let mut chosen: Vec<&str> = ranked
        .iter()
        .filter(|(distance, name)| near(*distance, name))
        .map(|(_, name)| *name)
        .take(3)
        .collect();
    if chosen.is_empty() {
        chosen = ranked.into_iter().map(|(_, name)| name).collect();
    }
    chosen.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn similar_names_are_suggested_first_else_all_names() {
        assert_eq!(nearest("file-cpy", ["file-copy", "stream"]), "`file-copy`");
        assert_eq!(nearest("zzzzzz", ["ab", "cd"]), "`ab`, `cd`");
    }
}
