//! Renders the judgements of gates as JUnit XML, which most continuous integration services read.

use super::gate::{Judgement, Outcome};
use fslab_chart::escape;

/// Returns one test suite with a case for each judged row. A failed gate is a failure; rows that
/// are not decided or not measured are skipped.
#[must_use]
pub fn render(suite: &str, judgements: &[Judgement]) -> String {
    let count = |outcome| judgements.iter().filter(|one| one.outcome == outcome).count();
    let skipped = count(Outcome::NotDecided) + count(Outcome::NotMeasured);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" \
         skipped=\"{skipped}\">\n",
        attribute(suite),
        judgements.len(),
        count(Outcome::Failed)
    );
    for one in judgements {
        text.push_str(&case(one));
    }
    text + "</testsuite>\n</testsuites>\n"
}

fn case(one: &Judgement) -> String {
    let found = attribute(&one.text());
    let content = match one.outcome {
        Outcome::Passed => format!("<system-out>{found}</system-out>"),
        Outcome::Failed => format!("<failure message=\"{found}\"/>"),
        Outcome::NotDecided => format!("<skipped message=\"not decided: {found}\"/>"),
        Outcome::NotMeasured => format!("<skipped message=\"not measured: {found}\"/>"),
    };
    let (class, name) = (attribute(&one.gate), attribute(&one.name()));
    format!("<testcase classname=\"{class}\" name=\"{name}\">{content}</testcase>\n")
}

/// Escapes a text for XML. Control characters, which XML can't represent, are replaced.
fn attribute(text: &str) -> String {
    let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    escape(&text.chars().map(printable).collect::<String>())
}
