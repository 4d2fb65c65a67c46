//! Formats a record as one readable line, similar to the output of strace.

use std::borrow::Cow;
use std::fmt;

use fslab_vfs::{Errno, Operation, errno_name as name_of};

use crate::escape::escape;
use crate::paths::Paths;
use crate::record::{Record, flag};

/// A record to print, with the known paths of inodes.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a>(pub &'a Record, pub &'a Paths);

/// Returns the name of a record's error number.
#[must_use]
pub(crate) fn errno_name(errno: u32) -> String {
    i32::try_from(errno).map_or_else(
        |_| format!("errno {errno}"),
        |number| name_of(Errno::from_raw_os_error(number)),
    )
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(record, _) = self;
        let seconds = record.start_ns as f64 / 1e9;
        let micros = record.duration_ns as f64 / 1e3;
        write!(out, "{:>8} {seconds:>13.6} {micros:>10.1}us ", record.sequence)?;
        write!(out, "t{:<2} ", record.thread)?;
        match (record.pid, record.uid) {
            (Some(pid), Some(uid)) => write!(out, "{pid:>7} u{uid:<5} ")?,
            _ => write!(out, "{:>7} {:6} ", "-", "-")?,
        }
        let program = record.program.as_ref().map(|program| format!("\"{}\"", escape(program)));
        write!(out, "{:17} ", printable(program.as_deref().unwrap_or("-")))?;
        let arguments = self.arguments().join(", ");
        write!(out, "{}({})", record.operation, printable(&arguments))?;
        let answers = self.answers();
        match (record.errno, answers.is_empty()) {
            (0, true) => Ok(()),
            (0, false) => write!(out, " = {}", printable(&answers.join(", "))),
            (errno, _) => write!(out, " = {}", errno_name(errno)),
        }
    }
}

/// Replaces control characters, which could change the state of the terminal, with `\xHH`. The text
/// is already escaped, so each backslash in a name is doubled.
fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            let mut bytes = [0; 4];
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                shown.push_str(&format!("\\x{byte:02x}"));
            }
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

impl Line<'_> {
    fn inode(&self, ino: u64) -> String {
        let Self(_, paths) = self;
        paths.of(ino).unwrap_or_else(|| format!("#{ino}"))
    }

    /// Returns the operation's arguments, such as inode, offset and size.
    fn arguments(&self) -> Vec<String> {
        let Self(record, _) = self;
        let mut shown = Vec::new();
        self.add_places(&mut shown);
        add(&mut shown, "handle ", record.handle);
        add(&mut shown, "offset ", record.offset);
        let size = if record.operation == Operation::Forget { "lookups " } else { "size " };
        add(&mut shown, size, record.size);
        shown.extend(record.mode.map(|mode| format!("mode {mode:#o}")));
        shown.extend(record.umask.map(|umask| format!("umask {umask:#o}")));
        add(&mut shown, "device ", record.device);
        add(&mut shown, "owner ", record.owner);
        add(&mut shown, "group ", record.group);
        add_time(&mut shown, "accessed ", record.accessed_s, record.accessed_ns);
        add_time(&mut shown, "modified ", record.modified_s, record.modified_ns);
        shown.extend(flags(record));
        shown.extend(record.checksum.map(|checksum| format!("checksum {checksum:08x}")));
        if record.data.is_some() {
            shown.push("data kept".to_owned());
        }
        shown
    }

    fn add_places(&self, shown: &mut Vec<String>) {
        let Self(record, _) = self;
        if let Some(ino) = record.from_inode {
            shown.push(self.inode(ino));
            add(shown, "handle ", record.from_handle);
            add(shown, "offset ", record.from_offset);
        }
        for (parent, name) in [(record.parent, &record.name), (record.new_parent, &record.new_name)]
        {
            if let Some(parent) = parent {
                let name = name.as_ref().map(|name| format!(" \"{}\"", escape(name)));
                let place = format!("{}{}", self.inode(parent), name.unwrap_or_default());
                shown.push(place);
            }
        }
        if let Some(ino) = record.inode {
            // For `link`, the inode comes before its new name.
            let place = if record.operation == Operation::Link { 0 } else { shown.len() };
            shown.insert(place, self.inode(ino));
        }
        if record.operation != Operation::Readlink {
            shown.extend(record.text.as_ref().map(|text| format!("\"{}\"", escape(text))));
        }
    }

    fn answers(&self) -> Vec<String> {
        let Self(record, _) = self;
        let mut shown = Vec::new();
        shown.extend(record.result.map(|result| result.to_string()));
        if record.operation == Operation::Readlink {
            shown.extend(record.text.as_ref().map(|text| format!("\"{}\"", escape(text))));
        }
        add(&mut shown, "inode ", record.result_inode);
        shown.extend(record.result_mode.map(|mode| format!("mode {mode:#o}")));
        add(&mut shown, "size ", record.result_size);
        add(&mut shown, "handle ", record.result_handle);
        shown
    }
}

fn add<T: fmt::Display>(shown: &mut Vec<String>, label: &str, value: Option<T>) {
    shown.extend(value.map(|value| format!("{label}{value}")));
}

fn add_time(shown: &mut Vec<String>, label: &str, seconds: Option<i64>, nanos: Option<u32>) {
    if let Some(seconds) = seconds {
        shown.push(format!("{label}{seconds}.{:09}", nanos.unwrap_or_default()));
    }
}

fn flags(record: &Record) -> Option<String> {
    let flags = record.flags.filter(|flags| *flags != 0)?;
    let words: &[(u32, &str)] = match record.operation {
        Operation::Setattr => &[
            (flag::ACCESSED_NOW, "accessed now"),
            (flag::MODIFIED_NOW, "modified now"),
            (flag::KILL_SET_ID, "kill set-id"),
        ],
        Operation::Write => &[(flag::KILL_SET_ID, "kill set-id"), (flag::APPEND, "append")],
        Operation::FileattrGet | Operation::FileattrSet => &[(flag::EXTENDED, "extended")],
        Operation::Fsync | Operation::Fsyncdir => &[(flag::DATA_ONLY, "data only")],
        Operation::Lseek => &[(flag::HOLE, "hole")],
        _ => return Some(format!("flags {flags:#x}")),
    };
    let set: Vec<_> =
        words.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, word)| *word).collect();
    Some(set.join(", "))
}
