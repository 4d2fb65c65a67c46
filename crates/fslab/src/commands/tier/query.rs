//! The options that select files by residency, owner, size and age.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use fslab_tier::command::{Grouping, Query, Residence};
use fslab_tier::policy::{parse_group, parse_pattern, parse_user};
use fslab_vfs::{Size, parse_duration};

/// The options of a query. Each option restricts the selection further.
#[derive(Debug, clap::Args)]
pub struct Selection {
    /// Only files in this state (may be given several times)
    #[arg(long = "state", value_name = "STATE", value_parser = states())]
    states: Vec<Residence>,
    /// Only files of this user, by name or number (may be given several times)
    #[arg(long = "user", value_name = "USER", value_parser = parse_user)]
    users: Vec<u32>,
    /// Only files of this group, by name or number (may be given several times)
    #[arg(long = "group", value_name = "GROUP", value_parser = parse_group)]
    groups: Vec<u32>,
    /// Only files of at least this size
    #[arg(long, value_name = "SIZE")]
    larger: Option<Size>,
    /// Only files below this size
    #[arg(long, value_name = "SIZE")]
    smaller: Option<Size>,
    /// Only files that were not modified for this time, such as 30d or 12h
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    unchanged: Option<Duration>,
    /// Only files that were neither read nor modified for this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    unused: Option<Duration>,
    /// Only files whose path from the root of the tree matches this pattern, such as '**/*.mkv'
    /// (may be given several times)
    #[arg(long = "match", value_name = "PATTERN", value_parser = parse_pattern)]
    patterns: Vec<String>,
    /// Only pinned files
    #[arg(long)]
    pinned: bool,
}

impl Selection {
    pub fn query(self) -> Query {
        // Times are rounded up, because a fraction of a second would become 0, which selects all
        // files.
        let seconds = |time: Option<Duration>| {
            time.map_or(0, |time| time.as_secs() + u64::from(time.subsec_nanos() > 0))
        };
        Query {
            states: self.states,
            patterns: self.patterns,
            users: self.users,
            groups: self.groups,
            larger: self.larger.map_or(0, Size::bytes),
            smaller: self.smaller.map(Size::bytes),
            unchanged: seconds(self.unchanged),
            unused: seconds(self.unused),
            only_pinned: self.pinned,
        }
    }
}

/// Parses the name of a residency state.
fn states() -> impl TypedValueParser<Value = Residence> {
    one_of(Residence::ALL.to_vec(), Residence::name)
}

/// Parses the name of a property by which `fslab tier du --by` groups files.
pub fn groupings() -> impl TypedValueParser<Value = Grouping> {
    one_of(Grouping::ALL.to_vec(), Grouping::name)
}

fn one_of<T>(all: Vec<T>, name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let names: Vec<&str> = all.iter().map(|value| name(*value)).collect();
    PossibleValuesParser::new(names).try_map(move |text: String| {
        let value = all.iter().find(|value| name(**value) == text);
        value.copied().ok_or_else(|| format!("there is no '{text}'"))
    })
}
