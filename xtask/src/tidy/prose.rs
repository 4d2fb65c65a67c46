//! Finds phrases that are hard to understand, in comments, strings and documents. CONTRIBUTING.md
//! describes how to write; this check finds only the phrases in its list.

use super::markdown;
use super::tree::{RustLexer, Tree, Violation};

/// Forms of one phrase, and the replacement.
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

/// Files that may use a phrase, with the phrase.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// Finds violations of the rule.
pub fn run(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| *path != THIS_FILE) {
        let paragraphs = match path {
            _ if path.ends_with(".rs") => rust_paragraphs(text),
            _ if path.ends_with(".md") => markdown_paragraphs(text),
            _ => continue,
        };
        violations.extend(paragraphs.iter().flat_map(|paragraph| paragraph.violations(path)));
    }
    violations
}

/// Text that is searched as a whole, because a phrase may continue in the next line.
struct Paragraph {
    /// Index of the last line so far.
    last_line: usize,
    text: String,
}

/// Returns the paragraphs of a Rust file. Comments on consecutive lines form paragraphs as in
/// Markdown, and each string is a paragraph.
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

/// Adds a line to the paragraph before it, or begins one. `next_index` is the line that would
/// belong to the last paragraph.
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

impl Paragraph {
    fn violations(&self, path: &str) -> Vec<Violation> {
        let text = comparable(&self.text);
        let phrases = PHRASES.iter().flat_map(|phrase| {
            let forms = phrase.forms.iter();
            forms.flat_map(|form| places(&text, form)).map(|place| (place, phrase.instead))
        });
        let first_words = FIRST_WORDS.iter().flat_map(|words| places(&text, words));
        let hidden = first_words.filter(|(start, _)| begins_statement(&text, *start));
        let hidden = hidden.map(|place| (place, "a sentence that begins with its noun"));
        let found = phrases.chain(hidden).filter(|((_, form), _)| {
            !EXCEPTIONS.iter().any(|(file, phrase)| file == &path && phrase == form)
        });
        let violation = |((start, form), instead): ((usize, &str), &str)| {
            let index = self.last_line - self.text[start..].matches('\n').count();
            Violation::of_line(path, index, format!("\"{form}\": write {instead}"))
        };
        found.map(violation).collect()
    }
}

/// Returns the text in lower case and in one line, with code between backticks replaced. Each
/// character keeps its offset.
fn comparable(text: &str) -> String {
    let mut is_code = false;
    let mut result = String::with_capacity(text.len());
    for character in text.chars() {
        is_code ^= character == '`';
        match character {
            '\n' => result.push(' '),
            _ if is_code => result.extend(std::iter::repeat_n('_', character.len_utf8())),
            _ => result.push(character.to_ascii_lowercase()),
        }
    }
    result
}

/// Yields the occurrences of `form` in `text` as whole words.
fn places<'a>(text: &'a str, form: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(form).filter(move |(start, _)| {
        let before = text[..*start].chars().next_back();
        let after = text[start + form.len()..].chars().next();
        // After a form that ends with a stop, no name may follow, as in `no more.rs`.
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}

/// Whether a statement begins at `start`; a question may begin with "who".
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
