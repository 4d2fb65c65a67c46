//! Licence expressions, as in manifests: `MIT OR (Apache-2.0 WITH X AND BSD-2-Clause)`.

/// Returns whether the allowed licences satisfy the expression; `None` if the text is not one.
pub fn holds(text: &str, allows: &dyn Fn(&str) -> bool) -> Option<bool> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let holds = any(&mut words, allows)?;
    words.next().is_none().then_some(holds)
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>, allows: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut holds = all(words, allows)?;
    while words.next_if_eq(&"OR").is_some() {
        holds |= all(words, allows)?;
    }
    Some(holds)
}

fn all(words: &mut Words<'_>, allows: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut holds = one(words, allows)?;
    while words.next_if_eq(&"AND").is_some() {
        holds &= one(words, allows)?;
    }
    Some(holds)
}

fn one(words: &mut Words<'_>, allows: &dyn Fn(&str) -> bool) -> Option<bool> {
    match words.next()? {
        "(" => {
            let holds = any(words, allows)?;
            words.next_if_eq(&")").map(|_| holds)
        }
        ")" | "OR" | "AND" | "WITH" => None,
        licence => match words.next_if_eq(&"WITH") {
            Some(_) => Some(allows(&format!("{licence} WITH {}", words.next()?))),
            None => Some(allows(licence)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::holds;

    #[test]
    fn licence_expressions_are_evaluated() {
        let allows = |name: &str| ["MIT", "Apache-2.0", "Unicode-3.0"].contains(&name);
        for (text, expected) in [
            ("MIT", Some(true)),
            ("GPL-3.0", Some(false)),
            ("GPL-3.0 OR MIT", Some(true)),
            ("GPL-3.0/MIT", Some(true)),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", Some(true)),
            ("MIT OR GPL-3.0 AND Zlib", Some(true)),
            ("(MIT OR GPL-3.0) AND Zlib", Some(false)),
            ("Apache-2.0 WITH LLVM-exception", Some(false)),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0", Some(true)),
            ("", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT Apache-2.0", None),
            ("MIT WITH", None),
        ] {
            assert_eq!(holds(text, &allows), expected, "{text:?}");
        }
    }
}
