//! Finds phrases that are hard to understand, in comments, strings and documents. CONTRIBUTING.md
//! describes how to write; this check finds only the phrases in its list.

use std::collections::HashMap;

use super::markdown;
use super::tree::{RustLexer, Tree, Violation, is_name_character};

/// A phrase in all its forms, and its replacement.
struct Phrase {
    forms: &'static [&'static str],
    instead: &'static str,
}

const PHRASES: &[Phrase] = &[
    Phrase { forms: &["nothing but"], instead: "\"only\"" },
    Phrase { forms: &["whoever", "whosoever"], instead: "a noun, such as \"a reader that\"" },
    Phrase {
        forms: &["go on with", "goes on with", "went on with", "going on with", "gone on with"],
        instead: "\"resume\" or \"continue\"",
    },
    Phrase {
        forms: &["take away", "takes away", "took away", "taken away", "taking away"],
        instead: "\"remove\"",
    },
    Phrase {
        forms: &["is gone", "are gone", "was gone", "were gone", "be gone", "been gone"],
        instead: "\"was removed\", \"no longer exists\" or \"has ended\"",
    },
    Phrase { forms: &["mend", "mends", "mended", "mending"], instead: "\"repair\"" },
    Phrase { forms: &["one behind the other"], instead: "\"in sequence\" or \"adjacent\"" },
    Phrase { forms: &["beside each other"], instead: "\"side by side\" or \"in parallel\"" },
    Phrase { forms: &["is had", "are had"], instead: "an active verb" },
    Phrase { forms: &["no more.", "no more,", "no more;", "no more:"], instead: "\"no longer\"" },
    Phrase { forms: &["of no more use"], instead: "\"dead\" or \"unused\"" },
    Phrase {
        forms: &["what there is", "what is there", "what of it", "what of them", "what is of"],
        instead: "a noun",
    },
    Phrase {
        forms: &["by who", "for who", "to who", "from who", "than who", "lest"],
        instead: "a noun, such as \"a waiting reader\"",
    },
];

/// First words of sentences that hide their subject, such as "Who waits is answered".
const FIRST_WORDS: &[&str] = &["who", "of which", "of what", "by what", "from what"];

/// This file is not checked, because it contains all phrases.
const THIS_FILE: &str = "xtask/src/tidy/prose.rs";

/// Permitted uses: files and the phrases that they may use.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let forms = forms();
    for (path, text) in tree.files().filter(|(path, _)| *path != THIS_FILE) {
        let paragraphs = match path {
            _ if path.ends_with(".rs") => rust_paragraphs(text),
            _ if path.ends_with(".md") => markdown_paragraphs(text),
            _ => continue,
        };
        violations
            .extend(paragraphs.iter().flat_map(|paragraph| paragraph.violations(path, &forms)));
    }
    violations
}

/// A text that is searched as a whole, because a phrase may continue on the next line.
struct Paragraph {
    /// Index of the last line so far.
    last_line: usize,
    text: String,
}

/// Returns the paragraphs of a Rust file. Comments on consecutive lines are split into paragraphs
/// like Markdown, and each string is a paragraph.
fn rust_paragraphs(text: &str) -> Vec<Paragraph> {
    let mut strings: Vec<Paragraph> = Vec::new();
    let mut comments = Vec::new();
    let mut lexer = RustLexer::default();
    let (mut next_index, mut is_code) = (None, false);
    for (index, line) in text.lines().enumerate() {
        let parts = lexer.split(line);
        for (number, string) in parts.strings.iter().enumerate() {
            let goes_on = number == 0 && parts.continues_string;
            add_line(&mut strings, index, string.trim(), goes_on);
        }
        let Some(comment) = parts.comment else {
            is_code = false;
            continue;
        };
        let is_fence = comment.starts_with("```");
        is_code ^= is_fence;
        if !is_code && !is_fence {
            let is_alone = parts.code.trim().is_empty();
            add_markdown(&mut comments, index, &comment, &mut next_index, is_alone);
        }
    }
    strings.append(&mut comments);
    strings
}

/// Returns the paragraphs, list items and table rows of a page, without code.
fn markdown_paragraphs(page: &str) -> Vec<Paragraph> {
    let mut paragraphs = Vec::new();
    let mut next_index = None;
    for (index, line) in markdown::prose(page) {
        add_markdown(&mut paragraphs, index, line, &mut next_index, true);
    }
    paragraphs
}

/// Adds a line to the last paragraph or begins a new one. A line continues the last paragraph only
/// if its index is `next_index`.
fn add_markdown(
    paragraphs: &mut Vec<Paragraph>,
    index: usize,
    line: &str,
    next_index: &mut Option<usize>,
    may_go_on: bool,
) {
    let text = line.trim_start().trim_start_matches(['-', '*', '#', '>', ' ']);
    let goes_on = may_go_on && *next_index == Some(index) && text == line.trim_start();
    let is_heading = line.trim_start().starts_with('#');
    *next_index = (!text.is_empty() && !is_heading).then_some(index + 1);
    add_line(paragraphs, index, text, goes_on);
}

fn add_line(paragraphs: &mut Vec<Paragraph>, index: usize, line: &str, goes_on: bool) {
    match paragraphs.last_mut().filter(|_| goes_on) {
        Some(paragraph) => {
            paragraph.last_line = index;
            paragraph.text.push('\n');
            paragraph.text.push_str(line);
        }
        None => paragraphs.push(Paragraph { last_line: index, text: line.to_owned() }),
    }
}

/// A form of a phrase that is searched for.
struct Form {
    text: &'static str,
    instead: &'static str,
    /// Whether the form is wrong only at the beginning of a statement.
    is_first: bool,
}

