//! Durations in text form.

use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

/// Parses a duration such as `90s`, `1h30m`, `1.5s`, `30d`, `2w` or `50us`. A bare number is an
/// error, because its unit would be ambiguous. A day has 24 hours.
///
/// # Errors
/// A message for users. Negative durations and months are errors too.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| format!("'{text}' is not a time such as 90s, 1h30m or 30d"))
}

fn duration(text: &str) -> Option<Duration> {
    let span: Span = text.trim().parse().ok()?;
    let signed: SignedDuration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(signed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<Duration>) {
        assert_eq!(parse_duration(text).ok(), expected, "{text}");
    }

    #[test]
    fn durations_from_microseconds_to_weeks_are_parsed() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        check("0s", seconds(0));
        check("90s", seconds(90));
        check("1h30m", seconds(5400));
        check("1h 30m", seconds(5400));
        check("720h", seconds(30 * 24 * 3600));
        check("30d", seconds(30 * 24 * 3600));
        check("1d12h", seconds(36 * 3600));
        check("2w", seconds(14 * 24 * 3600));
        check("3 weeks", seconds(21 * 24 * 3600));
        check("1.5s", Some(Duration::from_millis(1500)));
        check("50us", Some(Duration::from_micros(50)));
        for wrong in ["", "90", "-1h", "1mo", "1y", "h", "soon", "1h30"] {
            check(wrong, None);
        }
        assert_eq!(
            parse_duration("90").unwrap_err(),
            "'90' is not a time such as 90s, 1h30m or 30d"
        );
    }
}
