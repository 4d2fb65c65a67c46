//! Suggestions for an unknown name.

/// The end of an error message: the name that was probably meant, or all names.
pub(crate) fn suggest(nearest: &Nearest) -> String {
    match nearest {
        Nearest::Guess(name) => format!("; did you mean '{name}'?"),
        Nearest::All(names) if names.is_empty() => String::new(),
        Nearest::All(names) => format!("; available: {}", names.join(", ")),
    }
}

/// A suggestion for an unknown name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nearest {
    /// The only name similar enough to be the intended one.
    Guess(&'static str),
    /// All existing names.
    All(Vec<&'static str>),
}

impl Nearest {
    pub(crate) fn to(name: &str, all: impl Iterator<Item = &'static str>) -> Self {
        const LIKE_ENOUGH: f64 = 0.8;
        let all: Vec<_> = all.collect();
        let likeness = |candidate: &&'static str| strsim::jaro_winkler(name, candidate);
        let best =
            all.iter().copied().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
        match best.filter(|best| likeness(best) >= LIKE_ENOUGH) {
            Some(best) => Self::Guess(best),
            None => Self::All(all),
        }
    }
}