/// The forms, by their first words, so that each word of a text is looked up only once.
type Forms = HashMap<&'static str, Vec<Form>>;

fn forms() -> Forms {
    let of_phrase = |phrase: &'static Phrase| {
        let forms = phrase.forms.iter();
        forms.map(|text| Form { text, instead: phrase.instead, is_first: false })
    };
    let instead = "a sentence that begins with its noun";
    let first_words = FIRST_WORDS.iter().map(|text| Form { text, instead, is_first: true });
    let mut forms = Forms::new();
    for form in PHRASES.iter().flat_map(of_phrase).chain(first_words) {
        let end = form.text.find(' ').unwrap_or(form.text.len());
        forms.entry(&form.text[..end]).or_default().push(form);
    }
    forms
}

impl Paragraph {
    fn violations(&self, path: &str, forms: &Forms) -> Vec<Violation> {
        let text = comparable(&self.text);
        let mut start = 0;
        let mut violations = Vec::new();
        for word in text.split(|character| !is_name_character(character)) {
            let known = forms.get(word).into_iter().flatten();
            let found = known.filter(|form| form.begins_at(&text, start) && !form.is_allowed(path));
            violations.extend(found.map(|form| {
                let index = self.last_line - self.text[start..].matches('\n').count();
                let message = format!("\"{}\": write {}", form.text, form.instead);
                Violation::of_line(path, index, message)
            }));
            let separator = text[start + word.len()..].chars().next();
            start += word.len() + separator.map_or(0, char::len_utf8);
        }
        violations
    }
}

impl Form {
    /// Returns whether the form begins at `start` and consists of whole words. A word must begin at
    /// `start`.
    fn begins_at(&self, text: &str, start: usize) -> bool {
        // If the form ends with a stop, no name may follow, as in `no more.rs`.
        text[start..]
            .strip_prefix(self.text)
            .is_some_and(|rest| !rest.starts_with(is_name_character))
            && (!self.is_first || begins_statement(text, start))
    }

    fn is_allowed(&self, path: &str) -> bool {
        EXCEPTIONS.contains(&(path, self.text))
    }
}

/// Returns the text in lower case and on one line, with code between backticks masked. Each
/// character keeps its offset.
fn comparable(text: &str) -> String {
    let mut text = text.to_ascii_lowercase().replace('\n', " ");
    if text.contains('`') {
        let parts = text.split_inclusive('`').enumerate();
        let is_code = |index: usize| index % 2 == 1;
        let hidden = |(index, part): (usize, &str)| match is_code(index) {
            true => "_".repeat(part.len()),
            false => part.to_owned(),
        };
        text = parts.map(hidden).collect();
    }
    text
}

/// Returns whether a statement begins at `start`. Questions are excluded, because they may begin
/// with "who".
fn begins_statement(text: &str, start: usize) -> bool {
    let before = text[..start].trim_end();
    let is_first = before.is_empty() || before.ends_with(['.', '!', '?', ':', ';']);
    let rest = &text[start..];
    // A stop within a word, such as in a number or a file name, does not end a sentence.
    let ends = rest.match_indices(['.', '!', '?']);
    let mut ends = ends.filter(|(at, _)| !rest[at + 1..].starts_with(|c: char| !c.is_whitespace()));
    let is_question = ends.next().is_some_and(|(_, end)| end == "?");
    is_first && !is_question && !before.ends_with("i.e.") && !before.ends_with("e.g.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let violations = run(&Tree::of(&[(path, text)]));
        let place = |violation: Violation| {
            let form = violation.message.split('"').nth(1).unwrap().to_owned();
            (violation.line.unwrap(), form)
        };
        violations.into_iter().map(place).collect()
    }

    #[test]
    fn every_form_is_found_in_comments_strings_and_documents() {
        let forms = PHRASES.iter().flat_map(|phrase| phrase.forms);
        for form in forms.chain(FIRST_WORDS) {
            let expected = [(1, (*form).to_owned())];
            for text in [format!("// {form} x"), format!("f(\"{form} x\");")] {
                assert_eq!(found("a.rs", &text), expected, "{text}");
            }
            assert_eq!(found("a.md", &format!("- {form} x")), expected, "{form}");
        }
    }

    #[test]
    fn phrases_are_found_across_lines() {
        assert_eq!(found("a.rs", "/// It is nothing\n/// but air.\n"), [(1, "nothing but".into())]);
        assert_eq!(found("a.md", "# A\n\nIt is\nnothing\nbut.\n"), [(4, "nothing but".into())]);
        assert_eq!(found("a.rs", "// nothing\nlet a; // but\n"), []);
        assert_eq!(
            found("a.rs", "f(\"It is nothing \\\n   but air\");"),
            [(1, "nothing but".into())]
        );
        assert_eq!(found("a.rs", "f(r#\"\nmend\n\"#);"), [(2, "mend".into())]);
        assert_eq!(found("a.rs", "/// # Errors\n/// Who waits fails.\n"), [(2, "who".into())]);
        assert_eq!(found("a.rs", "//! ```\n//! mend\n//!\n//! mend\n//! ```\n"), []);
        assert_eq!(found("a.md", "nothing\n\nbut\n"), []);
    }

    #[test]
    fn prose_check_ignores_code_questions_and_parts_of_words() {
        for text in [
            "`mend`",
            "amended",
            "```sh\nmend\n```",
            "Who may unmount it?",
            "Who may mount version 1.2?",
            "| who | why |",
            "The caller who waits is answered.",
            "It takes no more.rs files",
        ] {
            assert_eq!(found("a.md", text), [], "{text}");
        }
        assert_eq!(found("a.rs", "fn mend() {}"), []);
    }
}
