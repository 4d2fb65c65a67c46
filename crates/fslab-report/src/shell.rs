//! Writes command lines that a shell reads back as the same words.

/// Punctuation that has no meaning for a shell.
const PLAIN: &str = "/._-=:,+@%";

/// Returns a word in single quotes if a shell would read it differently without them.
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || PLAIN.contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Returns the command line of a program and its arguments.
#[must_use]
pub fn command_line(words: &[impl AsRef<str>]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word.as_ref())).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_if_needed() {
        assert_eq!(command_line(&["dd", "if=/dev/zero", "of=a"]), "dd if=/dev/zero of=a");
        assert_eq!(command_line(&["sh", "-c", "ls | wc -l"]), "sh -c 'ls | wc -l'");
        assert_eq!(command_line(&["echo", "", "it's", "*"]), r"echo '' 'it'\''s' '*'");
    }
}
