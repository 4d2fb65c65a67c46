//! The options of restores from cold storage classes.

use std::time::Duration;

const HOUR: u64 = 3600;

/// How quickly a store restores objects. Quicker restores cost more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retrieval {
    Expedited,
    #[default]
    Standard,
    Bulk,
}

impl Retrieval {
    /// Parses the name of an option's value.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "expedited" => Some(Self::Expedited),
            "standard" => Some(Self::Standard),
            "bulk" => Some(Self::Bulk),
            _ => None,
        }
    }

    /// Returns the name in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Expedited => "Expedited",
            Self::Standard => "Standard",
            Self::Bulk => "Bulk",
        }
    }

    /// Returns the quickest retrieval that is not quicker than this one and that a storage class
    /// supports.
    pub fn possible(self, class: &str) -> Self {
        match self {
            Self::Expedited if is_deep(class) => Self::Standard,
            retrieval => retrieval,
        }
    }

    /// Returns the usual maximum duration of a restore in AWS. Other stores may differ.
    pub fn usual(self, class: &str) -> Duration {
        Duration::from_secs(match (self, is_deep(class)) {
            (Self::Expedited, _) => HOUR / 12,
            (Self::Standard, false) => 5 * HOUR,
            (Self::Standard, true) | (Self::Bulk, false) => 12 * HOUR,
            (Self::Bulk, true) => 48 * HOUR,
        })
    }
}

fn is_deep(class: &str) -> bool {
    class.starts_with("DEEP_ARCHIVE")
}

/// How objects are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreOptions {
    pub retrieval: Retrieval,
    /// For how many days the store keeps a restored copy.
    pub days: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_durations_depend_on_class_and_retrieval() {
        for (retrieval, class, hours) in [
            (Retrieval::Standard, "GLACIER", 5),
            (Retrieval::Standard, "DEEP_ARCHIVE", 12),
            (Retrieval::Standard, "DEEP_ARCHIVE_ACCESS", 12),
            (Retrieval::Bulk, "GLACIER", 12),
            (Retrieval::Bulk, "DEEP_ARCHIVE", 48),
        ] {
            assert_eq!(retrieval.usual(class).as_secs(), hours * HOUR, "{retrieval:?} {class}");
        }
        assert_eq!(Retrieval::Expedited.usual("GLACIER").as_secs(), 300);
        for retrieval in [Retrieval::Expedited, Retrieval::Standard, Retrieval::Bulk] {
            assert_eq!(Retrieval::parse(&retrieval.name().to_ascii_lowercase()), Some(retrieval));
        }
        assert_eq!(Retrieval::parse("fast"), None);
        assert_eq!(Retrieval::Expedited.possible("DEEP_ARCHIVE"), Retrieval::Standard);
        assert_eq!(Retrieval::Expedited.possible("GLACIER"), Retrieval::Expedited);
        assert_eq!(Retrieval::Bulk.possible("DEEP_ARCHIVE"), Retrieval::Bulk);
    }
}
