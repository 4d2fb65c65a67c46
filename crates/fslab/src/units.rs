//! Formats numbers, sizes and times as readable text, and parses durations.

use std::time::Duration;

/// Formats a duration, given in nanoseconds, in s, ms, us or ns, for example as `1.5ms`.
pub fn duration(ns: u64) -> String {
    let ns = ns as f64;
    let units = [("s", 1e9), ("ms", 1e6), ("us", 1e3)];
    let fitting = units.into_iter().find(|(_, unit)| ns >= *unit);
    fitting.map_or_else(|| format!("{ns}ns"), |(name, unit)| format!("{:.1}{name}", ns / unit))
}

/// Formats a number of bytes with a binary unit.
pub fn bytes(count: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fitting = units.into_iter().find(|(_, power)| count >> power > 0);
    fitting.map_or_else(
        || format!("{count} B"),
        |(name, power)| format!("{:.1} {name}", count as f64 / (1_u64 << power) as f64),
    )
}

/// Formats a number with its noun: "1 file", "2 files".
pub fn counted(count: u64, what: &str) -> String {
    counted_as(count, what, &format!("{what}s"))
}

/// Formats a number with its noun: `one` for the number 1, otherwise `more`.
pub fn counted_as(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Formats how long ago a time was, in one unit, for example "3 h ago".
pub fn ago(time: jiff::Timestamp) -> String {
    let seconds = jiff::Timestamp::now().duration_since(time).as_secs().max(0);
    let units = [("d", 86_400), ("h", 3600), ("min", 60)];
    let fitting = units.into_iter().find(|(_, length)| seconds >= *length);
    let (name, length) = fitting.unwrap_or(("s", 1));
    format!("{} {name} ago", seconds / length)
}

/// Formats a duration in one unit: "40 s", "3 min".
pub fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5999 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}

/// Parses a duration such as `10m` or `1.5s`. A bare number means seconds.
///
/// # Errors
/// Fails if the text is not a duration. The error is a message for the user.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let with_unit = if text.parse::<f64>().is_ok() { format!("{text}s") } else { text.to_owned() };
    fslab_vfs::parse_duration(&with_unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_of_one_takes_the_singular() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "file")), ["0 files", "1 file", "2 files"]);
    }

    #[test]
    fn ages_are_printed_in_a_single_unit() {
        let shown =
            |seconds| ago(jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds));
        let ages = [-5, 0, 30, 60, 7200, 86_400 * 400].map(shown);
        assert_eq!(ages[0], "0 s ago");
        assert!(ages[1].ends_with(" s ago"), "{}", ages[1]);
        assert_eq!(ages[3..], ["1 min ago", "2 h ago", "400 d ago"]);
    }

    #[test]
    fn durations_in_days_hours_and_plain_seconds_are_parsed() {
        let seconds = |text| parse_duration(text).map(|duration| duration.as_secs());
        for (text, expected) in [("30d", 30 * 86_400), ("720h", 30 * 86_400), ("90", 90)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        assert!(["d", "-1d", "soon"].into_iter().all(|text| seconds(text).is_err()));
    }

    #[test]
    fn durations_and_sizes_are_printed_in_a_fitting_unit() {
        assert_eq!([0, 999, 1000, 1_500_000].map(duration), ["0ns", "999ns", "1.0us", "1.5ms"]);
        assert_eq!(duration(90_000_000_000), "90.0s");
        assert_eq!([0, 1023, 1024, 3 << 29].map(bytes), ["0 B", "1023 B", "1.0 KiB", "1.5 GiB"]);
    }
}
