//! Compares the output shown on a page with the real output of its commands.
//!
//! The lines of the page must occur in the real output, in the same order. Figures (sizes, times
//! and other numbers) may differ: any number matches any other number, and any unit matches any
//! other unit. Runs of blanks match too. A line that ends in `...` matches all lines that begin
//! with its text.

/// The end of an abbreviated line of a page.
const CUT: &str = "...";

/// Returns the first line of a page that the real output lacks.
pub fn first_missing<'a>(expected: &'a [String], found: &str) -> Option<&'a str> {
    let mut found = found.lines().map(without_figures);
    expected.iter().map(String::as_str).filter(|line| !is_left_out(line)).find(|line| {
        let wanted = without_figures(line.trim_end().trim_end_matches(CUT));
        let is_cut = line.trim_end().ends_with(CUT);
        let fits = |line: String| line == wanted || is_cut && line.starts_with(wanted.trim_end());
        !found.any(fits)
    })
}

fn is_left_out(line: &str) -> bool {
    line.trim().is_empty() || line.trim() == CUT
}

/// Returns a line with `#` for each number and its unit, and with one blank for each run of blanks.
fn without_figures(line: &str) -> String {
    const UNITS: [&str; 11] = ["B", "KiB", "MiB", "GiB", "TiB", "ns", "us", "ms", "s", "min", "h"];
    let mut words = Vec::<String>::new();
    for word in line.split_whitespace() {
        let (mut shown, mut was_figure) = (String::new(), false);
        for letter in word.chars() {
            let is_figure = letter.is_ascii_digit() || was_figure && matches!(letter, '.' | ',');
            if !is_figure {
                shown.push(letter);
            } else if !was_figure {
                shown.push('#');
            }
            was_figure = is_figure;
        }
        let unit = shown.trim_end_matches([',', ';', ':', '.', ')']);
        let is_unit = UNITS.contains(&unit) && words.last().is_some_and(|last| last.ends_with('#'));
        if is_unit {
            // Punctuation after a unit is kept, because it belongs to the sentence.
            let mark = shown[unit.len()..].to_owned();
            words.iter_mut().last().into_iter().for_each(|last| last.push_str(&mark));
        } else {
            words.push(shown);
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guide_output_may_differ_only_in_figures() {
        assert_eq!(without_figures("a  12 files, 3.5 MiB; 7%"), "a # files, #; #%");
        let expected = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let found = "head\narchived 3 files, 1.2 MiB\nall 12 done in 3.1 s\n";
        for (page, missing) in [
            ("archived 1 files, 575.7 KiB\nall 1 done in 4 ms", None),
            ("head\n...\nall 1 done in...", None),
            ("all 12 done in 3.1 s\nhead", Some("head")),
            ("archived 3 file, 1.2 MiB", Some("archived 3 file, 1.2 MiB")),
            ("archived three files, 1.2 MiB", Some("archived three files, 1.2 MiB")),
        ] {
            assert_eq!(first_missing(&expected(page), found), missing, "{page}");
        }
    }
}
