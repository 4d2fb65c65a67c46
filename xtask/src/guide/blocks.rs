//! The command blocks of a page.
//!
//! A code block of the language `sh` contains commands. In a block of the language `console`, lines
//! that begin with `$ ` are commands. The other lines are their output, which is compared with the
//! real output (see [`output`](super::output)). A block marked `sh,slow` takes minutes, and CI
//! skips it. Comments directly before a block control it. Readers do not see them:
//!
//! ```text
//! <!-- not here: REASON -->      the block is not run, because ...
//! <!-- output differs: REASON -->  its output is not compared, because ...
//! <!-- before: COMMANDS -->      prepares the files that the reader has
//! <!-- after: COMMANDS -->       returns to the reader's folder for the next block
//! ```

use std::fmt;

/// A block of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The line number of the opening fence, from 1.
    pub line: usize,
    /// Whether the block is run.
    pub kind: Kind,
    /// The commands to run: those of `before`, the block's own, and those of `after`.
    pub commands: String,
    /// The lines of output to compare.
    pub output: Vec<String>,
}

/// Whether a block is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The block is always run.
    Quick,
    /// The block is run by `cargo xtask guide`, but not in CI.
    Slow,
    /// The block is never run, for this reason.
    NotHere(String),
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quick => formatter.write_str("run"),
            Self::Slow => formatter.write_str("slow: run only by `cargo xtask guide`"),
            Self::NotHere(reason) => write!(formatter, "not run: {reason}"),
        }
    }
}

/// The number of an invalid line, and the error.
type Wrong = (usize, String);

/// Returns the blocks of a page's text.
pub fn of(text: &str) -> Result<Vec<Block>, Wrong> {
    let lines: Vec<&str> = text.lines().collect();
    let mut blocks = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        let Some(info) = lines[index].strip_prefix("```") else {
            index += 1;
            continue;
        };
        let length = lines[index + 1..].iter().position(|line| line.starts_with("```"));
        let length = length.ok_or((index + 1, "the fence is never closed".to_owned()))?;
        let body = &lines[index + 1..index + 1 + length];
        blocks.extend(block(info, index, body, &remarks(&lines[..index]))?);
        index += length + 2;
    }
    Ok(blocks)
}

/// Returns the comments directly before a fence, in order.
fn remarks(before: &[&str]) -> Vec<String> {
    let mut end = before.len();
    let mut remarks = Vec::new();
    while before[..end].last().is_some_and(|line| line.trim_end().ends_with("-->")) {
        let start = before[..end].iter().rposition(|line| line.starts_with("<!--"));
        let Some(start) = start else { break };
        let whole = before[start..end].join("\n");
        let inner = whole.trim_start_matches("<!--").trim_end().trim_end_matches("-->");
        remarks.insert(0, inner.trim().to_owned());
        end = start;
    }
    remarks
}

fn block(
    info: &str,
    index: usize,
    body: &[&str],
    remarks: &[String],
) -> Result<Option<Block>, Wrong> {
    let line = index + 1;
    let (language, mark) = info.split_once(',').unwrap_or((info, ""));
    let (commands, mut output) = match language {
        "sh" => (body.join("\n"), Vec::new()),
        "console" => commands_and_output(body),
        _ => return Ok(None),
    };
    let mut kind = match mark {
        "" => Kind::Quick,
        "slow" => Kind::Slow,
        other => {
            return Err((
                line,
                format!("`{other}` is not a mark of a command block; the only mark is `slow`"),
            ));
        }
    };
    let (mut before, mut after) = (String::new(), String::new());
    for remark in remarks {
        match remark.split_once(':') {
            Some(("before", commands)) => before.push_str(commands.trim()),
            Some(("after", commands)) => after = format!("{}\n", commands.trim()),
            Some(("output differs", reason)) if !reason.trim().is_empty() => output.clear(),
            Some(("not here", reason)) if !reason.trim().is_empty() => {
                kind = Kind::NotHere(reason.trim().to_owned());
            }
            _ => {
                let kinds = "`before: COMMANDS`, `after: COMMANDS`, `not here: REASON` or `output \
                             differs: REASON`";
                return Err((line, format!("a comment before a block must be {kinds}")));
            }
        }
        before.push('\n');
    }
    Ok(Some(Block { line, kind, commands: format!("{before}{commands}\n{after}"), output }))
}

/// Separates the commands of a console from their output.
fn commands_and_output(body: &[&str]) -> (String, Vec<String>) {
    let commands: Vec<&str> = body.iter().filter_map(|line| line.strip_prefix("$ ")).collect();
    let output = body.iter().filter(|line| !line.starts_with("$ "));
    (commands.join("\n"), output.map(|line| (*line).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_decide_whether_a_block_is_run() {
        let page = "text\n```sh\na\nb\n```\n<!-- before: mkdir x\ntouch x/y -->\n\
                    <!-- after: cd -->\n```console\n\
                    $ ls x\ny\n```\n\
                    ```toml\nz = 1\n```\n\n```sh,slow\nsleep 9\n```\n\
                    <!-- not here: needs a tape -->\n```sh\nmt rewind\n```\n";
        let blocks = of(page).unwrap();
        let seen: Vec<_> =
            blocks.iter().map(|one| (one.line, &one.kind, one.commands.as_str())).collect();
        assert_eq!(blocks[1].output, ["y"]);
        let tape = Kind::NotHere("needs a tape".to_owned());
        assert_eq!(
            seen,
            [
                (2, &Kind::Quick, "a\nb\n"),
                (9, &Kind::Quick, "mkdir x\ntouch x/y\n\nls x\ncd\n"),
                (17, &Kind::Slow, "sleep 9\n"),
                (21, &tape, "\nmt rewind\n"),
            ]
        );
    }

    #[test]
    fn invalid_blocks_are_reported_with_their_line() {
        for (page, line) in [
            ("```sh\nopen", 1),
            ("\n```sh,quick\n```", 2),
            ("<!-- not here: -->\n```sh\n```", 2),
            ("<!-- later -->\n```sh\n```", 2),
        ] {
            assert_eq!(of(page).unwrap_err().0, line, "{page:?}");
        }
    }
}
