//! Formats numbers for people.

/// Formats a time, given in seconds, with three significant digits and a unit.
pub(super) fn seconds(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        magnitude if magnitude >= 1.0 => (value, "s"),
        magnitude if magnitude >= 1e-3 => (value * 1e3, "ms"),
        magnitude if magnitude >= 1e-6 => (value * 1e6, "\u{b5}s"),
        _ => (value * 1e9, "ns"),
    };
    format!("{} {unit}", significant(scaled))
}

/// Formats a number with three significant digits, without an exponent. Below 1 it has three
/// decimals, which may be fewer significant digits.
#[must_use]
pub fn significant(value: f64) -> String {
    let digits = match value.abs() {
        magnitude if magnitude >= 100.0 || magnitude == 0.0 => 0,
        magnitude if magnitude >= 10.0 => 1,
        magnitude if magnitude >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Removes trailing zeros after the decimal point of a number.
#[must_use]
pub fn without_zeros(number: &str) -> String {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        number.to_owned()
    }
}

/// Formats a ratio: below 10 with three decimals, above with fewer.
pub(super) fn factor(value: f64) -> String {
    let digits = match value {
        value if value >= 1000.0 => 0,
        value if value >= 10.0 => 1,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Formats a size in bytes in binary units.
#[must_use]
pub fn bytes(value: u64) -> String {
    if value == 0 {
        return "0 B".to_owned();
    }
    let unit = (value.ilog2() / 10).min(4);
    let scaled =
        value as f64 / f64::from(1 << (10 * unit.min(3))) / if unit == 4 { 1024.0 } else { 1.0 };
    let unit = ["B", "KiB", "MiB", "GiB", "TiB"][unit as usize];
    if scaled.fract() == 0.0 {
        format!("{scaled} {unit}")
    } else {
        format!("{} {unit}", significant(scaled))
    }
}

pub(super) fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", bytes(bytes_per_second.round() as u64))
}

pub(super) fn percent(share: f64) -> String {
    format!("{} %", significant(share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::{bytes, percent, rate, seconds};

    #[test]
    fn numbers_are_formatted_with_units() {
        assert_eq!(seconds(1.5), "1.50 s");
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(seconds(0.000_004_56), "4.56 \u{b5}s");
        assert_eq!(seconds(3e-8), "30.0 ns");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1 << 10), "1 KiB");
        assert_eq!(bytes(32 << 20), "32 MiB");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(3 << 40), "3 TiB");
        assert_eq!(rate(2e9), "1.86 GiB/s");
        assert_eq!(percent(0.0312), "3.12 %");
    }
}
