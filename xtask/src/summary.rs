//! The end of `cargo xtask test`: a table of steps, what failed, what was skipped, the counts.

use std::time::Duration;

use crate::tally::Tally;

/// A step that has run.
pub struct Done {
    /// The step's name.
    pub name: &'static str,
    /// How long it took.
    pub time: Duration,
    /// How its tests went.
    pub tally: Tally,
}

/// The whole summary; its last line holds nothing but the counts.
pub fn render(done: &[Done]) -> String {
    let mut total = Tally::default();
    done.iter().for_each(|step| total += step.tally.clone());
    [table(done), skips(&total), failures(&total), total.counts() + "\n"].concat()
}

fn table(done: &[Done]) -> String {
    let mut text = format!("\n{:<12} {:>8}  result\n", "step", "time");
    for step in done {
        let (name, seconds) = (step.name, step.time.as_secs_f64());
        let verdict = if step.tally.is_good() { "ok" } else { "FAILED" };
        let row = format!("{name:<12} {seconds:>6.1} s  {verdict}: {}\n", step.tally.counts());
        text.push_str(&row);
    }
    text
}

fn skips(total: &Tally) -> String {
    let mut text = heading("Skipped", total.skipped.len());
    for skip in &total.skipped {
        let allowed = if skip.allowed { " (allowed)" } else { "" };
        line(&mut text, &format!("{}: {}{allowed}", skip.test, skip.reason));
    }
    text
}

fn failures(total: &Tally) -> String {
    let mut text = heading("Failed", total.failed.len());
    total.failed.iter().for_each(|failure| line(&mut text, failure));
    text
}

fn heading(name: &str, count: usize) -> String {
    if count == 0 { "\n".to_owned() } else { format!("\n{name} ({count}):\n") }
}

/// One line, whatever another program said over several.
fn line(text: &mut String, words: &str) {
    let lines = words.lines().map(str::trim).filter(|line| !line.is_empty());
    let words = lines.collect::<Vec<_>>().join("; ");
    text.push_str(&format!("  {words}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_sum_of_the_steps() {
        let time = Duration::from_millis(1500);
        let mut unit = Tally { passed: 41, ..Tally::default() };
        unit += Tally::skip("mounted", "no /dev/fuse");
        let text = render(&[
            Done { name: "format", time, tally: Tally::pass() },
            Done { name: "unit", time, tally: unit },
            Done { name: "tidy", time, tally: Tally::fail("tidy: a.rs:1:\n\n too long\n") },
        ]);
        assert_eq!(text.lines().last(), Some("42 passed, 1 failed, 1 skipped"));
        assert!(text.contains("mounted: no /dev/fuse"));
        assert!(text.contains("  tidy: a.rs:1:; too long\n"));
        assert!(text.contains("tidy            1.5 s  FAILED"));
    }
}
