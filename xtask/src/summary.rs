//! The summary of `cargo xtask test`: a table of steps, the skipped tests and the failures.

use std::time::Duration;

use crate::tally::Tally;

/// The outcome of a step that has run.
pub struct Done {
    /// Name of the step.
    pub name: &'static str,
    /// Duration.
    pub time: Duration,
    /// Processor time in seconds.
    pub cpu_s: f64,
    /// Results of its tests.
    pub tally: Tally,
}

/// Returns the summary without its last line, which contains the counts of [`total`].
pub fn render(done: &[Done], elapsed: Duration) -> String {
    let total = total(done);
    [table(done, elapsed), skips(&total), failures(&total)].concat()
}

/// Prints the end of a single suite: skipped tests, failures and the counts.
pub fn close(tally: &Tally) -> bool {
    println!("{}{}{}", skips(tally), failures(tally), tally.counts());
    tally.is_good()
}

/// Returns the sum of the results of all steps.
pub fn total(done: &[Done]) -> Tally {
    let mut total = Tally::default();
    done.iter().for_each(|step| total += step.tally.clone());
    total
}

fn table(done: &[Done], elapsed: Duration) -> String {
    let mut text = format!("\n{:<12} {:>9} {:>9}  result\n", "step", "elapsed", "processor");
    let mut row = |name: &str, time: Duration, cpu_s: f64, result: &str| {
        let seconds = time.as_secs_f64();
        text.push_str(&format!("{name:<12} {seconds:>7.1} s {cpu_s:>7.1} s  {result}\n"));
    };
    for step in done {
        let verdict = if step.tally.is_good() { "ok" } else { "FAILED" };
        row(step.name, step.time, step.cpu_s, &format!("{verdict}: {}", step.tally.counts()));
    }
    row("all", elapsed, done.iter().map(|step| step.cpu_s).sum(), "steps overlap");
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

/// Appends a message as one line of text. The lines of a longer message are joined.
fn line(text: &mut String, words: &str) {
    let lines = words.lines().map(str::trim).filter(|line| !line.is_empty());
    let words = lines.collect::<Vec<_>>().join("; ");
    text.push_str(&format!("  {words}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_summed_and_failures_are_one_line() {
        let time = Duration::from_millis(1500);
        let mut unit = Tally { passed: 41, ..Tally::default() };
        unit += Tally::skip("mounted", "no /dev/fuse");
        let step = |name, tally| Done { name, time, cpu_s: 2.0, tally };
        let done = [
            step("format", Tally::pass()),
            step("unit", unit),
            step("tidy", Tally::fail("tidy: a.rs:1:\n\n too long\n")),
        ];
        let text = render(&done, time * 2);
        assert_eq!(total(&done).counts(), "42 passed, 1 failed, 1 skipped");
        assert!(text.contains("mounted: no /dev/fuse"));
        assert!(text.contains("  tidy: a.rs:1:; too long\n"));
        assert!(text.contains("tidy             1.5 s     2.0 s  FAILED"));
        assert!(text.contains("all              3.0 s     6.0 s"));
    }
}
